"""Descriptions: one record moves the sum by √columns and no more, counts are exact, the account is
that of one Gaussian release of that length, and a plan that cannot work is refused in one line.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sumus import TrainingPlan
from sumus.accounting import epsilon_gaussian
from sumus.data import Records, load, load_silo, public_facts
from sumus.data.cells import places
from sumus.data.columns import NumberColumn, TextColumn
from sumus.errors import DataError, PlanError
from sumus.guarantee import NoiseDesign, account_of, calibrated
from sumus.guarantee.algorithms.describe import root_above
from sumus.plan import ColumnCells, PublicFacts, cells_of
from sumus.plan.cells import WIDE_EDGES
from sumus.randomness import RandomSource
from sumus.tasks import LabelFacts
from sumus.training import local_updater, prepare

TABLE = {
    "training.algorithm": "describe",
    "federation.rounds": 1,
    "federation.silos": 3,
    "privacy.epsilon": 1.0,
    "data.silo_column": "site",
    "data.test_fraction": 0.0,
    "evaluation.metrics": "none",
    "aggregation.modulus_bits": 48,
    "describe.bins": 4,
    "data.bounds.age": [0.0, 100.0],
    "data.categories.sex": ["f", "m"],
    "data.categories.site": ["A", "B", "C"],
}
ROWS = [
    ("A", "10", "f", "0.5", "x"),
    ("A", "100", "m", "-3", ""),
    ("B", "", "other", "1e9", "y"),
    ("B", "-5", "", "nan", "x"),
    ("C", "101", "f", "inf", "x"),
    ("C", "old", "m", "text", "z"),
]


@pytest.fixture
def plan(tmp_path: Path) -> TrainingPlan:
    file = tmp_path / "people.csv"
    lines = ["site,age,sex,cost,note", *(",".join(row) for row in ROWS)]
    file.write_text("\n".join(lines) + "\n")
    return TrainingPlan().with_overrides(
        TABLE | {"data.path": str(file), "describe.numbers": ["cost"]}
    )


def silo_sum(design: NoiseDesign, records: Records) -> np.ndarray:
    """A silo's vector less its noise, whose draw is repeated."""
    silo, model = design.silos[0], prepare(design.plan, _data(design, records)).model

    def vector(part: Records) -> np.ndarray:
        source = RandomSource.simulation(3, "noise")
        return local_updater(design, silo, part, model)(np.zeros(0), source).vector

    nothing = records.take(np.arange(0))
    return np.asarray(vector(records) - vector(nothing))


def _data(design: NoiseDesign, records: Records) -> object:
    from sumus.data import FederatedData, SiloRecords
    from sumus.tasks import LabelFacts

    nothing = records.take(np.arange(0))
    silo = SiloRecords("A", records, nothing, nothing)
    return FederatedData("x", (silo,), records.x.shape[1:], LabelFacts())


# -- one record


def test_every_record_of_a_small_table_adds_one_unit_to_one_cell_a_column(
    plan: TrainingPlan,
) -> None:
    """All combinations of cells, through the real updater: the length is √m exactly, never more."""
    design = calibrated(plan)
    cells, unit = cells_of(design.plan), design.grid.resolution
    small = [range(min(column.count, 8)) for column in cells]
    for places_ in itertools.islice(itertools.product(*small), 0, None, 7):
        record = Records(np.array([places_], dtype=np.int64), np.zeros(1, np.int64))
        added = silo_sum(design, record)
        assert sum(int(value) ** 2 for value in added) == len(cells) * unit**2
        for column, place in zip(cells, places_, strict=True):
            assert added[column.place][place] == unit
            assert np.count_nonzero(added[column.place]) == 1
    assert design.silos[0].l2_grid >= math.sqrt(len(cells)) * unit


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_record_whatsoever_adds_more_than_the_root_of_its_columns(data: st.DataObject) -> None:
    """An adversary chooses the places: negative, beyond every cell, huge."""
    design = calibrated(
        TrainingPlan().with_overrides(
            {
                **{key: value for key, value in TABLE.items() if not key.startswith("data.")},
                "data.name": "digits",
                "data.test_fraction": 0.0,
                "describe.columns": ["x1", "label"],
            }
        )
    )
    numbers = st.integers(-(2**62), 2**62) | st.integers(-2, 300)
    row = data.draw(st.lists(numbers, min_size=2, max_size=2))
    added = silo_sum(design, Records(np.array([row], dtype=np.int64), np.zeros(1, np.int64)))
    assert sum(int(value) ** 2 for value in added) <= design.silos[0].l2_grid ** 2


