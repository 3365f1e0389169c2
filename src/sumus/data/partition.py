"""How a pooled data set is dealt to simulated silos, and how a silo splits its records.

Every deal is a function of class labels and of `data.split_seed`. That seed is public and
predictable: it exists to make simulations reproducible and protects nobody. In a real federation
each silo already holds its own records (partition "natural") and only the train/test split applies.
Tables and arrays of one's own are always split by the record itself (`split_by_record`), so that
adding or removing one record moves no other record from one part to another; the split by position
(`split`) is for named public data sets, whose counts and split are public.

    deal(labels, kind="dirichlet", silos=10, seed=0, alpha=0.5)    # one index array per silo: disjoint, exhaustive
    deal_sizes(class_counts, kind="dirichlet", ...)                # their lengths, without the data
    split(1000, test_fraction=0.2, validation_fraction=0.3, …)     # train, validation, test positions, in exact numbers
    split_by_record(x, y, test_fraction=0.2, …)                    # the same with each record apart, numbers left to chance
    first_by_key(x, y, 731, …)                                     # at most 731 records, chosen by a keyed order of their content
"""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from sumus.errors import DataError
from sumus.randomness import RandomSource

__all__ = [
    "deal",
    "deal_sizes",
    "first_by_key",
    "record_keys",
    "split",
    "split_by_record",
    "split_sizes",
]

Indices = NDArray[np.int64]
_AT_ONCE = 16_384  # records that are hashed or compared at once


def deal(
    labels: NDArray[np.int64],
    *,
    kind: str,
    silos: int,
    seed: int,
    alpha: float,
    shards_per_silo: int,
) -> tuple[Indices, ...]:
    """Deal records to simulated silos.

    iid:        a random order cut into N parts whose sizes differ by at most one.
    shards:     records sorted by label, cut into N·`shards_per_silo` runs, dealt at random (McMahan et al. 2017).
    dirichlet:  for each class, shares p ~ Dirichlet(α, …, α) over the N silos (Hsu, Qi, Brown 2019,
        arXiv:1909.06335).

    Guarantee: the parts are disjoint, together hold every record, and depend only on `labels`, the
        kind and the seed.

    Args:
        labels: class of each pooled record.
        kind: iid, shards or dirichlet.
        silos: N.
        seed: public seed of the simulation.
        alpha: α, concentration of the Dirichlet shares; small means unlike silos.
        shards_per_silo: runs of equal label that one silo receives.
    """
    source = RandomSource.simulation(seed, "deal", kind)
    order = source.permutation(len(labels))
    if kind == "iid":
        return tuple(np.array_split(order, silos))
    by_label = order[np.argsort(labels[order], kind="stable")]
    if kind == "shards":
        shards = np.array_split(by_label, silos * shards_per_silo)
        hands = _shard_hands(silos, shards_per_silo, seed)
        return tuple(np.concatenate([shards[index] for index in hand]) for hand in hands)
    if kind == "dirichlet":
        counts = np.bincount(labels, minlength=1)
        sizes = _dirichlet_sizes(tuple(int(count) for count in counts), silos, seed, alpha)
        # class-major: all silos of class 0, then of class 1, …
        runs = np.split(by_label, np.cumsum(sizes.reshape(-1))[:-1])
        return tuple(np.concatenate(runs[silo::silos]) for silo in range(silos))
    raise DataError(
        f"data.partition {kind!r} needs silos of its own in the data. Use iid, shards or dirichlet "
        "for this data set."
    )


def deal_sizes(
    class_counts: tuple[int, ...],
    *,
    kind: str,
    silos: int,
    seed: int,
    alpha: float,
    shards_per_silo: int,
) -> tuple[int, ...]:
    """Lengths of the parts that `deal` makes from records with these class counts."""
    total = sum(class_counts)
    if kind == "iid":
        return _even_sizes(total, silos)
    if kind == "shards":
        sizes = _even_sizes(total, silos * shards_per_silo)
        return tuple(
            sum(sizes[index] for index in hand)
            for hand in _shard_hands(silos, shards_per_silo, seed)
        )
    if kind == "dirichlet":
        return tuple(
            int(size) for size in _dirichlet_sizes(class_counts, silos, seed, alpha).sum(axis=0)
        )
    raise DataError(
        f"data.partition {kind!r} needs silos of its own in the data. Use iid, shards or dirichlet "
        "for this data set."
    )


