"""Whatever is wrong with rows, run or module is one line; what is odd about rows is counted and
said, never guessed.
"""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sumus.books import RunFolder
from sumus.cli import main
from sumus.errors import DataError, PlanError
from sumus.plan import TrainingPlan
from sumus.predicting import Model
from sumus.runs import RunOptions, Simulation, describe, train
from support.predicted_table import plan_of, write_rows, write_table
from support.small_data import small_data

ROWS = [
    {"age": "30", "dose": "5", "sex": "f", "word": "w1"},
    {"age": "150", "dose": "", "sex": "q", "word": "w9"},
    {"age": "-1", "dose": "2e6", "sex": "", "word": ""},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a table."""
    folder = tmp_path_factory.mktemp("bad")
    write_table(folder / "t.csv")
    plan = plan_of(
        folder / "t.csv",
        data=(
            'label_column = "sick"\nbounds = {age = [0, 120]}\n'
            'categories = {sex = ["f", "m", "x"], sick = ["no", "yes"]}'
        ),
        federation="rounds = 1",
    )
    options = RunOptions(root=folder / "runs", ledger=False, threads=1)
    return train(plan, options=options, simulation=Simulation(3)).path


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """The same run, for changing it."""
    return Path(shutil.copytree(run, tmp_path / "run"))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "new.csv", ROWS)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main(["predict", *map(str, arguments)])
    told = capsys.readouterr()
    assert code in (2, 5), told.err
    assert told.out == ""
    assert len(told.err.splitlines()) == 1, told.err
    return code, told.err


# -- rows


def test_odd_rows_are_predicted_counted_and_said(run: Path, table: Path, tmp_path: Path, capsys):
    out = tmp_path / "out.csv"
    assert main(["predict", str(run), str(table), "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["rows"], told["outside"], told["unlisted"], told["missing"]) == (3, 2, 1, 2)
    assert told["outside_of"] == {"age": 2, "dose": 1}
    assert told["unlisted_of"] == {"sex": 1}
    assert told["missing_of"] == {"dose": 1, "sex": 1, "word": 1}
    assert "public seed" in told["void"]
    header, *lines = out.read_text().splitlines()
    assert header == "prediction,probability:no,probability:yes"
    assert len(lines) == 3


def test_what_is_odd_is_said_in_words(run: Path, table: Path, capsys):
    assert main(["predict", str(run), str(table)]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("prediction,probability:no,probability:yes\n")
    assert "NO GUARANTEE" in told.err
    assert "2 rows outside the public bounds, counted as the nearest bound" in told.err
    assert "1 row with a value that training had no category for" in told.err
    assert "2 rows without a value" in told.err


def test_predict_in_python_warns_with_counts_of_rows_unlike_training(run: Path):
    model = Model.of_run(run)
    with pytest.warns(
        UserWarning, match=r"of 3 rows: 2 rows outside .*; 1 row with a value"
    ) as told:
        model.predict(ROWS)
    assert len(told) == 1
    with pytest.warns(UserWarning, match="of 3 rows"):
        model.predict_proba(ROWS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(ROWS[:1])


def test_a_value_beyond_the_bounds_counts_as_the_bound(run: Path):
    model = Model.of_run(run)
    said = model.predictions([ROWS[0] | {"age": age} for age in ("-5", "0", "120", "900")])
    assert said.counts.outside == 2
    shares = said["probability:yes"]
    assert shares[0] == shares[1]
    assert shares[2] == shares[3]
    assert shares[1] != shares[2]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("age,dose,sex\n1,2,f\n", "no column 'word', which the model needs"),
        ("Age,dose,sex,word\n1,2,f,w\n", "Is it 'Age'? Rename it"),
        (
            "age,dose,sex,word\n1,2,f,w\nelderly,2,f,w\n",
            "column age: the value of record 2 is not",
        ),
        ("age,dose,sex,word\n1,much,f,w\n", "column dose: the value of record 1 is not a number"),
        ("age,dose,sex,word\n", "no rows: there is nothing to predict"),
        ("", "is empty"),
        ("age,dose,sex,word\n1,2\n", "record 1 has 2 values"),
    ],
)
def test_tables_that_cannot_be_predicted(run: Path, tmp_path: Path, capsys, content, words):
    file = tmp_path / "new.csv"
    file.write_text(content)
    code, told = refused(capsys, run, file)
    assert code == 2
    assert words in told
    assert "elderly" not in told  # a value is nobody's business
    assert "much" not in told


def test_additional_columns_are_said_and_left_alone(run: Path, tmp_path: Path, capsys):
    plain = write_rows(tmp_path / "plain.csv", ROWS)
    more = write_rows(tmp_path / "more.csv", [{"name": "n"} | row | {"sick": "?"} for row in ROWS])
    for table, out in ((plain, "a.csv"), (more, "b.csv")):
        assert main(["predict", str(run), str(table), "--out", str(tmp_path / out)]) == 0
    assert "not used: sick (the label), name" in capsys.readouterr().out
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_columns_may_be_kept_in_front(run: Path, tmp_path: Path, capsys):
    rows = [{"id": str(7 + at)} | row for at, row in enumerate(ROWS)]
    table = write_rows(tmp_path / "new.csv", rows)
    out = tmp_path / "out.parquet"
    assert main(["predict", str(run), str(table), "--out", str(out), "--keep", "id"]) == 0
    assert "not used" not in capsys.readouterr().out
    from sumus.data import ReadingRules, read_table

    columns, _ = read_table(out, ReadingRules())
    assert list(columns) == ["id", "prediction", "probability:no", "probability:yes"]
    assert [columns["id"].values[code] for code in columns["id"].codes] == ["7", "8", "9"]
    assert "no column 'nobody'" in refused(capsys, run, table, "--keep", "nobody")[1]


@pytest.mark.filterwarnings("ignore:of 3 rows")
def test_frames_mappings_and_rows_give_the_same(run: Path, table: Path):
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    model = Model.of_run(run)
    rows = [{key: value or None for key, value in row.items()} for row in ROWS]
    said = [
        model.predict_proba(each)
        for each in (
            rows,
            {name: [row[name] for row in rows] for name in rows[0]},
            pandas.read_csv(table),
            polars.read_csv(table),
            polars.read_csv(table).to_arrow(),
        )
    ]
    for other in said[1:]:
        assert np.array_equal(said[0], other)
    assert model.predict(rows).tolist() == model.predictions(rows)["prediction"].tolist()


def test_an_array_is_no_table(run: Path):
    with pytest.raises(DataError, match="trained on the columns age, dose, sex, word, got ndarray"):
        Model.of_run(run).predict(np.zeros((2, 4)))


# -- runs


def test_an_unfinished_run_has_no_model(copy: Path, table: Path, capsys):
    journal = copy / "journal.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
    (copy / "summary.json").unlink()
    code, told = refused(capsys, copy, table)
    assert (code, "is not finished (1 of 1 rounds)" in told) == (5, True)


def finished_anew(path: Path, facts: bytes | None) -> None:
    """End a run as another version would have."""
    journal, summary = path / "journal.jsonl", RunFolder.open(path).summary or {}
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
    kept = {key: value for key, value in summary.items() if key not in ("model_facts", "finished")}
    with RunFolder.open(path, resume=True) as run:
        run.finish(kept, facts)


def test_a_run_of_an_earlier_version_says_so(copy: Path, table: Path, capsys):
    finished_anew(copy, None)
    code, told = refused(capsys, copy, table)
    assert (code, "which wrote no model.json" in told) == (5, True)


def test_a_run_of_a_later_version_says_so(copy: Path, table: Path, capsys):
    facts = json.loads((copy / "model.json").read_text())
    finished_anew(copy, json.dumps(facts | {"format": 2, "sumus": "9.9"}).encode())
    code, told = refused(capsys, copy, table)
    assert (code, "has format 2 of a model's facts" in told and "(sumus 9.9)" in told) == (5, True)


@pytest.mark.parametrize("facts", [b"{", b"[]", b'{"format": 1}', b'{"format": 1, "more": 2}'])
def test_facts_that_no_version_writes_are_refused(copy: Path, table: Path, capsys, facts):
    finished_anew(copy, facts)
    assert refused(capsys, copy, table)[0] == 5


def test_a_folder_that_is_no_run_and_a_run_without_its_files(copy: Path, table: Path, capsys):
    assert "is not a run folder" in refused(capsys, table.parent, table)[1]
    (copy / "model.json").unlink()
    assert "model.json" in refused(capsys, copy, table)[1]


def test_a_description_has_no_model(run: Path, table: Path, tmp_path: Path, capsys):
    plan = plan_of(run.parent.parent / "t.csv", data='label_column = "sick"')
    options = RunOptions(root=tmp_path / "runs", ledger=False, threads=1)
    described = describe(plan, options=options, simulation=Simulation(1))
    assert "has described records" in refused(capsys, described.path, table)[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.csv"], "does not exist"),
        (["new.csv", "--out", "out.txt"], "End it in .csv or .parquet"),
        (["new.csv", "--out", "new.csv"], "is the table itself"),
        (["new.csv", "--out", "nowhere/out.csv"], "there is no folder nowhere"),
        (["new.csv", "--json"], "must stand beside --out"),
        (["new.csv", "--out", "there.csv"], "there.csv exists. Name another file, or replace it"),
        (["new.csv", "--encoding", "latin1"], "--encoding must be an encoding of text files"),
        (["new.csv", "--model", "nets:Net"], "is for runs whose model was given in Python"),
    ],
)
def test_what_is_asked_for_wrongly(run, table, tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.csv").write_text("mine")
    told = refused(capsys, run, *arguments)[1]
    assert words in told
    assert "got True" not in told
    assert (tmp_path / "there.csv").read_text() == "mine"
    assert not (tmp_path / "out.txt").exists()


def test_a_result_that_is_there_is_replaced_when_forced(run: Path, table: Path, tmp_path: Path):
    out = tmp_path / "there.csv"
    out.write_text("mine")
    assert main(["predict", str(run), str(table), "--out", str(out), "--force"]) == 0
    assert out.read_text().startswith("prediction")


def test_a_table_may_have_another_encoding_than_the_run(tmp_path: Path, capsys):
    rows = "".join(f"{'AB'[i % 2]},{i % 7},{(i // 2) % 2}\n" for i in range(80))
    text = "s,größe,y\n" + rows
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    plan = TrainingPlan.from_table(
        {
            "privacy": {"epsilon": 3.0, "delta": 1e-3},
            "federation": {"rounds": 1, "local_steps": 2},
            "training": {"model": "logistic"},
            "data": {
                "path": str(tmp_path / "t.csv"),
                "encoding": "latin-1",
                "silo_column": "s",
                "label_column": "y",
                "bounds": {"größe": [0, 7]},
            },
        }
    )
    options = RunOptions(root=tmp_path / "runs", ledger=False, threads=1)
    run = train(plan, options=options, simulation=Simulation(3)).path
    new = tmp_path / "new.csv"
    new.write_text(text, encoding="utf-8")
    assert "has no column 'größe' if it is read as latin-1" in refused(capsys, run, new)[1]
    assert main(["predict", str(run), str(new), "--encoding", "UTF-8"]) == 0
    expected = capsys.readouterr().out
    assert expected.count("\n") == 81
    new.write_text(text, encoding="utf-8-sig")  # its mark says how it is written
    assert main(["predict", str(run), str(new)]) == 0
    assert capsys.readouterr().out == expected


# -- arrays and modules of one's own

NETS = """
from torch import nn

class Net(nn.Module):
    def __init__(self, in_features=6, classes=3):
        super().__init__()
        self.hidden, self.head = nn.Linear(in_features, 4), nn.Linear(4, classes)
    def forward(self, x):
        return {"seen": x, "scores": self.head(self.hidden(x).tanh())}

class Other(nn.Module):
    def __init__(self, in_features=6, classes=3):
        super().__init__()
        self.head = nn.Linear(in_features, classes)
    def forward(self, x):
        return self.head(x)
"""


@pytest.mark.deep
def test_a_module_of_ones_own(tmp_path: Path, monkeypatch, capsys):
    """Given in Python it must be given again, as a module or by its importable name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "nets_of_a_test.py").write_text(NETS)
    import nets_of_a_test  # type: ignore[import-not-found]

    data = small_data()
    plan = TrainingPlan.from_toml(
        '[training]\nalgorithm = "dp-sgd"\nsampling_rate = 0.5\nlogits = "scores"\n'
        "[federation]\nrounds = 2\n[privacy]\nepsilon = 8.0\ndelta = 1e-4\n"
    )
    torch.manual_seed(1)
    run = train(
        plan,
        model=nets_of_a_test.Net(),
        silos=data,
        options=RunOptions(root=tmp_path / "runs", ledger=False, threads=1),
        simulation=Simulation(1),
    )
    x = np.concatenate([silo.test.x for silo in data.silos])
    y = np.concatenate([silo.test.y for silo in data.silos])
    again = Model.of_run(run.path, "nets_of_a_test:Net")
    said = again.predict(x)
    assert np.array_equal(said, run.model.predict(x))
    assert np.mean(said == y) == pytest.approx(run.metrics["accuracy"])
    assert said.dtype == np.int64  # classes that are numbered stay numbers
    assert np.array_equal(Model.of_run(run.path, nets_of_a_test.Net()).predict(x), said)
    assert set(again(torch.zeros(1, 6))) == {"seen", "scores"}
    table = tmp_path / "x.csv"
    np.savetxt(table, x, delimiter=",", comments="", header=",".join(f"x{i}" for i in range(6)))
    assert main(["predict", str(run.path), str(table), "--model", "nets_of_a_test:Net"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [int(line.partition(",")[0]) for line in lines] == said.tolist()
    for given, words in (
        ([], "must be given: the run trained a nets_of_a_test.Net"),
        (["--model", "nets_of_a_test:Nobody"], 'must be an importable "package.module:Name"'),
        (["--model", "no_such_module:Net"], 'must be an importable "package.module:Name"'),
        (["--model", "nets"], 'must be an importable "package.module:Class"'),
        (["--model", "nets_of_a_test:Other"], "must have the parameters of the run's model"),
    ):
        assert words in refused(capsys, run.path, table, *given)[1]
    with pytest.raises(PlanError, match="must have the parameters of the run's model"):
        Model.of_run(run.path, nn.Sequential(nn.Linear(6, 3)))
    for wrong, words in (
        (np.zeros((2, 5)), "must have shape"),
        (np.full((2, 6), np.nan), "not finite"),
        (np.zeros((0, 6)), "no records"),
        (np.array([["a"] * 6]), "arrays of numbers"),
        ({"x0": [1.0]}, "whose columns go by x0 … x5"),
    ):
        with pytest.raises(DataError, match=words):
            run.model.predict(wrong)