@settings(max_examples=200, deadline=None)
@given(st.floats(width=64) | st.sampled_from([0.0, -0.0, 1e12, -1e12, 5e-324, 1e-6]))
def test_every_float_has_one_cell_and_lies_between_its_edges(value: float) -> None:
    for edges in (WIDE_EDGES, (0.0, 0.25, 0.5, 1.0)):
        column = ColumnCells("x", "wide", 0, edges=edges)
        (place,) = column.of_numbers(np.array([value]))
        assert 0 <= place < column.count
        if math.isnan(value):
            assert place == column.missing
        elif place == 0:
            assert value < edges[0]
        elif place == len(edges):
            assert value > edges[-1]
        else:
            assert edges[place - 1] <= value <= edges[place]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=6), max_size=5), st.lists(st.text(min_size=1), max_size=4))
def test_every_text_has_one_cell(values: list[str], names: list[str]) -> None:
    distinct = tuple(dict.fromkeys(values))
    column = TextColumn("x", distinct, np.arange(-1, len(distinct), dtype=np.int32))
    for cells in (
        ColumnCells("x", "text", 0),
        ColumnCells("x", "wide", 0, edges=WIDE_EDGES),
        ColumnCells("x", "categories", 0, names=("a", "b")),
    ):
        found = places(column, cells)
        assert ((found >= 0) & (found < cells.count)).all()
        assert found[0] == cells.missing


def test_the_sensitivity_is_never_below_the_root() -> None:
    for columns in range(1, 3000):
        root = root_above(columns)
        assert Fraction(root) ** 2 >= columns
        assert root <= math.sqrt(columns) * (1 + 1e-15)


@pytest.mark.parametrize("weighting", ["mean", "sum"])
def test_no_person_adds_more_than_the_root_of_the_columns(weighting: str) -> None:
    """A person's rows share one unit a column; ten times the same rows change nothing in a mean."""
    plan = TrainingPlan().with_overrides(
        {
            **{key: value for key, value in TABLE.items() if not key.startswith("data.")},
            "data.objects": "visits",
            "data.test_fraction": 0.0,
            "privacy.unit": "person",
            "data.person_weighting": weighting,
            "data.records_per_person": 40,
            "data.records_per_silo": [500, 500, 500],
            "describe.columns": ["x0", "x1"],
            "describe.numbers": ["x0", "x1"],
            "federation.local_steps": 1,
            "training.sampling_rate": 1.0,
            "training.divisor": 1.0,
            "noise.rounding": "record",
            "noise.noise_multiplier": 3.0,
            "training.dimension": 2 * (len(WIDE_EDGES) + 2),
            "federation.colluding": 0,
        }
    )
    from sumus.plan import ResolvedPlan

    design = NoiseDesign.of(ResolvedPlan.of(plan, ("A", "B", "C")))
    draw = np.random.default_rng(1)
    for rows in (1, 2, 3, 7, 40):
        x = draw.integers(-1, 4, (rows, 2))
        person = Records(x, np.zeros(rows, np.int64), np.zeros(rows, np.int64))
        added = silo_sum(design, person)
        assert sum(int(value) ** 2 for value in added) <= design.silos[0].l2_grid ** 2
        assert added.sum() <= 2 * design.grid.resolution
        if weighting == "mean" and rows <= 4:
            again = Records(np.tile(x, (10, 1)), np.zeros(10 * rows), np.zeros(10 * rows, np.int64))
            assert np.array_equal(silo_sum(design, again), added)


