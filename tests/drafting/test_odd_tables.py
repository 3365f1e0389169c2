"""Odd tables through `sumus new`: what is noticed is named, and handled or left out by name; the plan
is one that `sumus plan` accepts.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from sumus.cli import main
from sumus.plan import TrainingPlan

RNG = random.Random(16)
ROWS = 240
DAYS = [date(2020, 1, 1) + timedelta(days=5 * row) for row in range(ROWS)]
NOTES = [
    "seen on the ward, feels well",
    "came back with a cough today",
    "no change since last time",
]

Values = dict[str, list[object]]


def basic() -> Values:
    """Four silos, a number, a text, two classes."""
    rows = range(ROWS)
    return {
        "site": [f"s{row % 4}" for row in rows],
        "age": [RNG.randrange(20, 90) for _ in rows],
        "ward": [RNG.choice(["north", "south", "east"]) for _ in rows],
        "y": [RNG.choice(["no", "yes"]) for _ in rows],
    }


def as_csv(values: Values, separator: str = ",") -> str:
    def cell(value: object) -> str:
        text = "" if value is None else str(value)
        quoted = text.replace('"', '""')
        return f'"{quoted}"' if any(each in text for each in (separator, '"', "\n")) else text

    lines = [
        separator.join(map(cell, values)),
        *(separator.join(map(cell, row)) for row in zip(*values.values(), strict=True)),
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Odd:
    """A table, what is asked, and what the plan must say or the error must be."""

    name: str
    content: Callable[[], str | bytes]
    plan: tuple[str, ...] = ()
    printed: str = ""
    absent: str = ""
    options: str = ""
    code: int = 0
    file: str = "t.csv"


def changed(**columns: list[object]) -> Callable[[], str]:
    def make() -> str:
        return as_csv(basic() | columns)

    return make


def commas() -> list[object]:
    return [f"{RNG.randrange(400, 900) / 10:.1f}".replace(".", ",") for _ in range(ROWS)]


def typed() -> bytes:
    values = basic()
    table = pyarrow.table(
        {
            "site": values["site"],
            "age": pyarrow.array(values["age"], pyarrow.int32()),
            "ward": pyarrow.array(values["ward"]).dictionary_encode(),
            "smokes": [row % 3 == 0 for row in range(ROWS)],
            "admitted": pyarrow.array(DAYS, pyarrow.date32()),
            "y": values["y"],
        }
    )
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink)
    return bytes(sink.getvalue())


def semicolons() -> str:
    return as_csv(basic() | {"kg": commas()}, ";")


TABLES = [
    Odd("decimal commas", semicolons, (r'decimal_comma = \["kg"\]', r'"kg", +# decimal comma')),
    Odd(
        "identifiers, dates and sentences",
        changed(
            caseId=list(range(1000, 1000 + ROWS)),
            admitted=list(DAYS),
            note=[f"{RNG.choice(NOTES)} {row}" for row in range(ROWS)],
            email=[f"p{row}@example.org" for row in range(ROWS)],
        ),
        (
            r"- caseId \(identifier\)",
            r"- admitted \(date\)",
            r"- note \(free text\)",
            r"- email \(identifier\)",
        ),
    ),
    Odd(
        "insurance numbers",
        changed(insurance=RNG.sample(range(100_000_000, 999_999_999), ROWS)),
        (r"- insurance \(identifier\)",),
    ),
    Odd(
        "constant and empty columns",
        changed(country=["AT"] * ROWS, remark=[None] * ROWS),
        (r"- country \(constant\)", r"- remark \(constant\)"),
    ),
    Odd(
        "numbers with words among them",
        changed(lab=[*(str(row % 17) for row in range(ROWS - 3)), "low", "high", "low"]),
        (r"- lab \(mixed\): some of its values are no numbers",),
    ),
    Odd(
        "missing values",
        changed(lab=[None if row % 3 else row % 11 for row in range(ROWS)]),
        (r'"lab", +# number',),
        printed=r"values are missing in lab: a feature of its own says so \(said here only\)",
    ),
    Odd(
        "people with several rows",
        changed(patient_id=[f"P{row // 3}" for row in range(ROWS)]),
        (r'unit = "person"', r'person_column = "patient_id"'),
        printed=r"Persons are protected with all rows, by column patient_id",
    ),
    Odd(
        "people with several rows, protected row by row",
        changed(patient_id=[f"P{row // 3}" for row in range(ROWS)]),
        (r'unit = "record"', r"- patient_id \(identifier\)"),
        options="--unit record",
    ),
    Odd(
        "people of whom some have no identifier",
        changed(patient_id=[f"P{row // 3}" if row % 5 else None for row in range(ROWS)]),
        (r'unit = "record"', r"- patient_id \(identifier\)"),
    ),
    Odd(
        "a number to learn, bounds known",
        changed(y=[RNG.randrange(0, 5000) for _ in range(ROWS)]),
        (r'task = "regression"', r"y = \[0.0, 5000.0\]"),
        options="--bounds y=0,5000",
    ),
    Odd(
        "a number with decimal commas to learn, bounds known",
        changed(y=[f"{RNG.randrange(10, 60)},{RNG.randrange(10, 99)}" for _ in range(ROWS)]),
        (r'task = "regression"', r'decimal_comma = \["y"\]', r"y = \[10.0, 60.0\]"),
        options="--bounds y=10,60",
    ),
    Odd(
        "a number with decimal commas to learn",
        changed(y=[f"{RNG.randrange(10, 60)},{RNG.randrange(10, 99)}" for _ in range(ROWS)]),
        printed=r"--bounds must say between which public numbers y lies \(--task regression\)\. Give",
        code=2,
    ),
    Odd(
        "a number of few values to learn, bounds known",
        changed(y=[RNG.randrange(0, 5) for _ in range(ROWS)]),
        (r'task = "regression"',),
        options="--bounds y=0,5",
    ),
    Odd(
        "points in a column of decimal commas",
        changed(age=[f"{row % 50},5" if row else "27.310" for row in range(ROWS)]),
        (r"- age \(mixed\)",),
    ),
    Odd(
        "people in several silos",
        changed(patient_id=[f"P{row // 3}" for row in range(ROWS)]),
        printed=r"persons are in several silos, .* privacy\.silos_per_person = \d+ protects",
        absent="are in several silos",
    ),
    Odd(
        "latin-1",
        lambda: as_csv({**basic(), "größe": basic()["age"]}).encode("latin-1"),
        (r'encoding = "latin-1"', r'"größe"'),
        options="--encoding latin-1",
    ),
    Odd(
        "visits to count",
        changed(y=[RNG.randrange(0, 9) for _ in range(ROWS)]),
        (r'task = "counts"', r'model = "linear"'),
        options="--task counts --bounds y=0,20",
    ),
    Odd(
        "time and event",
        changed(
            months=[RNG.randrange(1, 40) for _ in range(ROWS)],
            died=[RNG.choice([0, 1]) for _ in range(ROWS)],
        ),
        (r'task = "survival"', r"intervals = \[6.0, 12.0, 24.0\]"),
        options="--time months --event died --intervals 6,12,24",
    ),
    Odd(
        "three classes",
        changed(y=[RNG.choice(["a", "b", "c"]) for _ in range(ROWS)]),
        (r'model = "softmax"',),
    ),
    Odd(
        "a rare class",
        changed(y=["yes" if row % 20 == 0 else "no" for row in range(ROWS)]),
        printed=r"the rarest class of y has 5\.0% of the rows: read AUROC",
        absent="rare",
    ),
    Odd(
        "names with quotes, spaces, Greek and a line break",
        lambda: as_csv(
            {**basic(), **{name: basic()["age"] for name in ('so "called"', "age\n[x]", "ÿ α")}}
        ),
        (r'^  "so \\"called\\"",', r'^  "ÿ α",', r'- "age\\n\[x\]" \(number\): no plan can hold'),
    ),
    Odd("tabs and a byte order mark", lambda: b"\xef\xbb\xbf" + as_csv(basic(), "\t").encode()),
    Odd("gzip", lambda: gzip.compress(as_csv(basic()).encode()), file="t.csv.gz"),
    Odd(
        "Parquet with types of its own",
        typed,
        (
            r"- admitted \(date\)",
            r'"smokes", +# flag: yes or no',
            r'"ward", +# category: a feature for each',
        ),
        file="t.parquet",
    ),
    Odd(
        "one silo",
        changed(site=["alone"] * ROWS),
        printed=r"there is one silo: nobody else's noise",
    ),
    Odd(
        "two hundred columns",
        lambda: as_csv({**basic(), **{f"c{number}": basic()["age"] for number in range(200)}}),
        (r'algorithm = "convex-pass"', r'"c199", +# number'),
    ),
    Odd(
        "a header and nothing else",
        lambda: "site,age,y\n",
        printed="holds columns but no records",
        code=2,
    ),
    Odd("an empty file", lambda: "", printed="is empty. It needs a header", code=2),
    Odd(
        "identifiers alone",
        lambda: as_csv({key: basic()[key] for key in ("site", "y")} | {"id": list(range(ROWS))}),
        printed=r"no column that can be a feature besides site, y: id \(identifier\)",
        code=2,
    ),
    Odd(
        "labels that are missing",
        changed(y=["yes" if row % 2 else None for row in range(ROWS)]),
        printed="data.label_column 'y' has no value in 120 records",
        code=2,
    ),
    Odd(
        "an identifier for the silos",
        changed(site=[f"s{row}" for row in range(ROWS)]),
        printed="another value in most records, like an identifier",
        code=2,
    ),
    Odd(
        "one class",
        changed(y=["no"] * ROWS),
        printed="must hold between 2 and 1000 classes, got 1",
        code=2,
    ),
]


@pytest.mark.deep
@pytest.mark.parametrize("odd", TABLES, ids=lambda odd: odd.name)
def test_it_is_noticed_named_and_handled(
    odd: Odd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    content = odd.content()
    Path(odd.file).write_bytes(content if isinstance(content, bytes) else content.encode())
    label = () if "--time" in odd.options else ("--label", "y")
    code = main(["new", odd.file, "--silo", "site", *label, *odd.options.split()])
    out, err = capsys.readouterr()
    assert code == odd.code, err
    assert re.search(odd.printed, " ".join((out + err).split())), out + err
    if odd.code:
        assert err.count("\n") == 1, "an error is one line"
        assert not Path("plan.toml").exists()
        return
    text = Path("plan.toml").read_text(encoding="utf-8")
    for wanted in odd.plan:
        assert re.search(wanted, text, re.MULTILINE), f"{wanted}\n{text}"
    assert not odd.absent or odd.absent not in text
    TrainingPlan.load("plan.toml")
    assert main(["account", "plan.toml"]) == 0
    assert "proved" in capsys.readouterr().out
