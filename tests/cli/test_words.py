"""What the command line says to wrong and to odd input: one table of (files, command, exit code,
words).
"""

from __future__ import annotations

import gzip
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sumus.cli import main

DIGITS = str(Path(__file__).parent.parent.parent / "plans" / "digits.toml")
OWN = '[data]\npath = "t.csv"\nsilo_column = "s"\nlabel_column = "y"\n'
TABLE = "s,x,y\n" + "".join(f"{'AB'[i % 2]},{i % 7},{(i // 2) % 2}\n" for i in range(80))


def births() -> str:
    """A table whose label is a weight in grams."""
    rng = random.Random(0)
    weights = [10 * rng.randrange(70, 500) for _ in range(131)]
    return "s,age,y\n" + "".join(
        f"{'AB'[i % 2]},{rng.randrange(15, 45)},{weights[i % 131]}\n" for i in range(189)
    )


def lines(rows: Iterable[str]) -> str:
    """A table of rows s,x,y."""
    return "\n".join(["s,x,y", *rows, ""])


def column(name: str, values: Sequence[object]) -> str:
    """Two silos, two classes, and one column with the given values."""
    return f"s,{name},y\n" + "".join(
        f'{"AB"[i % 2]},"{value}",{(i // 2) % 2}\n' for i, value in enumerate(values)
    )


@dataclass(frozen=True)
class Case:
    """A command, in a folder with some files, and what it must come to."""

    name: str
    command: str
    code: int
    words: str
    files: dict[str, str | bytes] = field(default_factory=dict)
    absent: str = ""


def of_plan(name: str, change: str, code: int, words: str, absent: str = "") -> Case:
    """`sumus account` of the digits with one value or more replaced."""
    command = " ".join(["account", DIGITS, *(f"--set {each}" for each in change.split())])
    return Case(name, command, code, words, absent=absent)


def of_text(
    name: str,
    text: str | bytes,
    code: int,
    words: str,
    *,
    command: str = "account",
    absent: str = "",
) -> Case:
    """A command on a plan of its own."""
    return Case(name, f"{command} p.toml", code, words, {"p.toml": text}, absent)


def of_table(
    name: str, content: str | bytes, code: int, words: str, *, change: str = "", absent: str = ""
) -> Case:
    """`sumus data check` of a plan that names a table."""
    command = " ".join(["data check p.toml", *(f"--set {each}" for each in change.split())])
    return Case(name, command, code, words, {"p.toml": OWN, "t.csv": content}, absent)


def of_place(name: str, files: dict[str, str], code: int, words: str, absent: str = "") -> Case:
    """`sumus data check` of a plan in another folder."""
    return Case(name, "data check sub/p.toml", code, words, {"sub/p.toml": OWN, **files}, absent)


NO_DATA = "[privacy]\nepsilon = 1.0\n"
TEN = "data.records_per_silo=[10,10,10,10,10]"
EIGHTY = range(80)