def test_a_person_in_two_silos_needs_twice_the_noise() -> None:
    noise = []
    for silos in (1, 2):
        plan = TrainingPlan().with_overrides(
            {
                **{key: value for key, value in TABLE.items() if not key.startswith("data.cat")},
                "federation.silos": 5,
                "privacy.unit": "person",
                "privacy.silos_per_person": silos,
                "data.person_column": "who",
                "data.path": "x.csv",
            }
        )
        facts = PublicFacts(
            "x", tuple("ABCDE"), (100,) * 5, (1,), LabelFacts(), columns=("age",), numbers=()
        )
        noise.append(calibrated(plan, facts).noise_multiplier)
    assert noise[1] == pytest.approx(2.0 * noise[0], rel=1e-3)


# -- exactness


def test_a_silos_counts_are_those_of_numpy(plan: TrainingPlan) -> None:
    design = calibrated(plan)
    data = load(plan)
    cells = {column.name: column for column in cells_of(design.plan)}
    total = sum(silo_sum(design, silo.train) for silo in data.silos)
    counts = {
        name: (total[column.place] // design.grid.resolution).tolist()
        for name, column in cells.items()
    }
    # below, four bins of [0, 100], above, missing (no number is missing too)
    assert counts["age"] == [1, 1, 0, 0, 1, 1, 2]
    assert counts["sex"] == [2, 2, 1, 1]
    assert counts["note"] == [5, 1]
    cost = np.array([0.5, -3.0, 1e9])
    assert counts["cost"][1:-2] == np.histogram(cost, bins=WIDE_EDGES)[0].tolist()
    assert counts["cost"][0] == 0
    assert counts["cost"][-2:] == [1, 2], "infinity above, no numbers missing"


def test_named_data_sets_are_counted_like_numpy_counts_them() -> None:
    plan = TrainingPlan().with_overrides(
        {
            "training.algorithm": "describe",
            "federation.rounds": 1,
            "data.name": "digits",
            "data.test_fraction": 0.0,
            "evaluation.metrics": "none",
            "aggregation.modulus_bits": 48,
            "describe.columns": ["x20", "label"],
        }
    )
    data = load(plan)
    plain = load(TrainingPlan().with_overrides({"data.name": "digits", "data.test_fraction": 0.0}))
    values = np.concatenate(
        [
            silo.train.x[:, 0, 2, 4]
            if silo.train.x.ndim == 4
            else silo.train.x.reshape(len(silo.train), -1)[:, 20]
            for silo in plain.silos
        ]
    )
    found = np.concatenate([silo.train.x[:, 0] for silo in data.silos])
    expected = np.histogram(values, bins=WIDE_EDGES)[0]
    assert np.bincount(found, minlength=len(WIDE_EDGES) + 2)[1:-2].tolist() == expected.tolist()
    labels = np.concatenate([silo.train.x[:, 1] for silo in data.silos])
    classes = np.concatenate([silo.train.y for silo in plain.silos])
    assert np.bincount(labels).tolist() == np.bincount(classes).tolist()


# -- the account


@pytest.mark.parametrize("columns", [["age"], ["age", "sex"], ["age", "sex", "cost", "note"]])
def test_the_account_is_one_gaussian_release_of_the_root_of_the_columns(
    plan: TrainingPlan, columns: list[str]
) -> None:
    numbers = ["cost"] if "cost" in columns else []
    made = plan.with_overrides({"describe.columns": columns, "describe.numbers": numbers})
    design = calibrated(made)
    account = account_of(design)
    assert account.proved
    assert account.analysis == "describe"
    # one draw of the counted silos' noise against √m units; Skellam noise this wide is a normal
    mu = math.sqrt(len(columns)) / design.noise_multiplier
    assert account.epsilon == pytest.approx(epsilon_gaussian(mu, account.delta), rel=2e-3)
    assert account.epsilon <= 1.0
    assert "records a count in the sum" in str(account)


def test_noise_grows_with_the_root_of_the_columns(plan: TrainingPlan) -> None:
    one = calibrated(plan.with_overrides({"describe.columns": ["age"], "describe.numbers": []}))
    four = calibrated(plan)
    assert four.noise_multiplier == pytest.approx(2.0 * one.noise_multiplier, rel=1e-3)


def test_a_plan_that_is_resolved_gives_the_same_design_without_any_record(
    plan: TrainingPlan,
) -> None:
    design = calibrated(plan)
    from sumus.plan import ResolvedPlan

    stored = TrainingPlan.from_toml(design.plan.to_toml())
    again = NoiseDesign.of(ResolvedPlan.of(stored, ("A", "B", "C")))
    assert again.silos == design.silos
    assert again.plan.hash == design.plan.hash


# -- bad input


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        ("federation.rounds", 2, "federation.rounds"),
        ("training.learning_rate", 0.1, "training.learning_rate"),
        ("evaluation.metrics", "secure", "evaluation.metrics"),
        ("data.test_fraction", 0.2, "data.test_fraction"),
        ("describe.columns", ["age", "age"], "describe.columns"),
        ("describe.columns", [], "describe.columns"),
        ("describe.columns", ["age"], "describe.numbers"),
        ("describe.columns", ["site"], "describe.numbers"),
        ("describe.bins", 0, "describe.bins"),
        ("noise.rounding", "sum", "noise.rounding"),
        ("privacy.unit", "silo", "privacy.unit"),
    ],
)
def test_what_has_no_meaning_is_refused_in_one_line(
    plan: TrainingPlan, key: str, value: object, field: str
) -> None:
    with pytest.raises(PlanError) as refused:
        plan.with_overrides({key: value})
    assert refused.value.field == field
    assert "\n" not in str(refused.value)


