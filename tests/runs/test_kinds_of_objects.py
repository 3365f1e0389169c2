"""Whatever records a Python program holds, `sumus.train` takes them as they are or says in one line
what to do.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from scipy import sparse

import sumus
from sumus.data import FederatedData
from sumus.data.object_pairs import without_loader
from sumus.errors import DataError, PlanError
from sumus.plan import TrainingPlan
from sumus.runs import RunOptions, describe, train

PLAN = TrainingPlan.from_toml("""
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
rounds = 1
[training]
algorithm = "convex-pass"
learning_rate = 0.3
""")
RECORDS = 90
RNG = np.random.default_rng(3)
X = RNG.normal(size=(RECORDS, 4)).astype(np.float32)
Y = RNG.integers(0, 2, RECORDS)
WORDS = np.array(["stays", "returns"])[Y]
HOLES = X.copy()
HOLES[[3, 40], [1, 2]] = np.nan
FRAME = pd.DataFrame(
    {
        "hospital": np.array(["Bergen", "Oslo", "Tromsø"])[np.arange(RECORDS) % 3],
        "age": np.where(np.arange(RECORDS) % 17 == 3, np.nan, 50 + 10 * X[:, 0].astype(float)),
        "ward": np.array(["east", "west"])[RNG.integers(0, 2, RECORDS)],
        "smoker": X[:, 1] > 0,
        "outcome": WORDS,
    }
)
NAMED = {"silo": "hospital", "label": "outcome"}


class Pairs(torch.utils.data.Dataset):
    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = torch.as_tensor(x), torch.as_tensor(y)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[index], self.y[index]


class Rows(torch.utils.data.Dataset):
    """Rows by name, as a dataset of Hugging Face serves them."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.rows = frame.to_dict("records")
        self.column_names = list(frame.columns)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


class Unnamed(Rows):
    """Rows by name without a list of the names."""

    def __init__(self, frame: pd.DataFrame) -> None:
        super().__init__(frame)
        del self.column_names


def three(values: Any) -> list[Any]:
    return [values[silo::3] for silo in range(3)]


def pairs(x: Any, y: Any) -> list[tuple[Any, Any]]:
    return list(zip(three(x), three(y), strict=True))


def by_hospital() -> dict[str, pd.DataFrame]:
    return {name: part.drop(columns="hospital") for name, part in FRAME.groupby("hospital")}


def loader(x: Any, y: Any, **options: Any) -> Any:
    return torch.utils.data.DataLoader(Pairs(x, y), batch_size=8, **options)


TABLE_LABELS = ("returns", "stays")
KINDS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "pandas frame": ({"silos": FRAME, **NAMED}, TABLE_LABELS),
    "Polars frame": ({"silos": pl.from_pandas(FRAME), **NAMED}, TABLE_LABELS),
    "Arrow table": ({"silos": pa.Table.from_pandas(FRAME), **NAMED}, TABLE_LABELS),
    "list of frames": (
        {
            "silos": list(by_hospital().values()),
            "label": "outcome",
            "classes": ["stays", "returns"],
        },
        ("stays", "returns"),
    ),
    "frames by name": ({"silos": by_hospital(), "label": "outcome"}, TABLE_LABELS),
    "frame beside labels": (
        {"silos": pairs(FRAME[["age", "ward"]], FRAME["outcome"])},
        TABLE_LABELS,
    ),
    "columns by name": ({"silos": FRAME.to_dict("list"), **NAMED}, TABLE_LABELS),
    "structured array": (
        {"silos": FRAME.drop(columns=["ward"]).to_records(index=False), **NAMED},
        TABLE_LABELS,
    ),
    "rows by name": ({"silos": FRAME.to_dict("records"), **NAMED}, TABLE_LABELS),
    "dataset of rows": ({"silos": Rows(FRAME), **NAMED}, TABLE_LABELS),
    "datasets of rows without names": (
        {"silos": [Unnamed(part) for part in by_hospital().values()], "label": "outcome"},
        TABLE_LABELS,
    ),
    "arrays": ({"silos": pairs(X, Y)}, ("0", "1")),
    "string labels": ({"silos": pairs(X, WORDS)}, TABLE_LABELS),
    "declared string labels": (
        {"silos": pairs(X, WORDS.astype(object)), "classes": ["stays", "returns", "dies"]},
        ("stays", "returns", "dies"),
    ),
    "flags as labels": ({"silos": pairs(X, Y.astype(bool))}, ("False", "True")),
    "tensors": ({"silos": pairs(torch.tensor(X), torch.tensor(Y))}, ("0", "1")),
    "torch datasets": ({"silos": [Pairs(x, y) for x, y in pairs(X, Y)]}, ("0", "1")),
    "torch loaders": (
        {"silos": [loader(x, y, shuffle=True) for x, y in pairs(X, Y)]},
        ("0", "1"),
    ),
    "token ids": ({"silos": pairs((X * 10).astype(np.int64), Y)}, ("0", "1")),
    "missing values": ({"silos": pairs(HOLES, Y), "missing": "flag"}, ("0", "1")),
    "sparse matrices": ({"silos": pairs(sparse.csr_matrix(X), Y)}, ("0", "1")),
    "arrays of objects": ({"silos": pairs(X.astype(object), Y)}, ("0", "1")),
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))


