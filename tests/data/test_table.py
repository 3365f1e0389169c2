"""Files of one's own: public encodings against a naive reading, what is assumed is said, faults are
one line.
"""

from __future__ import annotations

import csv
import itertools
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sumus.data import load, load_silo, public_facts, write_patients
from sumus.data.columns import KNOTS, hats
from sumus.data.synthetic import HOSPITALS
from sumus.errors import DataError, PlanError, SumusError
from sumus.plan import TrainingPlan

HEADER = ["hospital", "age", "ward", "label"]
# where files are dated to a few milliseconds, two of one size would pass for the same
CLOCK = itertools.count()


def _plan(path: Path, **data: object) -> TrainingPlan:
    entries = {
        "path": str(path),
        "silo_column": "hospital",
        "label_column": "label",
        "test_fraction": 0.0,
        **data,
    }
    return TrainingPlan.from_table({"data": entries})


def _table(folder: Path, rows: list[list[object]], header: list[str] | None = None) -> Path:
    path = folder / "own.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header or HEADER, *rows])
    now = next(CLOCK)
    os.utime(path, ns=(now, now))
    return path


def _records_by_silo(plan: TrainingPlan) -> dict[str, dict[tuple[float, ...], int]]:
    """Each silo's encoded training records with their label, as sets that ignore order."""
    data = load(plan)
    return {
        silo.name: {
            tuple(x.tolist()): int(y) for x, y in zip(silo.train.x, silo.train.y, strict=True)
        }
        for silo in data.silos
    }


ROWS: list[list[object]] = [
    ["A", 30, "x", 0],
    ["A", "", "y", 1],
    ["B", 90, "", 1],
    ["B", 150, "z", 0],
]


def test_declared_columns_are_scaled_and_one_hot(tmp_path):
    plan = _plan(_table(tmp_path, ROWS), bounds={"age": [0, 100]}, categories={"ward": ["x", "y"]})
    # age scaled from [0, 100] to [−1, 1] and clipped, missing flag; ward x, ward y, other or
    # missing
    assert _records_by_silo(plan) == {
        "A": {(np.float32(-0.4).item(), 0, 1, 0, 0): 0, (0, 1, 0, 1, 0): 1},
        "B": {(np.float32(0.8).item(), 0, 0, 0, 1): 1, (1, 0, 0, 0, 1): 0},
    }


def test_nothing_but_path_silo_and_label_just_works_and_says_what_it_assumed(tmp_path):
    path = write_patients(tmp_path / "patients.csv", records=400)
    plan = TrainingPlan.from_table(
        {"data": {"path": str(path), "silo_column": "hospital", "label_column": "readmitted"}}
    )
    data, facts = load(plan), public_facts(plan)
    assert facts == data.facts()
    assert facts.silo_names == HOSPITALS
    assert data.labels.names == ("no", "yes")
    assert sum(len(silo) for silo in data.silos) == 400
    for word in (
        "numbers in age",
        "text in sex, ward, smoker",
        "6 silos",
        "classes were read off column readmitted",
        "number",
    ):
        assert any(word in line for line in data.assumptions), word
    assert all(np.isfinite(silo.train.x).all() for silo in data.silos)


def test_a_fully_declared_table_assumes_only_the_record_counts(tmp_path):
    categories = {"ward": ["x", "y", "z"], "label": ["0", "1"], "hospital": ["A", "B"]}
    plan = _plan(_table(tmp_path, ROWS), bounds={"age": [0, 100]}, categories=categories)
    (line,) = load(plan).assumptions
    assert "record counts" in line
    assert public_facts(plan).assumptions == (line,)
    bounded = plan.replace("data", records_per_silo=(5, 5))
    assert load(bounded).assumptions == public_facts(bounded).assumptions == ()


def test_what_is_said_about_a_declared_identifier_does_not_hang_on_its_values(tmp_path):
    """Whether the values of a declared column repeat is a fact about two records."""
    once = [("A", "1", "0"), ("B", "2", "1"), ("A", "3", "1"), ("B", "4", "0")]
    lines = []
    for number, rows in enumerate((once, [*once, ("A", "1", "0")])):
        path = tmp_path / f"table{number}.csv"
        path.write_text("hospital,patient_id,label\n" + "\n".join(map(",".join, rows)) + "\n")
        categories = {"label": ["0", "1"], "hospital": ["A", "B"]}
        lines.append(
            load(_plan(path, bounds={"patient_id": [0, 9]}, categories=categories)).assumptions
        )
    assert lines[0] == lines[1]
    assert any("not a person" in line for line in lines[0])