def test_silo_sizes_are_never_described(plan: TrainingPlan) -> None:
    with pytest.raises(PlanError, match="never told"):
        plan.with_overrides({"describe.numbers": None, "describe.columns": ["age", "site"]})


def test_an_unknown_column_is_named(plan: TrainingPlan) -> None:
    wrong = plan.with_overrides({"describe.columns": ["ago"], "describe.numbers": []})
    with pytest.raises(DataError, match=r"has no column 'ago'. Did you mean 'age'\?"):
        public_facts(wrong)


def test_a_silo_alone_does_not_decide_what_is_counted(plan: TrainingPlan, tmp_path: Path) -> None:
    """Read off one silo's own file, kinds of columns could differ from silo to silo."""
    own = tmp_path / "own.csv"
    own.write_text("site,age,sex,cost,note\nA,1,f,2,x\n")
    alone = plan.with_overrides({"data.path": str(own)})
    with pytest.raises(DataError, match=r"describe\.columns must be listed"):
        load_silo(alone, "A")
    listed = alone.with_overrides({"describe.columns": ["age", "cost"]})
    assert load_silo(listed, "A").silos[0].train.x.shape == (1, 2)
    with pytest.raises(DataError, match=r"describe\.numbers must be listed"):
        load_silo(listed.with_overrides({"describe.numbers": None}), "A")


def test_too_many_cells_are_refused(plan: TrainingPlan) -> None:
    wide = plan.with_overrides({"describe.bins": 65536, "data.bounds.cost": [0, 1]})
    many = [f"c{number}" for number in range(80)]
    declared = {name: [0.0, 1.0] for name in many}
    plan_of_many = wide.replace("data", bounds=declared).replace(
        "describe", columns=tuple(many), numbers=()
    )
    with pytest.raises(PlanError, match="at most 4,194,304 cells"):
        cells_of(plan_of_many)


def test_a_ring_that_is_too_small_says_how_large_it_must_be(plan: TrainingPlan) -> None:
    with pytest.raises(PlanError, match="Use at least"):
        calibrated(plan.with_overrides({"aggregation.modulus_bits": 20}))


def test_numbers_beyond_all_bins_fill_the_outer_cells() -> None:
    cells = ColumnCells("x", "bounded", 0, edges=(0.0, 1.0, 2.0))
    found = places(NumberColumn("x", np.array([-1.0, 0.0, 1.0, 2.0, 2.1, np.nan])), cells)
    assert found.tolist() == [0, 1, 2, 2, 3, 4]