def options() -> RunOptions:
    return RunOptions(root=Path("runs"), threads=1)


class StopError(Exception):
    pass


def seen(plan: TrainingPlan = PLAN, **given: Any) -> tuple[TrainingPlan, FederatedData]:
    """The plan and the records that `sumus.train` begins with."""
    kept: list[Any] = []

    def begun(design: Any, account: object, data: FederatedData) -> None:
        kept.extend((design.plan, data))
        raise StopError

    with pytest.raises(StopError):
        train(plan, begun=begun, options=options(), **given)
    return kept[0], kept[1]


def all_records(data: FederatedData) -> list[bytes]:
    """What is trained on, silo by silo and part by part."""
    return [
        part.x.tobytes() + part.y.tobytes()
        for silo in data.silos
        for part in (silo.train, silo.validation, silo.test)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_trained_on(kind: str) -> None:
    given, names = KINDS[kind]
    kept: list[FederatedData] = []
    run = train(
        PLAN, name=kind, options=options(), begun=lambda *each: kept.append(each[2]), **given
    )
    assert run.plan.data.objects == kind
    assert len(run.rounds) == 1
    assert kept[0].labels.names == names
    assert sum(map(len, kept[0].silos)) == RECORDS
    expected = np.int64 if kind == "token ids" else np.float32
    assert all(silo.train.x.dtype == expected for silo in kept[0].silos)
    new = FRAME if kept[0].encoding is not None else HOLES if given.get("missing") else X
    assert {str(each) for each in run.model.predict(new)} <= set(names)


def test_a_frame_gives_the_records_of_the_file_with_that_table() -> None:
    """Bit for bit, whichever library holds it; objects those of the CSV file."""
    parquet.write_table(pa.Table.from_pandas(FRAME), "patients.parquet")
    FRAME.to_csv("patients.csv", index=False)
    keys = {"silo_column": "hospital", "label_column": "outcome"}
    files = {
        kind: all_records(sumus.load_data(PLAN.replace("data", path=f"patients.{kind}", **keys)))
        for kind in ("parquet", "csv")
    }
    for kind in ("pandas frame", "Polars frame", "Arrow table"):
        assert all_records(seen(**KINDS[kind][0])[1]) == files["parquet"]
    for kind in ("columns by name", "rows by name", "dataset of rows"):
        assert all_records(seen(**KINDS[kind][0])[1]) == files["csv"]
    planned = PLAN.replace("data", path="elsewhere.csv", **keys)
    assert all_records(seen(planned, silos=FRAME)[1]) == files["parquet"]
    in_order = seen(silos=by_hospital(), label="outcome")[1]
    assert all_records(in_order) == files["parquet"]


def test_what_the_plan_declares_holds_for_a_frame_and_is_not_assumed() -> None:
    plan = PLAN.replace(
        "data",
        silo_column="hospital",
        label_column="outcome",
        columns=("age", "ward"),
        bounds={"age": (0.0, 100.0)},
        categories={
            "ward": ("east", "west"),
            "outcome": ("stays", "returns"),
            "hospital": ("Oslo", "Bergen", "Tromsø"),
        },
        records_per_silo=(40, 40, 40),
    )
    resolved, data = seen(plan, silos=FRAME, name="visits")
    assert data.assumptions == ()
    assert data.shape == (5,)
    assert [silo.name for silo in data.silos] == ["Oslo", "Bergen", "Tromsø"]
    assert data.encoding is not None
    assert resolved.data.objects == "visits"
    assert resolved.without_effect() == []
    again = TrainingPlan.from_toml(resolved.to_toml())
    assert all_records(seen(again, silos=FRAME)[1]) == all_records(data)


def test_a_run_on_a_frame_goes_on_with_the_same_frame_only() -> None:
    def stop(design: object, entry: Any) -> None:
        raise KeyboardInterrupt

    plan = PLAN.replace("federation", rounds=2)
    with pytest.raises(KeyboardInterrupt, match="silos=…"):
        train(plan, silos=FRAME, progress=stop, options=options(), **NAMED)
    (path,) = Path("runs").iterdir()
    resume = RunOptions(root=Path("runs"), threads=1, resume=path)
    with pytest.raises(sumus.SumusError, match="other records"):
        train(silos=FRAME.iloc[:-1], options=resume)
    assert len(train(silos=FRAME, options=resume).rounds) == 2


def test_persons_of_a_frame_are_the_unit_where_a_column_says_whose_row_it_is() -> None:
    plan = PLAN.replace("privacy", unit="person").replace("data", records_per_person=5)
    frame = FRAME.assign(patient=np.arange(RECORDS) // 9 * 3 + np.arange(RECORDS) % 3)
    for given in ({"groups": "patient"}, {}):
        one = plan if given else plan.replace("data", person_column="patient")
        data = seen(one, silos=frame, **NAMED, **given)[1]
        assert data.unit == "person"
        assert "patient" not in data.columns
    with pytest.raises(PlanError, match=r"data\.person_column must name a column"):
        train(plan, silos=frame, **NAMED)
    with pytest.raises(PlanError, match="groups must name a column"):
        train(plan, silos=frame, groups=[[1]], **NAMED)
    with pytest.raises(PlanError, match=r"groups needs privacy\.unit"):
        train(PLAN, silos=frame, groups="patient", **NAMED)
    with pytest.raises(PlanError, match="there is no table"):
        train(plan, silos=pairs(X, Y), groups="patient")


def test_quantities_and_times_of_frames_are_learned_by_the_plans_columns() -> None:
    costs = FRAME.assign(cost=100.0 + X[:, 2], time=np.abs(X[:, 3]) + 0.1, died=Y.astype(bool))
    regression = PLAN.with_overrides({"training.task": "regression"}).replace(
        "data", bounds={"cost": (90.0, 110.0)}
    )
    data = seen(regression, silos=costs, silo="hospital", label="cost")[1]
    assert data.labels.bounds == ((90.0, 110.0),)
    survival = PLAN.with_overrides({"training.task": "survival"}).replace(
        "data", intervals=(1.0, 2.0), time_column="time", event_column="died"
    )
    assert seen(survival, silos=costs, silo="hospital")[1].labels.intervals == (1.0, 2.0)
    with pytest.raises(PlanError, match=r"data\.event_column must name a column"):
        train(survival.replace("data", event_column=None), silos=costs, silo="hospital")


def test_a_frame_is_described_and_missing_values_of_arrays_are_counted() -> None:
    description = describe(PLAN, silos=FRAME, options=options(), **NAMED)
    assert set(description.columns) == {"age", "ward", "smoker", "outcome"}
    of_arrays = describe(PLAN, silos=pairs(HOLES, WORDS), options=options())
    assert list(of_arrays.columns) == ["x0", "x1", "x2", "x3", "label"]


def test_a_silo_may_have_lost_its_last_row() -> None:
    parts = by_hospital()
    rows = [part.to_dict("records") for part in parts.values()]
    for silos in (
        {**parts, "Oslo": parts["Oslo"].iloc[:0]},
        [rows[0], [], rows[2]],
    ):
        data = seen(silos=silos, label="outcome", classes=["stays", "returns"])[1]
        assert [len(silo) for silo in data.silos] == [30, 0, 30]


# -- labels


def test_classes_of_arrays_may_be_listed_in_the_plan() -> None:
    plan = PLAN.replace("data", categories={"label": ("stays", "returns")})
    resolved, data = seen(plan, silos=pairs(X, WORDS))
    assert data.labels.names == ("stays", "returns")
    assert not any("classes" in line for line in data.assumptions)
    assert resolved.data.categories == {"label": ("stays", "returns")}
    assert all_records(seen(resolved, silos=pairs(X, WORDS))[1]) == all_records(data)


@pytest.mark.parametrize(
    ("labels", "given", "told"),
    [
        (WORDS, {"classes": ["stays", "dies"]}, "is not in data.categories.label"),
        (WORDS, {"classes": 2}, "Pass the names"),
        (WORDS, {"classes": "stays"}, "list of their names"),
        (np.array([f"u{n}" for n in range(RECORDS)]), {}, "cannot be taken for classes"),
        (np.where(np.arange(RECORDS) == 7, "rare", WORDS), {}, "fewer than 5 records"),
        (np.where(np.arange(RECORDS) == 6, None, WORDS.astype(object)), {}, "first in record 3"),
        (np.stack([WORDS, WORDS], axis=1), {}, "one label per record"),
    ],
    ids=["unlisted", "a number", "one word", "identifiers", "rare", "missing", "two a record"],
)
def test_names_of_classes_are_declared_or_obvious(
    labels: Any, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(DataError) as caught:
        train(PLAN, silos=pairs(X, labels), options=options(), **given)
    assert told in str(caught.value)
    assert not {"u7", "rare", "returns"} & set(str(caught.value).replace("'", " ").split())
    regression = PLAN.with_overrides({"training.task": "regression"}).replace(
        "data", bounds={"label": (0.0, 1.0)}
    )
    with pytest.raises(DataError, match="must be numbers"):
        train(regression, silos=pairs(X, WORDS), options=options())


def test_flags_are_the_same_classes_from_every_kind_of_table() -> None:
    frame = FRAME.assign(outcome=Y.astype(bool))
    frame.to_csv("patients.csv", index=False)
    plan = PLAN.replace("data", silo_column="hospital", label_column="outcome")
    for silos in (frame, pl.from_pandas(frame), frame.to_dict("records")):
        assert seen(plan, silos=silos)[1].labels.names == ("False", "True")
    assert seen(silos=pairs(X, Y.astype(bool)))[1].labels.names == ("False", "True")
    of_file = sumus.load_data(plan.replace("data", path="patients.csv"))
    assert of_file.labels.names == ("False", "True")


# -- missing values, loaders


def test_missing_values_of_arrays_need_a_word_that_names_the_way() -> None:
    with pytest.raises(DataError, match=r'data\.missing = "flag"'):
        train(PLAN, silos=pairs(HOLES, Y), options=options())
    planned = PLAN.replace("data", missing="flag")
    resolved, data = seen(planned, silos=pairs(HOLES, Y))
    assert resolved.data.missing == "flag"
    assert data.shape == (8,)
    rows = np.concatenate([data.silos[0].train.x, data.silos[0].test.x])
    own = HOLES[::3]
    order, expected = np.argsort(rows[:, 0]), np.argsort(own[:, 0])
    assert np.array_equal(rows[order, :4], np.nan_to_num(own[expected]))
    assert np.array_equal(rows[order, 4:], np.isnan(own[expected]))
    masked = np.ma.MaskedArray(np.nan_to_num(HOLES), mask=np.isnan(HOLES))
    hidden = seen(planned, silos=pairs(masked, Y))[1]
    assert all_records(hidden) == all_records(data)
    images = HOLES.reshape(RECORDS, 2, 2)
    with pytest.raises(DataError, match="a list of features"):
        train(planned, silos=pairs(images, Y), options=options())
    with pytest.raises(DataError, match="not finite"):
        train(planned, silos=pairs(np.where(np.isnan(HOLES), np.inf, X), Y), options=options())
    with pytest.raises(PlanError, match=r"data\.missing"):
        train(PLAN, silos=pairs(HOLES, Y), missing="mean", options=options())


def test_a_loader_that_would_serve_other_records_is_refused() -> None:
    data = torch.utils.data
    assert any("DataLoader" in line for line in seen(**KINDS["torch loaders"][0])[1].assumptions)
    chosen = data.SubsetRandomSampler(range(5))
    weighted = data.WeightedRandomSampler(torch.ones(30), 30)
    again = data.RandomSampler(Pairs(X, Y), replacement=True)
    for sampler in (chosen, weighted, again):
        with pytest.raises(DataError, match="chooses or weighs records"):
            train(PLAN, silos=[loader(X, Y, sampler=sampler)] * 3, options=options())

    class Loader(data.DataLoader):
        def __iter__(self) -> Any:
            return iter([next(super().__iter__())])

    class RandomSampler(data.Sampler):
        def __iter__(self) -> Any:
            return iter([0] * len(X))

        def __len__(self) -> int:
            return len(X)

    ten, every, records = range(10), data.SequentialSampler(X), Pairs(X, Y)
    few = data.BatchSampler(data.SubsetRandomSampler(ten), 5, drop_last=False)
    others = data.BatchSampler(data.RandomSampler(X), 5, drop_last=False)
    tenth = data.DistributedSampler(records, num_replicas=10, rank=0)
    for chosen_by in (
        {"batch_sampler": few},
        {"batch_sampler": [[0, 1], [2]]},
        {"batch_sampler": others},
        {"sampler": data.RandomSampler(records, num_samples=10)},
        {"sampler": data.SequentialSampler(ten)},
        {"sampler": tenth},
        {"sampler": RandomSampler()},
        {"batch_size": 7, "drop_last": True},
    ):
        with pytest.raises(DataError, match="chooses or weighs records"):
            without_loader(data.DataLoader(records, **chosen_by))
    with pytest.raises(DataError, match="chooses or weighs records"):
        without_loader(Loader(records, batch_size=5))
    for all_once in (
        {"batch_size": None},
        {"sampler": every},
        {"batch_size": 7, "drop_last": True, "shuffle": True},
    ):
        assert without_loader(data.DataLoader(records, **all_once))[0] is records

    class Stream(data.IterableDataset):
        def __iter__(self) -> Any:
            return iter([(X[0], 0)])

    for silo in (Stream(), data.DataLoader(Stream())):
        with pytest.raises(DataError, match="IterableDataset"):
            train(PLAN, silos=[silo] * 3, options=options())


# -- bad input

ROW = {"hospital": "a", "age": 1.0, "outcome": "stays"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"silos": FRAME}, "Name it: silo="),
        ({"silos": FRAME, "silo": "hospital"}, "data.label_column must name a column"),
        ({"silos": FRAME, "silo": "clinic", "label": "outcome"}, "has no column 'clinic'"),
        ({"silos": FRAME, "silo": "Hospital", "label": "outcome"}, "Did you mean 'hospital'?"),
        ({"silos": FRAME, "silo": "hospital", "label": "grade"}, "has no column 'grade'"),
        ({"silos": FRAME, "silo": "hospital", "label": "hospital"}, "must differ"),
        ({"silos": FRAME, **NAMED, "classes": 2}, "must be the names of the classes"),
        ({"silos": FRAME, **NAMED, "classes": ["stays"]}, "is not in data.categories.outcome"),
        ({"silos": FRAME.iloc[:0], **NAMED}, "holds columns but no records"),
        ({"silos": pd.DataFrame(), **NAMED}, "has no columns"),
        ({"silos": pd.DataFrame([[1, 2]], columns=["x", "x"]), **NAMED}, "columns of the name"),
        ({"silos": [ROW, {"age": 1.0}], **NAMED}, "record 2 has other columns"),
        ({"silos": [ROW, {**ROW, "age": [1, 2]}], **NAMED}, "a value of type list in record 2"),
        ({"silos": {"x": [1, 2], "y": [1]}, **NAMED}, "2 values in column 'x'"),
        ({"silos": [FRAME, FRAME], "silo": "hospital", "label": "outcome"}, "Pass one table"),
        ({"silos": [FRAME, (X, Y)], "label": "outcome"}, "is no table and others are"),
        (
            {"silos": [FRAME[["age", "outcome"]], FRAME[["ward", "outcome"]]], "label": "outcome"},
            "have different columns: 'age'",
        ),
        (
            {
                "silos": [FRAME[["age", "outcome"]], FRAME[["age", "outcome"]].astype(str)],
                "label": "outcome",
            },
            "holds numbers in silo 'silo-0' and text in silo 'silo-1'",
        ),
        ({"silos": [(FRAME, WORDS)] * 3, "label": "outcome"}, "beside the table and a column"),
        ({"silos": [(FRAME[["age"]], WORDS[:5])] * 3}, "must have one label per record"),
        ({"silos": pairs(X, Y), "silo": "hospital"}, "silo is for tables"),
        ({"silos": pairs(X, Y), "label": "outcome"}, "label is for tables"),
        ({"silo": "hospital"}, "is for records given in silos="),
        ({"silos": Pairs(X, Y)}, "one object per silo"),
        ({"silos": X}, "one object per silo"),
        ({"silos": 3}, "one object per silo"),
        ({"silos": [([[1.0], [1.0, 2.0]], [0, 1])] * 3}, "different shapes"),
        ({"silos": [(np.array([["a"]]), [0])] * 3}, "Encode text first"),
        ({"silos": [(np.array([[1, "a"]], dtype=object), [0])] * 3}, "which may hold text"),
        ({"silos": [3, 4]}, "got int"),
        ({"silos": pl.LazyFrame({"x": [1]}), **NAMED}, "lazy frame"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_taken_is_one_line(given: dict[str, Any], told: str) -> None:
    with pytest.raises(sumus.SumusError) as caught:
        train(PLAN, options=options(), **given)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not Path("state").exists()  # nothing was spent


def test_columns_and_names_are_those_of_the_plan_or_those_given_never_both() -> None:
    plan = PLAN.replace("data", silo_column="ward", label_column="outcome", objects="visits")
    for given, told in (
        ({"silo": "hospital"}, r"silo must be the plan's data\.silo_column"),
        ({"label": "smoker"}, r"label must be the plan's data\.label_column"),
        ({"name": "others"}, r"name must be the plan's data\.objects"),
    ):
        with pytest.raises(PlanError, match=told):
            train(plan, silos=FRAME, **given)
    listed = PLAN.replace("data", categories={"outcome": ("a", "b"), "silo": ("x", "y", "z")})
    for given, told in (
        ({"silos": FRAME, **NAMED, "classes": ["stays", "returns"]}, r"categories\.outcome"),
        ({"silos": by_hospital(), "label": "outcome"}, r"categories\.silo"),
    ):
        with pytest.raises(PlanError, match=told):
            train(listed, **given)


def test_objects_without_a_schema_take_the_kind_that_other_silos_declare() -> None:
    typed = pd.DataFrame({"age": [1.5, 2.5], "ward": ["a", "b"], "flag": [True, False]})
    loose = pd.DataFrame({"age": [3, None], "ward": [7, "c"], "flag": [None, True]}, dtype=object)
    silos = {"one": typed, "two": loose}
    silos = {name: each.assign(out=["n", "y"]) for name, each in silos.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = seen(silos=silos, label="out", classes=["n", "y"])[1]
    assert data.encoding is not None
    kinds = [(rule.name, rule.kind) for rule in data.encoding.columns]
    assert kinds == [("age", "knotted"), ("ward", "hashed"), ("flag", "scaled")]
    assert not any("read off the table" in line for line in data.assumptions)


def test_records_that_nobody_named_share_one_ledger() -> None:
    """Nothing that they hold begins another one: neither a record nor a column, silo or shape."""

    def ledger(silos: Any, **given: Any) -> str:
        plan, data = seen(silos=silos, label="outcome", **given)
        name = plan.data.objects or ""
        assert any(name in line and "name=" in line for line in data.assumptions)
        return name

    ledgers = {
        ledger(FRAME, silo="hospital"),
        ledger(FRAME.iloc[5:], silo="hospital"),
        ledger(FRAME[FRAME["hospital"] != "Oslo"], silo="hospital"),
        ledger(FRAME[list(reversed(FRAME.columns))], silo="hospital"),
        ledger(FRAME.drop(columns="ward"), silo="hospital"),
        ledger(by_hospital()),
        ledger(list(by_hospital().values())),
        ledger({name[::-1]: part for name, part in by_hospital().items()}),
        *(seen(silos=[(X[:, :width], Y)] * 3)[0].data.objects for width in (1, 2)),
    }
    assert ledgers == {"own-data"}
    assert seen(silos=FRAME, name="visits", **NAMED)[0].data.objects == "visits"