def split_sizes(
    count: int, test_fraction: float, validation_fraction: float
) -> tuple[int, int, int]:
    """Numbers of training, validation and test records among `count`; one record or more always
    trains.
    """
    test = min(round(count * test_fraction), max(count - 1, 0))
    validation = min(round((count - test) * validation_fraction), max(count - test - 1, 0))
    return count - test - validation, validation, test


def split(
    count: int, *, test_fraction: float, validation_fraction: float, seed: int, silo: str
) -> tuple[Indices, Indices, Indices]:
    """Positions of a silo's training, validation and test records.

    Heikkilä 2025 uses 0.8/0.2 for train/test and, for tuning only, 0.7/0.3 of the training part for
    training and validation.

    Guarantee: the three parts are disjoint and together hold 0 … count − 1; the test part does not
        depend on `validation_fraction`.

    Args:
        count: records of the silo.
        test_fraction: share that is kept for testing.
        validation_fraction: share of what is left that is kept for tuning.
        seed: public seed of the simulation.
        silo: name of the silo, so that silos are split independently.
    """
    _, validation, test = split_sizes(count, test_fraction, validation_fraction)
    order = RandomSource.simulation(seed, "split", silo).permutation(count)
    return order[test + validation :], order[test : test + validation], order[:test]


def split_by_record(
    x: NDArray[np.float32 | np.int64],
    y: NDArray[np.int64],
    *,
    test_fraction: float,
    validation_fraction: float,
    seed: int,
    silo: str,
) -> tuple[Indices, Indices, Indices]:
    """Positions of a silo's training, validation and test records, each record's part a function of
    that record alone.

        part of the k-th of equal records = coin of the given probability, decided by SHA-256(seed,
        silo, record, k)

    One more of m equal records takes the coin m + 1, whichever of them it is: coins 1 … m, and so
    the others' parts, stay.

    Guarantee: adding or removing one record adds it to, or removes it from, one part and changes
        nothing else, wherever it stands (as multisets: who of equal records is which does not
        show); the test part does not depend on `validation_fraction`. Arguments as in `split`.

    Args:
        x: encoded records.
        y: their labels.
    """
    copies = _copies_before(x, y)
    shares = (
        record_keys(x, y, f"sumus split by record/{seed}/{silo}", copies).astype(np.float64)
        * 2.0**-64
    )
    tested = shares[:, 0] < test_fraction
    validating = ~tested & (shares[:, 1] < validation_fraction)
    return np.flatnonzero(~tested & ~validating), np.flatnonzero(validating), np.flatnonzero(tested)


def first_by_key(
    x: NDArray[np.float32 | np.int64], y: NDArray[np.int64], count: int, *, seed: int, silo: str
) -> Indices:
    """Positions of the `count` records that come first in a keyed order of their own content; of
    all if there are no more.

    Guarantee: a record more among at least `count` either is left out itself or takes the place of
        one other record; a record more among fewer leaves out nobody.

    Args:
        count: how many records may stay.
        seed: public; with the silo's name it keys the order. Other arguments as in
            `split_by_record`.
    """
    if len(y) <= count:
        return np.arange(len(y))
    keys = record_keys(x, y, f"sumus records within a bound/{seed}/{silo}")
    return np.sort(np.lexsort((keys[:, 1], keys[:, 0]))[:count])


def _copies_before(x: NDArray[np.float32 | np.int64], y: NDArray[np.int64]) -> Indices:
    """For every record, how many equal ones stand before it. Equal is: the same bits, so that
    unlike records never count each other.
    """
    copies = np.zeros(len(y), dtype=np.int64)
    if len(y) < 2:
        return copies
    record = (_bytes_of(x), _bytes_of(y))
    mixed = _mixed(record)
    order = np.argsort(mixed, kind="stable")
    again = np.flatnonzero(mixed[order[1:]] == mixed[order[:-1]]) + 1
    del mixed
    for start in range(0, len(again), _AT_ONCE):
        here, before = (
            order[again[start : start + _AT_ONCE]],
            order[again[start : start + _AT_ONCE] - 1],
        )
        if any(not np.array_equal(part[here], part[before]) for part in record):
            return _copies_one_by_one(record)  # two unlike records met in 64 bits
    # equal records stand side by side in `order`, the earlier one first
    run = np.zeros(len(order), dtype=np.int64)
    run[again] = 1
    first = np.where(run == 0, np.arange(len(order)), 0)
    copies[order] = np.arange(len(order)) - np.maximum.accumulate(first)
    return copies