PLANS = [
    Case("skew without advice", f"plan {DIGITS} --skew some", 2, "--skew .*is for --advise"),
    Case("odd skew", f"plan {DIGITS} --advise --skew much", 2, "must be one of none, some, strong"),
    of_plan(
        "ε beyond the tails",
        "privacy.epsilon=100",
        3,
        r"epsilon = 100 .* is too large.* at most \d\d\.",
    ),
    of_plan(
        "ε below the sampler",
        "privacy.epsilon=1e-9",
        3,
        "less than the exactness of the sampler .*Raise privacy.epsilon",
    ),
    of_plan(
        "δ below the tails",
        "privacy.delta=1e-300",
        3,
        "δ is less than the far tails.*Raise privacy.delta",
    ),
    of_plan(
        "all silos collude",
        "federation.colluding=5",
        2,
        "federation.colluding must leave .*got 5. Use at most 4",
    ),
    of_plan(
        "too many of both",
        "federation.colluding=7 federation.dropouts=6",
        2,
        "Lower federation.dropouts = 6 too",
    ),
    of_plan(
        "rate out of reach",
        "training.learning_rate=1e9",
        2,
        r"got 1000000000.0. Use at most [\d.]+\.$",
        absent="γ",
    ),
    of_plan(
        "too many bins",
        f"{TEN} federation.local_steps=200",
        2,
        "at most 0.199, or fewer bins: .*local_steps at most 79",
    ),
    of_plan(
        "a silo with dots",
        "silo.St.Olav.local_steps=2",
        2,
        "silo.St.Olav is not a silo of the data",
    ),
    of_plan(
        "rate beyond floats",
        "training.learning_rate=1e-320",
        2,
        r"must be a finite number in \[1e-30, 1e\+30\]",
    ),
    of_plan(
        "seed beyond torch",
        "training.init_seed=99999999999999999999",
        2,
        "training.init_seed must be a whole number between",
    ),
    of_plan(
        "digits without end",
        f"federation.rounds={'9' * 4000}",
        2,
        "got 9+…. Give a whole number",
        absent="9{300}",
    ),
    of_text(
        "more digits", f"[privacy]\nepsilon = {'9' * 5000}\n", 2, "must be valid TOML.*4300 digits"
    ),
    of_text("brackets", f"[privacy]\nepsilon = {'[' * 5000}\n", 2, "must be valid TOML"),
    of_plan(
        "no rates",
        "training.learning_rates=[] training.algorithm=dp-sgd",
        2,
        r"learning_rates must hold one rate .*got \[\]",
    ),
    of_plan(
        "share of one silo",
        "silo.silo-0.std_factor=1e300",
        2,
        "silo.silo-0.std_factor must be a finite number",
    ),
    of_plan("a silo without key", "silo.x=1", 2, "silo.x must name a key as silo.NAME.key"),
    of_plan("no column", "data.columns=[]", 2, "data.columns must name at least one column"),
    of_plan(
        "categories in lists",
        "data.categories.a=[[1],[2]]",
        2,
        "must be a list of strings or numbers",
    ),
    of_text(
        "byte order mark",
        b'\xef\xbb\xbf[data]\nname = "digits"\n',
        0,
        "digits is sound",
        command="data check",
    ),
    of_text(
        "key without section",
        "epsilon = 1\n",
        2,
        r"epsilon .*below a line \[privacy\]\.",
        absent="Did you mean",
    ),
    of_text("key of two sections", "noise_multiplier = 1\n", 2, r"\[noise\] or \[evaluation\]"),
    of_text("empty plan", "", 2, "data must say which records", command="train"),
    of_text("plan without data", NO_DATA, 2, 'name = "digits" for a try', command="train"),
    of_text("check without data", NO_DATA, 2, "data must say which records", command="data check"),
    of_text("account without data", "", 0, "has no data: what follows is for the embedded digits"),
    of_text(
        "backslashes", '[data]\npath = "C:\\Users\\x.csv"\n', 2, r"in single quotes: 'C:\\data"
    ),
    of_text(
        "a tab in a path", OWN.replace("t.csv", "C:\\temp.csv"), 2, "data.path .* in single quotes"
    ),
]

