"""Whose row it is: the rows of a person side by side, in one part of one silo.

A person is one unit of privacy. Which part it is in and which of its rows count follow from that
person alone, so that one person more or less moves nobody else.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sumus.data.columns import Column, NumberColumn, TextColumn
from sumus.data.labels import as_text
from sumus.data.partition import first_by_key, record_keys
from sumus.data.silos import Records
from sumus.errors import DataError
from sumus.plan import TrainingPlan

__all__ = ["PersonRules", "by_person", "first_units", "identifiers", "ids_of_objects"]

Indices = NDArray[np.int64]
_DIGITS = 53  # whole numbers of so many binary digits are told apart in double precision
_ANY_TEXT_OR_NUMBER = "iufUSTO"  # kinds of arrays; others spell a value by what stands beside it


@final
@dataclass(frozen=True, kw_only=True)
class PersonRules:
    """What a plan says about the rows of a person.

    Args:
        most: M, rows of a person that count.
        silos: the most silos that one person is in. With one the parts of different silos are drawn
            apart; with more a person is in the same part everywhere, by its identifier.
        test_fraction: a person's chance to be kept for testing.
        validation_fraction: of those who are not, the chance to be kept for tuning.
        seed: public seed of the split.
    """

    most: int
    silos: int
    test_fraction: float
    validation_fraction: float
    seed: int

    @classmethod
    def of(cls, plan: TrainingPlan) -> PersonRules:
        """As the plan says."""
        return cls(
            most=plan.rows_per_person,
            silos=plan.privacy.silos_per_person,
            test_fraction=plan.data.test_fraction,
            validation_fraction=plan.data.validation_fraction,
            seed=plan.data.split_seed,
        )


def identifiers(column: Column, key: str) -> TextColumn:
    """A column as identifiers of persons, each distinct value a person.

    Guarantee: values that differ in more than the spelling of one number are two persons, and no
        row is without one. A fault names how many rows there are, never a row.

    Args:
        column: text, or whole numbers that double precision tells apart.
        key: what names the column, for errors.
    """
    if isinstance(column, NumberColumn):
        _require_whole(column.values, _DIGITS, f"{key} {column.name!r}")
    text = as_text(column)
    _require_all(int(np.count_nonzero(text.codes < 0)), f"{key} {column.name!r}")
    return text


def ids_of_objects(given: NDArray[Any], where: str) -> TextColumn:
    """Identifiers that were given in Python, numbers or text, in the spelling of `identifiers`.

    Guarantee: a value's spelling follows from that value alone, whatever type the values beside it
        give the array: 1, 1.0 and "1.0" are one person in every array.

    Args:
        given: one identifier per row; None, NaN and empty text are missing.
        where: whose they are, for errors.
    """
    what = f"{where} 'groups'"
    if given.dtype.kind not in _ANY_TEXT_OR_NUMBER:
        raise DataError(
            f"{what} must hold text or whole numbers, got {given.dtype}. Pass the identifiers as "
            "text."
        )
    if given.dtype.kind == "f":
        column = NumberColumn("groups", given.astype(np.float64))
        _require_whole(column.values, int(np.finfo(given.dtype).nmant) + 1, what)
        return identifiers(column, where)
    values = given.tolist()
    for kind in {type(value) for value in values if isinstance(value, float | np.floating)}:
        same = np.array([value for value in values if type(value) is kind], dtype=np.float64)
        _require_whole(same, int(np.finfo(kind).nmant) + 1, what)
    numbers: dict[str, int] = {}
    codes = np.fromiter(
        (
            -1 if _is_missing(value) else numbers.setdefault(_text_of(value), len(numbers))
            for value in values
        ),
        dtype=np.int32,
        count=len(values),
    )
    _require_all(int(np.count_nonzero(codes < 0)), what)
    return as_text(TextColumn("groups", tuple(numbers), codes))


def by_person(
    x: NDArray[np.float32 | np.int64],
    y: NDArray[Any],
    ids: TextColumn,
    *,
    rules: PersonRules,
    silo: str,
) -> tuple[tuple[Records, Records, Records], int]:
    """Training, validation and test parts of a silo, each person with all its rows in one of them,
    and how many rows were left out because their person has more than M.

        part of a person = coins of the given probabilities, decided by SHA-256(seed, silo, identifier)

    Guarantee: adding or removing one person with all its rows adds them to, or removes them from,
        one part and changes nothing else, wherever they stand; at most M rows of a person are in,
        chosen by a keyed order of the rows' own content. The test part does not depend on
        `validation_fraction`.

    Args:
        x: encoded rows.
        y: their labels.
        ids: whose rows they are.
        silo: its name.
    """
    codes, first, person = np.unique(ids.codes, return_index=True, return_inverse=True)
    appearing = np.argsort(first)  # persons in the order of their first rows
    rank = np.empty(len(codes), dtype=np.int64)
    rank[appearing] = np.arange(len(codes))
    names = [ids.values[code] for code in codes[appearing]]
    rows = np.argsort(rank[person], kind="stable").astype(np.int64)
    counts = np.bincount(rank[person], minlength=len(codes))
    rows, kept = _at_most(rules.most, rows, counts, x, y, f"{rules.seed}/{silo}")
    part = _parts(names, rules, silo)
    owner = np.repeat(np.arange(len(kept)), kept)
    return (
        _of_part(0, part, x, y, rows, owner),
        _of_part(1, part, x, y, rows, owner),
        _of_part(2, part, x, y, rows, owner),
    ), len(y) - len(rows)


def first_units(records: Records, count: int, *, seed: int, silo: str) -> Indices:
    """Positions of the `count` units that come first in a keyed order of their own content, of all
    if there are no more; a person's content is the multiset of its rows.

    Guarantee: as `first_by_key`, with persons in the place of records.
    """
    if records.persons is None:
        return first_by_key(records.x, records.y, count, seed=seed, silo=silo)
    if records.units <= count:
        return np.arange(records.units)
    key = f"sumus persons within a bound/{seed}/{silo}"
    of_rows = record_keys(records.x, records.y, key)
    prefix, edges = hashlib.sha256(key.encode()).digest(), records.edges
    digests = [
        hashlib.sha256(prefix + b"".join(sorted(map(bytes, of_rows[start:end])))).digest()
        for start, end in itertools.pairwise(edges)
    ]
    order = sorted(range(records.units), key=digests.__getitem__)
    return np.sort(np.array(order[:count], dtype=np.int64))


def _at_most(
    most: int,
    rows: Indices,
    counts: Indices,
    x: NDArray[np.float32 | np.int64],
    y: NDArray[Any],
    key: str,
) -> tuple[Indices, Indices]:
    """The rows that stay, still person by person, and how many each person keeps."""
    if not len(counts) or counts.max() <= most:
        return rows, counts
    ends = np.cumsum(counts)
    stays = np.ones(len(rows), dtype=np.bool_)
    for person in np.flatnonzero(counts > most):
        own = slice(ends[person] - counts[person], ends[person])
        keys = record_keys(x[rows[own]], y[rows[own]], f"sumus rows of a person/{key}")
        stays[own][np.lexsort((keys[:, 1], keys[:, 0]))[most:]] = False
    return rows[stays], np.minimum(counts, most)


def _parts(names: Sequence[str], rules: PersonRules, silo: str) -> Indices:
    """0, 1 or 2 for every person: trains, validates, tests."""
    where = silo if rules.silos == 1 else "every silo"
    prefix = hashlib.sha256(
        f"sumus split by person/{rules.seed}/{rules.silos == 1}/{where}".encode()
    ).digest()
    digests = b"".join(
        hashlib.sha256(prefix + name.encode(errors="surrogatepass")).digest()[:16] for name in names
    )
    keys = np.frombuffer(digests, dtype="<u8").reshape(len(names), 2)
    shares = (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53  # below 1, always
    validates = np.where(shares[:, 1] < rules.validation_fraction, 1, 0)
    return np.where(shares[:, 0] < rules.test_fraction, 2, validates).astype(np.int64)


def _of_part(
    number: int,
    part: Indices,
    x: NDArray[np.float32 | np.int64],
    y: NDArray[Any],
    rows: Indices,
    owner: Indices,
) -> Records:
    inside = part == number
    renumbered = np.cumsum(inside) - 1
    chosen = inside[owner]
    return Records(x[rows[chosen]], y[rows[chosen]], renumbered[owner[chosen]])


def _text_of(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return str(int(value))
    spelt = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
    return {"-0": "0", "-0.0": "0"}.get(spelt.strip(), spelt.strip())


def _require_whole(values: NDArray[np.float64], digits: int, what: str) -> None:
    """Refuse numbers that may stand for two persons.

    Args:
        digits: binary digits of the type that the numbers came in.
    """
    digits = min(digits, _DIGITS)
    there = values[~np.isnan(values)]
    odd = int(np.count_nonzero((there != np.rint(there)) | (np.abs(there) >= 2.0**digits)))
    if odd:
        raise DataError(
            f"{what} must hold text or whole numbers below 2^{digits}, it does not in "
            f"{_rows(odd)}. Save the identifiers as text."
        )


def _is_missing(value: Any) -> bool:
    """None, NaN, a missing value of a data frame, or text without a character."""
    try:
        return value is None or bool(value != value) or not str(value).strip()
    except TypeError:  # what is missing in a data frame is neither equal nor unequal
        return True


def _require_all(missing: int, what: str) -> None:
    if missing:
        raise DataError(
            f"{what} has no value in {_rows(missing)}. Fill in the identifiers, or leave these rows "
            "out."
        )


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