def _copies_one_by_one(record: tuple[NDArray[np.uint8], ...]) -> Indices:
    seen: dict[bytes, int] = {}
    copies = np.empty(len(record[0]), dtype=np.int64)
    for place, parts in enumerate(zip(*record, strict=True)):
        key = b"".join(part.tobytes() for part in parts)
        copies[place] = seen.get(key, 0)
        seen[key] = int(copies[place]) + 1
    return copies


def _bytes_of(values: NDArray[Any]) -> NDArray[np.uint8]:
    """One row of bytes per record, without a copy where that is possible."""
    rows = np.ascontiguousarray(values).reshape(len(values), math.prod(values.shape[1:]))
    return rows.view(np.uint8)


def _mixed(record: tuple[NDArray[np.uint8], ...]) -> NDArray[np.uint64]:
    """64 bits per record that are equal for equal records, and for others hardly ever."""
    out = np.zeros(len(record[0]), dtype=np.uint64)
    odd = np.uint64(0x9E3779B97F4A7C15)
    for part in record:
        words = part.view(np.uint32) if part.shape[1] % 4 == 0 else part
        for column in words.T:
            out = (out ^ column) * odd
            out ^= out >> np.uint64(29)
    return out


def record_keys(
    x: NDArray[np.float32 | np.int64],
    y: NDArray[np.int64],
    key: str,
    copies: Indices | None = None,
) -> NDArray[np.uint64]:
    """Two 64-bit numbers per record, a hash of the key, the label, the values and the number of the
    copy, which is 0 if omitted: equal records then have equal numbers.
    """
    prefix = np.frombuffer(hashlib.sha256(key.encode()).digest(), dtype=np.uint8)
    flat = x.reshape(len(x), math.prod(x.shape[1:]))
    keys = np.empty((len(y), 2), dtype="<u8")
    for start in range(0, len(y), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        rows = np.ascontiguousarray(flat[part], dtype="<f4")
        labels = y[part].astype(y.dtype.newbyteorder("<"))
        parts = (np.tile(prefix, (len(rows), 1)), _bytes_of(labels), _bytes_of(rows))
        together = np.concatenate(parts, axis=1)
        width, written = together.shape[1], together.tobytes()
        numbers = itertools.repeat(0) if copies is None else copies[part].tolist()
        keys[part] = np.frombuffer(
            b"".join(
                hashlib.sha256(
                    written[place : place + width]
                    + (number.to_bytes((number.bit_length() + 7) // 8, "little") if number else b"")
                ).digest()[:16]
                for place, number in zip(range(0, len(written), width), numbers, strict=False)
            ),
            dtype="<u8",
        ).reshape(-1, 2)
    return keys


def _even_sizes(total: int, parts: int) -> tuple[int, ...]:
    whole, rest = divmod(total, parts)
    return tuple(whole + (index < rest) for index in range(parts))


def _shard_hands(silos: int, shards_per_silo: int, seed: int) -> list[list[int]]:
    """Which shards each silo receives."""
    order = RandomSource.simulation(seed, "shards").permutation(silos * shards_per_silo)
    return [[int(index) for index in hand] for hand in order.reshape(silos, shards_per_silo)]


def _dirichlet_sizes(
    class_counts: tuple[int, ...], silos: int, seed: int, alpha: float
) -> NDArray[np.int64]:
    """Records of each class (row) that each silo (column) receives; every row sums to its class
    count.
    """
    source = RandomSource.simulation(seed, "dirichlet")
    # Gamma(α) = Gamma(α + 1)·U^(1/α), kept in logarithms: for small α the plain quantile underflows
    # to zero in every silo
    draws = 1.0 - source.uniforms(len(class_counts) * 2 * silos).reshape(
        len(class_counts), 2, silos
    )
    first, second = draws[:, 0], draws[:, 1]
    log_gamma = np.log(np.maximum(gammaincinv(alpha + 1.0, first), 1e-300)) + np.log(second) / alpha
    shares = np.exp(log_gamma - log_gamma.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    ends = np.rint(np.cumsum(shares, axis=1) * np.array(class_counts)[:, None]).astype(np.int64)
    ends[:, -1] = class_counts
    sizes: NDArray[np.int64] = np.diff(ends, axis=1, prepend=0)
    return sizes