def test_a_list_that_fits_no_value_is_pointed_out(tmp_path):
    data = load(_plan(_table(tmp_path, ROWS), columns=["ward"], categories={"ward": ["p", "q"]}))
    assert any("no value of ward is in its list" in line for line in data.remarks)
    # one record more would take it off the record of a run
    assert not any("in its list" in line for line in data.assumptions)
    assert all((silo.train.x == [0, 0, 1]).all() for silo in data.silos)


cells = st.one_of(st.integers(-(10**30), 10**30), st.floats(), st.just(""), st.just("NA"))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    ages=st.lists(cells, min_size=2, max_size=12),
    wards=st.lists(st.sampled_from(["x", "y", "", "öß", "a,b", 'q"']), min_size=12, max_size=12),
)
def test_the_encoding_of_a_record_does_not_depend_on_other_records(tmp_path, ages, wards):
    """Attack: learn about the removed record from how the remaining ones are encoded."""
    rows = [
        ["A", age, ward, index % 2]
        for index, (age, ward) in enumerate(zip(ages, wards, strict=False))
    ]
    rows += [["A", 1, "x", 0], ["A", 2, "y", 1]]
    declared = {"categories": {"label": ["0", "1"]}}
    everyone = load(_plan(_table(tmp_path, rows), **declared))
    without_first = load(_plan(_table(tmp_path, rows[1:]), **declared))
    assert everyone.shape == without_first.shape

    def sorted_rows(x: np.ndarray) -> list[tuple[float, ...]]:
        return sorted(tuple(row.tolist()) for row in x)

    left = sorted_rows(everyone.silos[0].train.x)
    for row in sorted_rows(without_first.silos[0].train.x):
        left.remove(row)
    assert len(left) == 1


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(
        st.lists(st.text('ab01.-e,;"\n é', max_size=4), min_size=4, max_size=4), max_size=8
    )
)
def test_any_table_loads_or_gives_a_declared_error(tmp_path, rows):
    complaint = ""
    try:
        data = load(_plan(_table(tmp_path, rows)))
        assert sum(len(silo) for silo in data.silos) == len(rows)
        assert all(np.isfinite(silo.train.x).all() for silo in data.silos)
        # 2 columns, norm 1 each
        assert all(
            np.linalg.norm(silo.train.x, axis=1).max() <= math.sqrt(2) + 1e-5 for silo in data.silos
        )
    except SumusError as error:
        complaint = str(error)
    assert "\n" not in complaint


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_hats_share_a_value_between_its_two_knots(values):
    features = hats(np.array(values), KNOTS)
    assert np.allclose(features.sum(axis=1), 1.0)
    assert ((features > 0).sum(axis=1) <= 2).all()
    # piecewise linear functions reproduce the value itself
    rebuilt = features.astype(np.float64) @ KNOTS
    assert np.allclose(rebuilt, np.clip(values, KNOTS[0], KNOTS[-1]), rtol=1e-5, atol=1e-6)


def test_huge_and_infinite_numbers_saturate(tmp_path):
    rows = [
        ["A", "9" * 400, "x", 0],
        ["A", "-1e400", "x", 1],
        ["A", "inf", "x", 1],
        ["A", str(2**70), "x", 0],
    ]
    x = load(_plan(_table(tmp_path, rows), columns=["age"])).silos[0].train.x
    assert sorted(map(tuple, x[:, [0, len(KNOTS) - 1]].tolist())) == [
        (0, 1),
        (0, 1),
        (0, 1),
        (1, 0),
    ]


def test_a_missing_value_of_an_undeclared_column_only_sets_its_flag(tmp_path):
    path = _table(tmp_path, [["A", "", "", 0], ["A", "", "", 1], ["B", 1, "x", 0]])
    ages, wards = (load(_plan(path, columns=[name])).silos[0].train.x for name in ("age", "ward"))
    for features in (ages, wards):
        assert (features[:, -1] == 1).all()
        assert (features[:, :-1] == 0).all()


def test_hashed_text_tells_values_apart(tmp_path):
    words = [f"word-{index}" for index in range(200)]
    path = _table(tmp_path, [["A", 1, word, index % 2] for index, word in enumerate(words)])
    x = load(_plan(path, columns=["ward"])).silos[0].train.x
    assert np.allclose(np.linalg.norm(x, axis=1), 1.0)
    # 19,900 pairs collide in both groups with probability 1/1024 each, about 20; the hash is fixed,
    # so this cannot flake
    assert len(np.unique(x, axis=0)) > 170