COMMANDS = [
    Case(
        "predict with what is no run",
        "predict . t.csv",
        5,
        "is not a run folder: it has no journal.jsonl",
        {"t.csv": TABLE},
    ),
    Case(
        "predict into a file of an unknown kind",
        "predict . t.csv --out out.xlsx",
        2,
        "predictions are written as CSV or Parquet, got 'out.xlsx'. End it in .csv or .parquet.",
        {"t.csv": TABLE},
    ),
    Case(
        "a log that units would not write",
        "join k --data digits --policy p.toml --units u --log-level debug",
        2,
        "--log-level is for a silo that this command starts, not for --units or --prepare",
    ),
    Case(
        "a command that units would not run",
        "join k --data digits --policy p.toml --prepare --notify true",
        2,
        "--notify is for a silo that this command starts, not for --units or --prepare",
    ),
    Case(
        "a description of whole silos",
        f"describe {DIGITS} --set privacy.unit=silo --set training.algorithm=silo "
        "--set training.sampling_rate=0.1",
        2,
        r'privacy.unit must be "record" or "person" for a description',
    ),
    Case(
        "a description of silo sizes",
        "describe p.toml --columns s",
        2,
        "describe.columns must not name the silo column: how many records a silo has is never told",
        {"p.toml": OWN, "t.csv": TABLE},
    ),
    Case(
        "a description of a column that is not there",
        "describe p.toml --columns z",
        2,
        "describe.columns: t.csv has no column 'z'",
        {"p.toml": OWN, "t.csv": TABLE},
    ),
    Case(
        "a vault that is none",
        "keys retire nobody --yes",
        2,
        r"VAULT must be a folder, or the name of one vault \(found none\), got 'nobody'",
    ),
    Case(
        "an interface that is none",
        "federation start kit --listen everywhere",
        2,
        "--listen must be the IPv4 address of an interface of this machine, got 'everywhere'",
    ),
    Case(
        "a passphrase file for all to read",
        "keys new north --passphrase-file p.txt",
        5,
        "p.txt is readable for others. Run: chmod 600 p.txt",
        {"p.txt": "correct horse"},
    ),
    Case(
        "a format that is none",
        "export somewhere --format pickle",
        2,
        "--format must be a format of models, got 'pickle'. Known: safetensors, onnx, sklearn, torch",
    ),
    Case(
        "an export of no run",
        "export somewhere --format onnx",
        5,
        "somewhere",
    ),
    Case(
        "a text map that is none",
        "train p.toml --set data.texts.v=bert",
        2,
        r"data.texts.v must be one of minilm, words, got 'bert'",
        {"p.toml": OWN, "t.csv": TABLE},
    ),
    Case(
        "weights in another place",
        "data prepare minilm --out here",
        2,
        "--out must be left out for minilm, which has its own place",
    ),
    Case(
        "misspelt command",
        "trian",
        2,
        r"No such command 'trian'. Did you mean 'train'\? See `sumus --help`",
    ),
    Case(
        "ε without end",
        "average --local-epsilon 1e300 --steps 1 --parties 10",
        3,
        "is more than can be computed with. Use at most",
    ),
    Case(
        "a silo twice",
        "federation init f --silos a,b,a",
        2,
        "--silos must name every silo once, got 'a,b,a'",
    ),
    Case("misspelt subcommand", "data chek", 2, r"'chek'. Did you mean 'check'\? See"),
]

