"""Deals and splits: every record in exactly one place, whatever the labels."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sumus.data import partition
from sumus.data.partition import deal, deal_sizes, split, split_by_record, split_sizes
from sumus.errors import DataError

KINDS = ("iid", "shards", "dirichlet")
labels_lists = st.lists(st.integers(0, 5), max_size=200)


def _deal(labels: list[int], **changes: object) -> tuple[np.ndarray, ...]:
    settings_ = {
        "kind": "iid",
        "silos": 3,
        "seed": 0,
        "alpha": 0.5,
        "shards_per_silo": 2,
        **changes,
    }
    return deal(np.array(labels, dtype=np.int64), **settings_)  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None)
@given(
    labels=labels_lists,
    kind=st.sampled_from(KINDS),
    silos=st.integers(1, 12),
    seed=st.integers(0, 2**40),
    alpha=st.floats(1e-3, 1e3),
    shards_per_silo=st.integers(1, 4),
)
def test_every_record_is_dealt_to_exactly_one_silo(
    labels, kind, silos, seed, alpha, shards_per_silo
):
    choices = {
        "kind": kind,
        "silos": silos,
        "seed": seed,
        "alpha": alpha,
        "shards_per_silo": shards_per_silo,
    }
    parts = _deal(labels, **choices)
    assert len(parts) == silos
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    counts = tuple(np.bincount(labels, minlength=1).tolist()) if labels else (0,)
    assert deal_sizes(counts, **choices) == tuple(len(part) for part in parts)


@pytest.mark.parametrize("kind", KINDS)
def test_the_deal_is_a_function_of_the_seed(kind):
    labels = [index % 5 for index in range(300)]
    first, again, other = (_deal(labels, kind=kind, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_iid_parts_have_sizes_that_differ_by_at_most_one():
    sizes = [len(part) for part in _deal([0] * 101, silos=7)]
    assert max(sizes) - min(sizes) == 1


def test_a_thousand_simulated_silos():
    assert [len(part) for part in _deal([0, 1] * 35_000, silos=1000)] == [70] * 1000


def test_shards_give_a_silo_few_labels():
    labels = np.repeat(np.arange(10), 100)
    parts = _deal(labels.tolist(), kind="shards", silos=10, shards_per_silo=2)
    # 20 shards of 50 never cross a class of 100
    assert max(len(np.unique(labels[part])) for part in parts) == 2
    assert len({tuple(np.unique(labels[part])) for part in parts}) > 1


def test_small_alpha_separates_labels_and_large_alpha_mixes_them():
    labels = np.repeat(np.arange(4), 1000)

    def largest_share(alpha: float) -> float:
        parts = _deal(labels.tolist(), kind="dirichlet", silos=4, alpha=alpha)
        tables = np.array([np.bincount(labels[part], minlength=4) for part in parts])
        return float((tables.max(axis=0) / 1000).mean())

    assert largest_share(1e-3) > 0.99  # one silo holds all of a class
    assert largest_share(1e4) < 0.27  # every silo holds a quarter


def test_dirichlet_shares_have_the_mean_and_variance_of_their_law():
    # share of one silo is Beta(α, (N − 1)·α): mean 1/N, variance (N − 1) / (N²·(N·α + 1)); the
    # seeds are fixed, so it cannot flake
    alpha, silos, classes = 0.7, 5, 20_000
    sizes = np.array(
        deal_sizes(
            (10**6,) * 1, kind="dirichlet", silos=silos, seed=0, alpha=alpha, shards_per_silo=1
        )
    )
    assert sizes.sum() == 10**6
    from sumus.data.partition import _dirichlet_sizes

    shares = _dirichlet_sizes((10**6,) * classes, silos, 3, alpha) / 1e6
    variance = (silos - 1) / (silos**2 * (silos * alpha + 1))
    assert shares[:, 0].mean() == pytest.approx(1 / silos, abs=5 * np.sqrt(variance / classes))
    assert shares[:, 0].var() == pytest.approx(variance, rel=0.05)


@settings(max_examples=200, deadline=None)
@given(
    count=st.integers(0, 500),
    test=st.floats(0, 0.99),
    validation=st.floats(0, 0.99),
    seed=st.integers(0, 9),
)
def test_a_split_is_disjoint_exhaustive_and_as_large_as_announced(count, test, validation, seed):
    parts = split(count, test_fraction=test, validation_fraction=validation, seed=seed, silo="a")
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))
    assert tuple(len(part) for part in parts) == split_sizes(count, test, validation)
    assert count == 0 or len(parts[0]) >= 1


def test_the_split_of_the_paper():
    assert split_sizes(1000, 0.2, 0.3) == (560, 240, 200)


def test_tuning_never_touches_the_test_part():
    plain = split(500, test_fraction=0.2, validation_fraction=0.0, seed=4, silo="a")
    tuned = split(500, test_fraction=0.2, validation_fraction=0.3, seed=4, silo="a")
    assert np.array_equal(plain[2], tuned[2])
    assert set(tuned[0]) | set(tuned[1]) == set(plain[0])


@settings(max_examples=100, deadline=None)
@given(
    count=st.integers(1, 60),
    test=st.floats(0, 0.99),
    validation=st.floats(0, 0.99),
    seed=st.integers(0, 9),
    data=st.data(),
)
def test_adding_a_record_moves_no_other_record_between_training_and_test(
    count, test, validation, seed, data
):
    """The neighbour of a table: one row more or less, anywhere in it. A split in exact numbers
    moves others, see below.
    """
    x = np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)
    y, gone = np.arange(count) % 2, data.draw(st.integers(0, count - 1))
    kept = np.delete(np.arange(count), gone)
    options = {"test_fraction": test, "validation_fraction": validation, "seed": seed, "silo": "a"}
    whole = split_by_record(x, y, **options)
    fewer = split_by_record(x[kept], y[kept], **options)
    assert sorted(np.concatenate(whole).tolist()) == list(range(count))
    for part, less in zip(whole, fewer, strict=True):
        assert [position for position in part.tolist() if position != gone] == kept[less].tolist()


_NEAR = st.integers(2**24, 2**24 + 3)  # some of them are one float32


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2) | _NEAR, st.integers(0, 1)), min_size=1, max_size=30),
    place=st.integers(0, 29),
    test=st.floats(0.05, 0.95),
    whole=st.booleans(),
)
def test_a_record_more_changes_one_part_by_one_record_whatever_equals_it(rows, place, test, whole):
    """As multisets, for duplicates too and wherever the record stands: who of equal records is
    which does not show.
    """
    place %= len(rows)
    options = {"test_fraction": test, "validation_fraction": 0.3, "seed": 1, "silo": "a"}

    def parts(records):
        x = (
            np.array([value for value, _ in records])
            .reshape(-1, 1)
            .astype(np.int64 if whole else np.float32)
        )
        y = np.array([label for _, label in records], np.int64)
        return [
            Counter(zip(x[part, 0].tolist(), y[part].tolist(), strict=True))
            for part in split_by_record(x, y, **options)
        ]

    more, less = parts(rows), parts(rows[:place] + rows[place + 1 :])
    assert not any(fewer - many for many, fewer in zip(more, less, strict=True))
    assert sum((many - fewer).total() for many, fewer in zip(more, less, strict=True)) == 1


def test_equal_records_are_split_in_the_asked_shares():
    """Six standard deviations of a coin per record; the hashes are of fixed records, so this cannot
    flake.
    """
    options = {"test_fraction": 0.2, "validation_fraction": 0.3, "seed": 0, "silo": "a"}
    train, validation, test = map(
        len, split_by_record(np.zeros((4000, 2), np.float32), np.zeros(4000, np.int64), **options)
    )
    for count, share in ((train, 0.56), (validation, 0.24), (test, 0.2)):
        assert abs(count - 4000 * share) < 6 * (4000 * share * (1 - share)) ** 0.5


def test_the_interval_of_an_accuracy_holds_on_a_table_of_few_different_records():
    """Four silos of 200 equal records, 140 of label 1: the share of label 1 among the test records,
    ± its 95 % interval, covers 70 %.
    """
    x, y = np.zeros((200, 1), np.float32), (np.arange(200) < 140).astype(np.int64)
    covered = 0
    for seed in range(100):
        tested = [
            split_by_record(x, y, test_fraction=0.2, validation_fraction=0.0, seed=seed, silo=silo)[
                2
            ]
            for silo in "abcd"
        ]
        labels = y[np.concatenate(tested)]
        covered += abs(labels.mean() - 0.7) <= 1.96 * (0.21 / len(labels)) ** 0.5
    assert covered >= 85  # of about 95; parts that equal records share cover 22


def test_a_split_in_exact_numbers_moves_other_records():
    """Why the number of records must be public for it: without the first of ten records, others
    change sides.
    """
    options = {"test_fraction": 0.3, "validation_fraction": 0.0, "seed": 0, "silo": "a"}
    whole, fewer = split(10, **options)[2], split(9, **options)[2] + 1
    assert len(set(whole) ^ set(fewer)) > 1


def test_records_are_split_in_the_asked_shares_and_by_silo():
    x = np.random.default_rng(0).normal(size=(4000, 2)).astype(np.float32)
    y = np.zeros(4000, np.int64)
    options = {"test_fraction": 0.2, "validation_fraction": 0.3, "seed": 0}
    # hashes of fixed records: this cannot flake
    train, validation, test = split_by_record(x, y, silo="a", **options)
    assert [len(train) / 4000, len(validation) / 4000, len(test) / 4000] == pytest.approx(
        [0.56, 0.24, 0.2], abs=0.03
    )
    assert not np.array_equal(test, split_by_record(x, y, silo="b", **options)[2])
    assert np.array_equal(
        test, split_by_record(x, y, silo="a", **(options | {"validation_fraction": 0.0}))[2]
    )


def test_silos_are_split_independently():
    one, other = (
        split(500, test_fraction=0.2, validation_fraction=0.0, seed=4, silo=silo)[2]
        for silo in ("a", "b")
    )
    assert not np.array_equal(one, other)


def test_natural_needs_silos_in_the_data():
    with pytest.raises(DataError, match="iid, shards or dirichlet"):
        _deal([0, 1], kind="natural")
    with pytest.raises(DataError, match="iid, shards or dirichlet"):
        deal_sizes((1, 1), kind="natural", silos=2, seed=0, alpha=1.0, shards_per_silo=1)


@pytest.mark.parametrize("same_hash", [False, True])
def test_copies_are_counted_among_equal_records_only(same_hash, monkeypatch):
    if same_hash:  # as if unlike records had met in 64 bits
        monkeypatch.setattr(partition, "_mixed", lambda record: np.zeros(len(record[0]), np.uint64))
    x = np.array([[2**24], [2**24 + 1], [2**24], [7], [2**24]])
    y = np.array([0, 0, 0, 0, 1])
    assert partition._copies_before(x, y).tolist() == [0, 0, 1, 0, 0]
