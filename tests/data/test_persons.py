"""Persons as units: all rows of one in one part, and one person more or less moves nobody else."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sumus.data import FederatedData, Records, from_arrays, load, load_silo, public_facts
from sumus.data.columns import NumberColumn, TextColumn
from sumus.data.persons import PersonRules, by_person, first_units, identifiers, ids_of_objects
from sumus.errors import DataError, PlanError
from sumus.plan import TrainingPlan, resolve

RULES = PersonRules(most=3, silos=1, test_fraction=0.3, validation_fraction=0.3, seed=5)
people = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.lists(st.integers(0, 4), min_size=1, max_size=6),  # few values: equal rows are common
    min_size=1,
    max_size=8,
)


def rows_of(persons: dict[str, list[int]], seed: int) -> tuple[np.ndarray, np.ndarray, TextColumn]:
    """The rows of all persons in any order."""
    rows = [(name, value) for name, values in persons.items() for value in values]
    order = np.random.default_rng(seed).permutation(len(rows))
    names = sorted(persons)
    values = np.array([rows[index][1] for index in order], dtype=np.float32)
    codes = np.array([names.index(rows[index][0]) for index in order], dtype=np.int32)
    return values[:, None], values.astype(np.int64) % 2, TextColumn("p", tuple(names), codes)


def contents(records: Records) -> Counter[tuple[float, ...]]:
    """The persons of a part, each as the multiset of its rows."""
    return Counter(
        tuple(sorted(records.x[start:end, 0].tolist()))
        for start, end in zip(records.edges[:-1], records.edges[1:], strict=True)
    )


@pytest.mark.deep
@settings(max_examples=200, deadline=None)
@given(
    persons=people, gone=st.integers(0, 7), seeds=st.tuples(st.integers(0, 9), st.integers(0, 9))
)
def test_a_person_more_changes_one_part_by_that_person(persons, gone, seeds) -> None:
    """The neighbour of a table: all rows of one person more or less, anywhere in it and in any
    order.
    """
    one = sorted(persons)[gone % len(persons)]
    less = {name: values for name, values in persons.items() if name != one}
    with_one, left_out = by_person(*rows_of(persons, seeds[0]), rules=RULES, silo="A")
    without, left_out_then = by_person(*rows_of(less, seeds[1]), rules=RULES, silo="A")
    more = [contents(a) - contents(b) for a, b in zip(with_one, without, strict=True)]
    fewer = [contents(b) - contents(a) for a, b in zip(with_one, without, strict=True)]
    assert sum(sum(part.values()) for part in more) == 1
    assert not any(fewer)
    ((kept,),) = (part for part in more if part)
    assert len(kept) == min(len(persons[one]), RULES.most)
    assert not Counter(kept) - Counter(map(float, persons[one]))
    assert left_out - left_out_then == max(0, len(persons[one]) - RULES.most)


@settings(max_examples=100, deadline=None)
@given(persons=people, seed=st.integers(0, 9))
def test_every_person_is_in_the_part_that_its_identifier_says(persons, seed) -> None:
    """Against the definition, person by person."""
    x, y, ids = rows_of(persons, seed)
    parts, _ = by_person(x, y, ids, rules=RULES, silo="A")
    expected: list[Counter[int]] = [Counter(), Counter(), Counter()]
    prefix = hashlib.sha256(b"sumus split by person/5/True/A").digest()
    for name, values in persons.items():
        digest = hashlib.sha256(prefix + name.encode()).digest()
        coins = [int.from_bytes(digest[at : at + 8], "little") / 2**64 for at in (0, 8)]
        part = 2 if coins[0] < 0.3 else 1 if coins[1] < 0.3 else 0
        expected[part][min(len(values), RULES.most)] += 1
    assert [Counter(part.rows_per_unit.tolist()) for part in parts] == expected
    assert sum(len(part) for part in parts) == sum(min(len(v), 3) for v in persons.values())


@settings(max_examples=100, deadline=None)
@given(persons=people, gone=st.integers(0, 7), bound=st.integers(1, 8), seed=st.integers(0, 9))
def test_beyond_a_bound_one_person_takes_the_place_of_one(persons, gone, bound, seed) -> None:
    everybody = PersonRules(most=9, silos=1, test_fraction=0, validation_fraction=0, seed=0)
    one = sorted(persons)[gone % len(persons)]
    less = {name: values for name, values in persons.items() if name != one}
    kept = []
    for table in (persons, less):
        train = by_person(*rows_of(table, seed), rules=everybody, silo="A")[0][0]
        chosen = train.take(first_units(train, bound, seed=0, silo="A"))
        assert chosen.units == min(len(table), bound)
        kept.append(contents(chosen))
    distance = sum(((kept[0] - kept[1]) + (kept[1] - kept[0])).values())
    assert distance <= (1 if len(persons) <= bound else 2)


def test_which_rows_of_a_person_count_follows_from_the_rows_and_not_from_their_order() -> None:
    x = np.arange(40, dtype=np.float32)[:, None]
    kept = []
    for order in (np.arange(40), np.random.default_rng(1).permutation(40)):
        ids = TextColumn("p", ("a",), np.zeros(40, dtype=np.int32))
        parts, left_out = by_person(x[order], np.zeros(40, int), ids, rules=RULES, silo="A")
        assert left_out == 37
        kept.append(contents(parts[0]) + contents(parts[1]) + contents(parts[2]))
    assert kept[0] == kept[1]
    assert list(kept[0]) != [(0.0, 1.0, 2.0)]  # by a key, not the first ones


def test_a_person_of_several_silos_is_in_one_part_everywhere() -> None:
    names = tuple(f"p{index}" for index in range(200))
    x, ids = np.zeros((200, 1), np.float32), TextColumn("p", names, np.arange(200, dtype=np.int32))
    x[:, 0] = np.arange(200)

    def tested(silo: str, silos: int) -> set[float]:
        rules = PersonRules(most=3, silos=silos, test_fraction=0.3, validation_fraction=0, seed=5)
        return set(by_person(x, np.zeros(200, int), ids, rules=rules, silo=silo)[0][2].x[:, 0])

    assert tested("A", 2) == tested("B", 2) == tested("B", 3)
    assert tested("A", 1) != tested("B", 1)
    assert 30 < len(tested("A", 2)) < 90


# -- records


def test_units_edges_and_weights() -> None:
    rows = Records(np.zeros((6, 1), np.float32), np.zeros(6, int), np.array([0, 0, 0, 1, 2, 2]))
    assert (rows.units, rows.edges.tolist(), len(rows)) == (3, [0, 3, 4, 6], 6)
    assert rows.weights().tolist() == [1 / 3, 1 / 3, 1 / 3, 1, 0.5, 0.5]
    assert rows.weights("sum", 4).tolist() == [0.25] * 6
    with pytest.raises(DataError, match="records_per_person = 2 is exceeded"):
        rows.weights("sum", 2)
    alone = Records(rows.x, rows.y)
    assert (alone.units, alone.weights("sum", 4).tolist()) == (6, [1.0] * 6)
    joined = Records.joined([rows, rows])
    assert joined.persons is not None
    assert joined.persons.tolist() == [0, 0, 0, 1, 2, 2, 3, 3, 3, 4, 5, 5]
    nobody = rows.take(np.array([], dtype=np.int64))
    assert (nobody.units, nobody.edges.tolist(), len(nobody.weights())) == (0, [0], 0)


@pytest.mark.parametrize("persons", [[1, 1], [0, 2], [0, 1, 0], [0, -1], [0]])
def test_rows_of_a_person_must_stand_side_by_side(persons: list[int]) -> None:
    rows = max(len(persons), 2)
    with pytest.raises(DataError, match="side by side"):
        Records(np.zeros((rows, 1), np.float32), np.zeros(rows, int), np.array(persons))


@settings(max_examples=100, deadline=None)
@given(counts=st.lists(st.integers(1, 4), max_size=8), data=st.data())
def test_taking_units_takes_all_their_rows(counts: list[int], data) -> None:
    persons = np.repeat(np.arange(len(counts)), counts)
    rows = Records(np.arange(len(persons), dtype=np.float32)[:, None], persons % 2, persons)
    units = data.draw(st.permutations(range(len(counts))))[: data.draw(st.integers(0, 8))]
    taken = rows.take(np.array(units, dtype=np.int64))
    assert [
        taken.x[a:b, 0].tolist() for a, b in zip(taken.edges[:-1], taken.edges[1:], strict=True)
    ] == [rows.x[persons == unit, 0].tolist() for unit in units]


# -- tables


def table(folder: Path, rows: list[tuple[str, object, float, int]], name: str = "own.csv") -> Path:
    path = folder / name
    path.write_text(
        "clinic,patient,age,ill\n"
        + "".join(f"{clinic},{patient},{age},{ill}\n" for clinic, patient, age, ill in rows)
    )
    return path


def plan_of(path: Path, unit: str = "person", **data: object) -> TrainingPlan:
    declared = {
        "silo_column": "clinic",
        "label_column": "ill",
        "person_column": "patient",
        "columns": ["age"],
        "bounds": {"age": [0, 100]},
        "categories": {"clinic": ["A", "B"], "ill": ["0", "1"]},
    }
    return TrainingPlan.from_table(
        {"privacy": {"unit": unit}, "data": {"path": str(path), **declared, **data}}
    )


ROWS = [
    ("AB"[person % 2], f"p{person}", person + visit / 10, person % 3 % 2)
    for person in range(60)
    for visit in range(1 + person % 4)
]


def everyone(data: FederatedData) -> list[Records]:
    return [part for silo in data.silos for part in (silo.train, silo.validation, silo.test)]


def test_a_table_counts_persons_and_keeps_their_rows_together(tmp_path: Path) -> None:
    plan = plan_of(table(tmp_path, ROWS))
    data = load(plan)
    assert sum(part.units for part in everyone(data)) == 60
    assert sum(len(part) for part in everyone(data)) == len(ROWS)
    assert data.columns == ("age",)
    assert data.shape == (2,)  # the number and whether it is missing: a person is no feature
    facts = public_facts(plan)
    assert facts.records_per_silo == data.facts().records_per_silo
    assert facts.records_per_silo == tuple(silo.train.units for silo in data.silos)
    resolved = resolve(plan, facts)
    assert resolved.plan.data.records_per_person == 100
    assert resolved.silos[0].records == data.silos[0].train.units


def test_a_file_of_one_silo_alone_gives_the_same_persons(tmp_path: Path) -> None:
    both = load(plan_of(table(tmp_path, ROWS), records_per_silo=[18, 60]))
    own = table(tmp_path, [row for row in ROWS if row[0] == "A"], "a.csv")
    alone = load_silo(plan_of(own, records_per_silo=[18, 60]), "A").silos[0]
    assert both.silos[0].train.units == alone.train.units == 18
    assert alone.left_out > 0
    for part in ("train", "test"):
        one, other = getattr(both.silos[0], part), getattr(alone, part)
        assert np.array_equal(one.x, other.x)
        assert np.array_equal(one.persons, other.persons)


def test_rows_beyond_the_most_of_a_person_are_left_out_and_only_the_silo_is_told(tmp_path) -> None:
    data = load(plan_of(table(tmp_path, ROWS), records_per_person=2, records_per_silo=[60, 60]))
    assert max(part.rows_per_unit.max(initial=0) for part in everyone(data)) == 2
    assert [silo.rows_left_out for silo in data.silos] == [15, 30]
    assert data.assumptions == ()
    assert "left" not in repr(data.facts())


def test_one_patients_rows_repeated_ten_times_change_no_public_number(tmp_path: Path) -> None:
    from sumus.guarantee import account_of, calibrated

    once = plan_of(table(tmp_path, ROWS), records_per_silo=[30, 30], test_fraction=0.0)
    again = table(tmp_path, [*ROWS, *[row for row in ROWS if row[1] == "p6"] * 9], "again.csv")
    often = plan_of(again, records_per_silo=[30, 30], test_fraction=0.0)
    made = [account_of(calibrated(plan, load(plan).facts())) for plan in (once, often)]
    assert made[0].epsilon == made[1].epsilon
    assert made[0].noise_multiplier == made[1].noise_multiplier
    assert load(once).silos[0].train.units == load(often).silos[0].train.units
    assert len(load(often).silos[0].train) == len(load(once).silos[0].train) + 9 * 3


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_identifiers_of_any_type_are_text(tmp_path: Path, suffix: str) -> None:
    rows = [("AB"[index % 2], 1000 + index // 4, index, index % 2) for index in range(80)]
    path = table(tmp_path, rows)
    if suffix == "parquet":
        csv = pytest.importorskip("pyarrow.csv")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(csv.read_csv(path), tmp_path / "own.parquet")
        path = tmp_path / "own.parquet"
    data = load(plan_of(path))
    assert sum(part.units for part in everyone(data)) == 40  # 20 numbers, each in both silos
    assert {int(rows) for part in everyone(data) for rows in part.rows_per_unit} == {2}


def test_missing_identifiers_are_counted_and_not_shown(tmp_path: Path) -> None:
    rows = [*ROWS[:20], ("A", "", 77, 1), ("B", "NA", 78, 0)]
    with pytest.raises(DataError, match=r"'patient' has no value in 2 rows\. Fill in") as caught:
        load(plan_of(table(tmp_path, rows)))
    assert "77" not in str(caught.value)
    assert "record" not in str(caught.value)


@pytest.mark.parametrize("values", [[1.5, 2.0], [2.0**53, 1.0]])
def test_numbers_that_may_not_tell_persons_apart_are_refused(values: list[float]) -> None:
    with pytest.raises(DataError, match=r"does not in 1 row\. Save the identifiers as text"):
        identifiers(NumberColumn("patient", np.array(values)), "data.person_column")


def test_repeated_ids_trained_per_record_are_warned_about(tmp_path: Path) -> None:
    data = load(plan_of(table(tmp_path, ROWS), unit="record", records_per_silo=[99, 99]))
    assert data.silos[0].train.persons is None
    assert data.columns == ("age",)
    (line,) = data.assumptions
    assert line.startswith("warning: data.person_column is patient and privacy.unit = ")
    assert not any(character.isdigit() for character in line)
    assert data.remarks == (
        "45 values of patient stand in several rows, one in 4: trained per record, each of these "
        "rows is protected by itself",
    )


@pytest.mark.parametrize(
    ("most", "told"),
    [
        (1, "is protected in each by itself (privacy.silos_per_person = 1)"),
        (2, "is beyond what is guaranteed (privacy.silos_per_person = 2)"),
        (3, None),
    ],
)
def test_a_table_with_persons_in_more_silos_than_the_plan_says_is_remarked_on(
    tmp_path: Path, most: int, told: str | None
) -> None:
    rows = [("ABC"[index % 3], f"p{index // 3}", index, index % 2) for index in range(60)]
    changes = {"privacy.silos_per_person": most, "data.categories.clinic": ["A", "B", "C"]}
    data = load(plan_of(table(tmp_path, rows)).with_overrides(changes))
    silos = "1 silo" if most == 1 else f"{most} silos"
    line = f"20 persons are in more than {silos}, one in 3: who is, {told}"
    assert data.remarks == (() if told is None else (line,))
    assert "20 persons" not in repr(data.facts())


# -- what a plan refuses

BASE = {
    "path": "own.csv",
    "silo_column": "clinic",
    "label_column": "ill",
    "person_column": "patient",
}


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"privacy": {"unit": "person"}, "data": {**BASE, "person_column": None}}, "data.person_column must say whose row"),
        ({"privacy": {"unit": "person"}, "data": {"name": "digits"}}, "privacy.unit cannot be \"person\" for the named data set"),
        ({"privacy": {"unit": "silo"}, "training": {"algorithm": "silo", "sampling_rate": 1.0}, "data": BASE}, "data.person_column has no place beside privacy.unit"),
        ({"privacy": {"unit": "person"}, "data": {**BASE, "person_weighting": "sum"}}, "data.records_per_person must be set"),
        ({"privacy": {"unit": "person"}, "data": {**BASE, "person_weighting": "median"}}, "data.person_weighting must be one of mean, sum"),
        ({"privacy": {"unit": "person"}, "data": {**BASE, "records_per_person": 0}}, "data.records_per_person must be a whole number"),
        ({"privacy": {"unit": "person"}, "data": {**BASE, "person_column": "clinic"}}, "data.person_column must differ from data.silo_column"),
        ({"privacy": {"unit": "person"}, "data": {**BASE, "person_column": "ill"}}, "data.person_column must differ from data.label_column"),
        ({"privacy": {"unit": "person"}, "data": {**BASE, "columns": ["age", "patient"]}}, "data.person_column must not be named in data.columns"),
        ({"privacy": {"unit": "person"}, "data": {**BASE, "categories": {"patient": ["a"]}}}, "data.person_column must not be named in data.categories"),
        ({"privacy": {"unit": "person", "silos_per_person": 3}, "federation": {"silos": 2}, "data": BASE}, "privacy.silos_per_person must not exceed federation.silos = 2"),
        ({"privacy": {"unit": "person", "silos_per_person": 0}, "data": BASE}, "privacy.silos_per_person must be a whole number"),
        ({"privacy": {"unit": "person"}, "training": {"algorithm": "silo", "sampling_rate": 1.0}, "data": BASE}, 'privacy.unit must be "silo" exactly when'),
    ],
)  # fmt: skip
def test_what_a_plan_of_persons_refuses(tables: dict[str, dict[str, object]], told: str) -> None:
    given_keys = {
        title: {key: value for key, value in keys.items() if value is not None}
        for title, keys in tables.items()
    }
    with pytest.raises(PlanError) as caught:
        TrainingPlan.from_table(given_keys)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_plan_without_data_has_no_persons() -> None:
    plan = TrainingPlan.from_table({"privacy": {"unit": "person"}})
    for read in (load, public_facts):
        with pytest.raises(DataError, match="needs to know whose every row is"):
            read(plan)


def test_keys_of_persons_mean_nothing_without_them(tmp_path: Path) -> None:
    plan = plan_of(table(tmp_path, ROWS), unit="record", records_per_person=3)
    assert any("data.records_per_person" in line for line in plan.without_effect())


# -- objects given in Python

X = np.arange(120, dtype=np.float32)[:, None]
Y = np.arange(120) % 2
IDS = np.arange(120) // 3


@pytest.mark.parametrize(
    "ids",
    [IDS, IDS.astype(np.float64), IDS.astype(str), [f"p{value}" for value in IDS],
     IDS.astype(object), np.array([f"id {value}" for value in IDS], dtype="S9")],
    ids=["whole", "float", "text", "list", "object", "bytes"],
)  # fmt: skip
def test_groups_are_identifiers_of_any_type(ids: object) -> None:
    data = from_arrays([(X, Y), (X, Y)], groups=[ids, ids], classes=2)
    assert sum(part.units for part in everyone(data)) == 80
    assert {int(rows) for part in everyone(data) for rows in part.rows_per_unit} == {3}


def test_large_whole_numbers_stay_apart() -> None:
    ids = np.array([2**60, 2**60 + 1] * 60)
    data = from_arrays([(X, Y)], groups=[ids], classes=2, test_fraction=0.0)
    assert data.silos[0].train.units == 2


@pytest.mark.parametrize(
    "ids",
    [
        np.array([1.0, 2.0, 0.0, 30.0]),
        np.array([1.0, 2.0, -0.0, 30.0]),
        np.array([1.0, 2.0, 0.0, 30.0], dtype=np.float16),
        np.array([1.0, np.float32(2), 0, "30.0"], dtype=object),
        np.array([1.0, 2.0, -0.0, 30.0, "A1"], dtype=object),
        np.asarray([1.0, 2.0, -0.0, 30.0, "A1"]),
        np.asarray(["1.0", " 2 ", "0", "30."]),
        np.array([b"1.0", b"2", b"0", b"30"]),
        np.array([1, 2, 0, 30], dtype=np.uint8),
    ],
    ids=["float", "minus zero", "half", "objects", "objects and text", "text of a list", "text",
         "bytes", "whole"],
)  # fmt: skip
def test_one_persons_identifier_does_not_spell_those_of_the_others(ids: np.ndarray) -> None:
    made = ids_of_objects(ids, "silo")
    assert [made.values[code] for code in made.codes][:4] == ["1", "2", "0", "30"]


def test_an_identifier_of_another_type_moves_nobody_to_another_part() -> None:
    numbers = [float(value) for value in IDS]
    x, y = np.append(X, [[-1.0]], axis=0).astype(np.float32), np.append(Y, 0)
    alone = from_arrays([(X, Y)], groups=[numbers], classes=2).silos[0]
    beside = from_arrays([(x, y)], groups=[[*numbers, "A1"]], classes=2).silos[0]
    for one, other in ((alone.train, beside.train), (alone.test, beside.test)):
        assert set(one.x[:, 0]) == set(other.x[:, 0]) - {-1.0}


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        (np.array([2**24, 5], dtype=np.float32), "whole numbers below 2^24, it does not in 1 row"),
        (np.array([-2048, 2050], dtype=np.float16), "whole numbers below 2^11, it does not in 2"),
        (np.array([np.float32(2**24), "a"], dtype=object), "whole numbers below 2^24"),
        (np.array([2.0**53, "a"], dtype=object), "whole numbers below 2^53"),
        (np.array([0.5, "a"], dtype=object), "whole numbers below 2^53"),
        (np.array([True, False]), "must hold text or whole numbers, got bool"),
        (np.array(["2026-01-01"], dtype="M8[D]"), "must hold text or whole numbers, got datetime"),
    ],
)
def test_values_that_may_stand_for_two_persons_are_refused(ids: np.ndarray, told: str) -> None:
    with pytest.raises(DataError) as caught:
        ids_of_objects(ids, "silo 'a':")
    assert told in str(caught.value)


def test_groups_go_by_name_where_silos_do() -> None:
    data = from_arrays(
        {"a": (X, Y), "b": (X, Y)}, groups={"b": IDS, "a": IDS // 2}, classes=2, test_fraction=0.0
    )
    assert [silo.train.units for silo in data.silos] == [20, 40]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"groups": [IDS]}, "groups must have one entry per silo"),
        ({"groups": [IDS[:5], IDS]}, "must hold one identifier for each of 120 rows"),
        ({"groups": [np.stack([IDS, IDS], 1), IDS]}, "must hold one identifier for each of 120 rows"),
        ({"groups": [np.where(IDS < 2, np.nan, IDS), IDS]}, "has no value in 6 rows"),
        ({"groups": [[None, *IDS[1:]], IDS]}, "has no value in 1 row"),
        ({"groups": [IDS + 0.5, IDS]}, "must hold text or whole numbers"),
        ({"groups": {"a": IDS}}, "groups must be a list like silos"),
        ({"groups": [IDS, IDS], "tests": [(X, Y), (X, Y)]}, "test_groups must say whose"),
        ({"groups": [IDS, IDS], "tests": [(X, Y), (X, Y)], "test_groups": [IDS, IDS + 100]},
         "'silo-0' has 40 persons among the test rows who also train"),
        ({"groups": [IDS, IDS + 100], "tests": [(X, Y), (X, Y)], "test_groups": [IDS + 138, IDS + 900],
          "silos_per_person": 2}, "'silo-0' has 2 persons among the test rows who also train"),
    ],
)  # fmt: skip
def test_what_groups_refuse(changes: dict[str, object], told: str) -> None:
    with pytest.raises(DataError) as caught:
        from_arrays([(X, Y), (X, Y)], classes=2, **changes)  # type: ignore[arg-type]
    assert told in str(caught.value)


def test_tests_of_other_persons_are_taken_with_their_groups() -> None:
    data = from_arrays([(X, Y)], groups=[IDS], tests=[(X, Y)], test_groups=[IDS + 40], classes=2)
    assert (data.silos[0].train.units, data.silos[0].test.units) == (40, 40)