TABLES = [
    of_table("a bound by --set", TABLE, 0, "shape +2 numbers", change="data.bounds.x=[0,10]"),
    of_table(
        "a quantity as label", births(), 2, "more than 10 different numbers.*data.categories.y"
    ),
    of_table(
        "many labels",
        lines(f"A,{i},name-{i % 25}" for i in range(500)),
        2,
        "more than 20 different values",
        absent="name-",
    ),
    of_table(
        "a rare class",
        TABLE + "A,1,Huntington\n",
        2,
        "fewer than 5 records.*data.categories.y",
        absent="Huntington",
    ),
    of_table(
        "labels like no other",
        lines(f"A,{i},{i}.5" for i in range(8)),
        2,
        "a different one of its numbers",
        absent="7.5",
    ),
    of_table(
        "identifier as silo",
        lines(f"id-{i},1,{i % 2}" for i in EIGHTY),
        2,
        "silo_column 's' has another value",
        absent="id-",
    ),
    of_table("a column twice", TABLE, 2, "none of them twice", change="data.columns=['x','x']"),
    of_table(
        "bounds of labels",
        TABLE,
        2,
        "data.bounds.y must not bound the column of silos or labels",
        change="data.bounds.y=[0,1]",
    ),
    of_table("capitals", TABLE.replace("s,x,y", "S,x,Y"), 2, r"no column 's'. Did you mean 'S'\?"),
    of_table(
        "control characters",
        TABLE.replace("B,", "\x1b[2J,"),
        2,
        "value of record 2 holds control characters",
        absent="\x1b",
    ),
    of_table("packed with gzip", gzip.compress(TABLE.encode()), 0, "2 silos"),
    of_table("half of a gzip", gzip.compress(TABLE.encode())[:-20], 2, "is damaged"),
    of_table("workbook", b"PK\x03\x04rest", 2, "is a damaged zip archive. Get it again"),
    of_table(
        "old workbook", b"\xd0\xcf\x11\xe0\xa1\xb1", 2, "old or encrypted Excel workbook. Save the"
    ),
    of_table(
        "packed with xz",
        b"\xfd7zXZ\x00\x00",
        2,
        "its xz stream ends early or is broken. Get it again",
    ),
    of_table(
        "decimals of classes",
        TABLE.replace(",0\n", ",4.0\n").replace(",1\n", ",5\n"),
        0,
        "classes +2: 4.0, 5.0",
        change="data.categories.y=['4.0','5.0']",
    ),
    of_table(
        "two spellings",
        TABLE,
        2,
        "categories.y lists one value in two",
        change="data.categories.y=['1','1.0','0']",
    ),
    of_table(
        "a value is not shown",
        TABLE.replace("B,3,", "B,HIV,"),
        2,
        "the value of record 4",
        change="data.bounds.x=[0,9]",
        absent="HIV",
    ),
    of_table(
        "dates",
        column("born", [f"19{i:02}-01-{1 + i % 28:02}" for i in EIGHTY]),
        0,
        "warning.* born look like dates",
    ),
    of_table(
        "decimal commas",
        column("kg", [f"{i % 9},5" for i in EIGHTY]),
        0,
        "numbers in kg are written with a decimal comma",
    ),
    of_table(
        "identifiers",
        column("patient_id", list(EIGHTY)),
        0,
        "patient_id look like identifiers",
        absent="repeat",
    ),
    of_table(
        "repeated persons",
        column("patientId", [i // 2 for i in EIGHTY]),
        0,
        "values of patientId repeat",
    ),
    of_table("row numbers", column("row", list(EIGHTY)), 0, "row look like identifiers"),
    of_table(
        "names",
        column("who", [f"J{i} Doe" for i in EIGHTY]),
        0,
        "a text of its own in who",
        absent="Doe",
    ),
]

PLACES = [
    of_text(
        "home of nobody",
        OWN.replace("t.csv", "~nobody-at-all/t.csv"),
        2,
        "begins with the home folder of nobody",
    ),
    Case(
        "a drop-out of nobody",
        f"train {DIGITS} --drop 1:masked:99",
        2,
        "--drop must name rounds .* and silos 0 to 4, got '1:masked:99'",
    ),
    Case(
        "a drop-out too late",
        f"train {DIGITS} --drop 99999:masked:0",
        2,
        "--drop must name rounds 1 to",
    ),
    of_place("beside the plan", {"sub/t.csv": TABLE}, 0, "2 silos", absent="current folder"),
    of_place(
        "in the current folder",
        {"t.csv": TABLE},
        0,
        "t.csv is not beside the plan: the file of the current folder",
    ),
    of_place(
        "in both",
        {"t.csv": births(), "sub/t.csv": TABLE},
        0,
        "t.csv is the file beside the plan; .* another",
    ),
    of_place("nowhere", {}, 2, "'t.csv' does not exist. .* beside the plan"),
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("SUMUS_DATA", raising=False)
    monkeypatch.delenv("SUMUS_TRACEBACK", raising=False)


@pytest.mark.parametrize("case", [*PLANS, *COMMANDS, *TABLES, *PLACES], ids=lambda case: case.name)
def test_input_is_answered_with_its_words_and_exit_code(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in case.files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    code = main(case.command.split())
    shown = capsys.readouterr()
    said = shown.err if case.code else shown.out + shown.err
    assert (code, bool(re.search(case.words, said))) == (case.code, True), said
    assert not case.absent or not re.search(case.absent, shown.out + shown.err), said
    if code:
        assert len(re.findall(r"^error: ", said, re.MULTILINE)) == 1
        assert said.count("\n") == 1 + said.count("note: ")
    assert not list(Path().glob("runs/*"))


def test_no_value_of_a_refused_label_is_printed_or_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.toml").write_text(OWN)
    Path("t.csv").write_text(births())
    weights = {line.rpartition(",")[2] for line in births().splitlines()[1:]}
    for command in (
        "data check p.toml",
        "data check p.toml --json",
        "account p.toml",
        "plan p.toml",
        "train p.toml",
    ):
        assert main(command.split()) == 2
        shown = capsys.readouterr()
        assert not weights & set(re.findall(r"\d+", shown.out + shown.err))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["p.toml", "t.csv"]


def test_following_the_advice_about_rates_bins_and_epsilon_works(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ten = ["--set", "data.records_per_silo=[10,10,10,10,10]"]
    for key, wrong, more in (
        ("privacy.epsilon", "100", []),
        ("training.learning_rate", "1e9", []),
        ("federation.local_steps", "200", ten),
    ):
        assert main(["account", DIGITS, *more, "--set", f"{key}={wrong}"]) in (2, 3)
        advised = re.findall(r"at most ([\d.]*\d)", capsys.readouterr().err)[-1]
        assert main(["account", DIGITS, *more, "--set", f"{key}={advised}"]) == 0


@pytest.mark.deep
def test_train_looks_at_plan_and_table_before_it_imports_torch(tmp_path: Path) -> None:
    Path("p.toml").write_text(OWN)
    Path("t.csv").write_text(births())
    program = (
        "import sys; sys.modules['torch'] = None; from sumus.cli import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    for command, code, words in (
        (["train", "--help"], 0, "--resume"),
        (["train", "missing.toml"], 2, "must be a readable TOML file"),
        (["train", "p.toml"], 2, "more than 10 different numbers"),
        (["train", DIGITS, "--drop", "x"], 2, "--drop must read"),
    ):
        ended = subprocess.run(
            [sys.executable, "-c", program, *command], capture_output=True, text=True, check=False
        )
        assert (ended.returncode, words in ended.stdout + ended.stderr) == (code, True), (
            ended.stderr
        )


@pytest.mark.deep
def test_a_model_of_the_current_folder_is_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("my_small_model.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Sequential):\n    def __init__(self, in_features, "
        "classes):\n"
        "        super().__init__(nn.Linear(in_features, classes))\n"
    )
    monkeypatch.setattr(
        sys, "path", [entry for entry in sys.path if entry not in ("", str(Path.cwd()))]
    )
    plan = (
        '[data]\nname = "digits"\n[training]\nalgorithm = "single-step"\nmodel = '
        '"my_small_model:Net"\nbatch_size = 30.0\n'
    )
    Path("p.toml").write_text(plan + "[federation]\nrounds = 1\n")
    assert main(["train", "p.toml", "--no-report"]) == 0, capsys.readouterr().err


@pytest.mark.deep
def test_a_run_finds_its_table_again_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "p.toml").write_text(
        OWN + "records_per_silo = [40, 40]\n[federation]\nrounds = 1\n[privacy]\ndelta = 1e-3\n"
    )
    (tmp_path / "plans" / "t.csv").write_text(TABLE)
    assert main(["train", "plans/p.toml", "--no-report"]) == 0, capsys.readouterr().err
    (run,) = (tmp_path / "runs").iterdir()
    (tmp_path / "far").mkdir()
    monkeypatch.chdir(tmp_path / "far")
    assert main(["train", "--resume", str(run), "--no-report"]) == 0, capsys.readouterr().err
    assert main(["data", "check", str(run / "plan.toml")]) == 0, capsys.readouterr().err
    assert main(["plan", "../plans/p.toml", "--write", "q.toml"]) == 0
    assert main(["data", "check", "q.toml"]) == 0
    assert "current folder" not in capsys.readouterr().out


def test_names_of_columns_and_silos_are_text_and_not_markup(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("p.toml").write_text(OWN + "\n[federation]\nrounds = 1\n[privacy]\ndelta = 1e-3\n")
    Path("t.csv").write_text(TABLE.replace("s,x,y", "s,[/x],y").replace("A,", "[/b],"))
    assert main(["train", "p.toml", "--no-report"]) == 0, capsys.readouterr().err
    assert "[/x]" in capsys.readouterr().out


def test_a_file_that_may_not_be_read_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("p.toml").write_text(OWN)
    Path("t.csv").write_text(TABLE)
    opened = Path.open

    def forbidden(self: Path, *arguments: Any, **options: Any) -> Any:
        if self.name == "t.csv":
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", forbidden)
    assert main(["data", "check", "p.toml"]) == 2
    assert (
        capsys.readouterr().err
        == "error: data.path 't.csv' cannot be read: Permission denied. Give another file.\n"
    )


def test_accuracy_stands_beside_that_of_the_most_frequent_class(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("p.toml").write_text(OWN + "\n[federation]\nrounds = 1\n[privacy]\ndelta = 1e-3\n")
    Path("t.csv").write_text(
        "s,x,y\n" + "".join(f"{'AB'[i % 2]},{i / 2},{int(i % 10 == 0)}\n" for i in range(400))
    )
    assert main(["train", "p.toml", "--no-report"]) == 0
    out = capsys.readouterr().out
    assert (row := re.search(r"most frequent class +([\d.]+)%", out)) is not None
    assert 80.0 < float(row[1]) < 97.0  # nine in ten records have label 0
    assert (same := re.search(r"\naccuracy +[\d.]+% +([\d.]+)%", out)) is not None
    assert same[1] == row[1], "one constant answer has one number"
    assert main(["train", "p.toml", "--no-report", "--set", "evaluation.metrics=none"]) == 0
    assert "most frequent class" not in capsys.readouterr().out  # nothing is measured in the clear


def test_classes_that_no_plan_names_have_their_names_everywhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("p.toml").write_text(
        OWN.replace('"y"', '"again ?"') + "\n[federation]\nrounds = 1\n[privacy]\ndelta = 1e-3\n"
    )
    rows = "".join(f"{'AB'[i % 2]},{i / 2},{('ja', 'nein')[i % 10 > 0]}\n" for i in range(400))
    Path("t.csv").write_text("s,x,again ?\n" + rows)
    assert main(["train", "p.toml"]) == 0
    shown = capsys.readouterr().out
    assert "AUROC for class nein" in shown
    assert "average precision for class nein" in shown
    (run,) = Path("runs").iterdir()
    page = (run / "report.html").read_text(encoding="utf-8")
    for name in ("ja", "nein"):
        assert f'<th scope="row">{name}</th>' in page
    assert '<th scope="row">AUROC for class nein</th>' in page
    assert "data.categories.&#34;again ?&#34; declares them" in page
    assert main(["export", str(run), "--format", "card"]) == 0
    (card,) = Path().glob("*.card.md")
    assert "| AUROC for class nein |" in card.read_text(encoding="utf-8")
    capsys.readouterr()
    assert main(["train", "p.toml", "--no-report", "--json", "--max-epsilon", "inf"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["measures"]["auroc"] == "AUROC for class nein"
    assert set(told["measures"]) <= set(told["metrics"])


def test_a_spread_of_nothing_is_said_in_words() -> None:
    from sumus.tasks import Classification

    spread = Classification().spread
    assert spread.text(0.0) == "none beyond chance"
    assert spread.text(0.0, 0.03) == "none beyond chance, 0.0% ± 3.0%"
    assert spread.text(0.02) == "2.0%"