@pytest.mark.parametrize(
    ("rows", "changes", "complaint"),
    [
        (ROWS, {"label_column": "lable"}, "Did you mean 'label'?"),
        (ROWS, {"silo_column": "hospitals"}, "Did you mean 'hospital'?"),
        (ROWS, {"silo_column": "zzz"}, "Columns: hospital, age, ward, label"),
        (ROWS, {"bounds": {"agee": [0, 1]}}, "Did you mean 'age'?"),
        (ROWS, {"categories": {"wart": ["x"]}}, "Did you mean 'ward'?"),
        (ROWS, {"columns": ["age", "wards"]}, "Did you mean 'ward'?"),
        (ROWS, {"columns": ["label"]}, "must not name the silo or label column"),
        (ROWS, {"label_column": "hospital"}, "must differ"),
        (ROWS, {"bounds": {"ward": [0, 1]}}, "the value of record 1 is not a number"),
        (
            ROWS,
            {"categories": {"label": ["0", "2"]}},
            "the value of record 2 is not in data.categories.label",
        ),
        ([], {}, "holds columns but no records"),
        (
            ROWS,
            {"categories": {"hospital": ["A"]}},
            "the value of record 3 is not in data.categories.hospital",
        ),
        (
            ROWS,
            {"records_per_silo": [2, 1], "counts": "public"},
            "silo 'B' has 2 training records, the plan states 1 as its public count",
        ),
        (
            ROWS,
            {"records_per_silo": [2, 3], "counts": "public"},
            "silo 'B' has 2 training records, the plan states 3 as its public count",
        ),
        ([["A", 1, "x", 0], ["", 2, "x", 1]], {}, "has no value in 1 records, first in record 2"),
        ([["A", 1, "x", 0], ["A", 2, "x", ""]], {}, "has no value in 1 records, first in record 2"),
        ([["A", 1, "x", 0], ["A", 2, "x", 0]], {}, "between 2 and 1000 classes, got 1"),
        (
            [["A", 1, "x", index / 7] for index in range(1001)],
            {},
            "between 2 and 1000 classes, got 1001",
        ),
        (
            [["A", index, "x", index % 2] for index in range(30)] + [["A", "12O", "x", 0]],
            {},
            "the value of record 31 is not a number",
        ),
    ],
)
def test_faults_of_a_table_are_one_line_that_helps(tmp_path, rows, changes, complaint):
    path = _table(tmp_path, rows)
    with pytest.raises(DataError) as caught:
        load(_plan(path, **changes))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_without_features_and_a_wrong_silo_number(tmp_path):
    path = _table(tmp_path, [["A", 0], ["B", 1]], header=["hospital", "label"])
    with pytest.raises(DataError, match="no feature column"):
        load(_plan(path))
    plan = TrainingPlan.from_table(
        {**_plan(_table(tmp_path, ROWS)).as_table(), "federation": {"silos": 3}}
    )
    for function in (load, public_facts):
        with pytest.raises(PlanError, match="must be 2, the silos of column hospital"):
            function(plan)


@pytest.mark.parametrize("given_path", ["nowhere.csv", "/nowhere/at/all.csv", "x" * 5000, "."])
def test_a_path_that_is_no_file(given_path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a folder with tables would be one
    with pytest.raises(DataError, match=r"data\.path|folder without files"):
        load(_plan(Path(given_path)))


def test_a_changed_file_is_read_again(tmp_path):
    path = _table(tmp_path, ROWS)
    assert len(load(_plan(path)).silos) == 2
    _table(tmp_path, [*ROWS, ["C", 5, "x", 1]])
    assert len(load(_plan(path)).silos) == 3


def test_classes_and_silos_are_ordered_as_numbers_and_decimals_do_not_matter(tmp_path):
    rows = [
        [silo, 1, "x", label]
        for silo, label in (("10", "2.0"), ("9", "10"), ("9", "2"), ("10", "1"))
    ] * 2
    data = load(_plan(_table(tmp_path, rows)))
    assert data.labels.names == ("1", "2", "10")
    assert [silo.name for silo in data.silos] == ["9", "10"]


# -- one organisation on its own machine

DECLARED = {
    "bounds": {"age": [0, 100]},
    "categories": {"ward": ["x", "y"], "label": ["0", "1"]},
    "columns": ["age", "ward"],
}


def test_a_silo_alone_encodes_its_records_as_the_whole_federation_does(tmp_path):
    whole = load(_plan(_table(tmp_path, ROWS), **DECLARED))
    own_rows = [[row[2], row[3], row[0], row[1]] for row in ROWS if row[0] == "B"]
    alone = _table(tmp_path, own_rows, header=["ward", "label", "hospital", "age"])
    own = load_silo(_plan(alone, **DECLARED), "B")
    assert (own.shape, own.labels) == (whole.shape, whole.labels)
    assert np.array_equal(own.silos[0].train.x, whole.silos[1].train.x)
    assert np.array_equal(own.silos[0].train.y, whole.silos[1].train.y)


@pytest.mark.parametrize("left_out", ["bounds", "columns", "categories"])
def test_a_silo_alone_may_not_decide_on_classes_or_columns(tmp_path, left_out):
    path = _table(tmp_path, [row for row in ROWS if row[0] == "B"])
    declared = {key: value for key, value in DECLARED.items() if key != left_out}
    with pytest.raises(DataError, match=r"data\.(categories|bounds|columns)"):
        load_silo(_plan(path, **declared), "B")


def test_a_silo_finds_its_records_among_others(tmp_path):
    path = _table(tmp_path, ROWS)
    assert np.array_equal(
        load_silo(_plan(path), "A").silos[0].train.x, load(_plan(path)).silos[0].train.x
    )
    with pytest.raises(DataError, match="no records of silo 'Z'"):
        load_silo(_plan(path), "Z")


# -- without the optional parts


def test_csv_needs_neither_torch_nor_pyarrow_nor_pandas_nor_scikit_learn(tmp_path):
    path = _table(tmp_path, ROWS)
    script = (
        "import sys\n"
        "for name in ('torch', 'pyarrow', 'pandas', 'sklearn', 'PIL'): sys.modules[name] = None\n"
        "from sumus.data import load, public_facts\n"
        "from sumus.plan import TrainingPlan\n"
        "entries = {'path': sys.argv[1], 'silo_column': 'hospital', 'label_column': 'label', "
        "'test_fraction': 0.0}\n"
        "assert len(load(TrainingPlan.from_table({'data': entries})).silos) == 2\n"
        "assert public_facts(TrainingPlan.from_table({'data': {'name': 'income', 'partition': "
        "'iid'}})).silos == 51\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=120)


def test_the_synthetic_table_is_reproducible(tmp_path):
    one, same, other = (
        write_patients(tmp_path / f"{index}.csv", records=50, seed=seed)
        for index, seed in enumerate((1, 1, 2))
    )
    assert one.read_bytes() == same.read_bytes() != other.read_bytes()


def test_rows_in_any_order_give_the_same_facts(tmp_path):
    path = write_patients(tmp_path / "a.csv", records=300)
    lines = path.read_text().splitlines()
    body = lines[1:]
    random.Random(0).shuffle(body)
    shuffled = tmp_path / "b.csv"
    shuffled.write_text("\n".join([lines[0], *body]) + "\n")
    entries = {"silo_column": "hospital", "label_column": "readmitted"}
    first, second = (
        public_facts(TrainingPlan.from_table({"data": {"path": str(each), **entries}}))
        for each in (path, shuffled)
    )
    assert first.records_per_silo == second.records_per_silo
    assert first.assumptions == second.assumptions


@pytest.mark.parametrize(
    "bounds", [{"records_per_silo": [60, 60]}, {}], ids=["with bounds", "without bounds"]
)
def test_rows_of_a_table_are_split_one_by_one(tmp_path, bounds):
    """A row that is left out changes one part of its silo by that record, and nothing else
    anywhere, with bounds and without.
    """
    rows = [["AB"[index % 2], index, "xyz"[index % 3], index % 2] for index in range(60)]
    declared = {
        "bounds": {"age": [0, 100]},
        "categories": {"hospital": ["A", "B"], "label": ["0", "1"], "ward": ["x", "y", "z"]},
        "columns": ["age", "ward"],
        "test_fraction": 0.3,
        **bounds,
    }

    def parts(kept: list[list[object]]) -> list[set[tuple[float, ...]]]:
        data = load(_plan(_table(tmp_path, kept), **declared))
        return [
            {tuple(x.tolist()) for x in part.x}
            for silo in data.silos
            for part in (silo.train, silo.test)
        ]

    whole, fewer = parts(rows), parts([*rows[:7], *rows[8:]])
    assert sorted(len(one ^ other) for one, other in zip(whole, fewer, strict=True)) == [0, 0, 0, 1]
    assert all(whole)
    alone = load_silo(
        _plan(_table(tmp_path, [row for row in rows if row[0] == "B"]), **declared), "B"
    ).silos[0]
    assert {tuple(x.tolist()) for x in alone.train.x} == whole[2]
