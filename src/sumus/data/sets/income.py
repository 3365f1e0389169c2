"""ACS Income 2018: does a person earn more than $50,000? One silo per US state and Puerto Rico,
1.45 million records.

US Census public-use microdata as selected by ACSIncome (Ding, Hardt, Miller, Schmidt 2021,
arXiv:2108.04884). Two ways lead to the same file `acs_income_2018.parquet`: the prepared file
itself, or the folktables package and `sumus data prepare income`.

Every feature is a fixed function of one record and of the published code lists; no statistic of the
records is used. Occupation is grouped in steps of 50 codes of the 2018 Census occupation list,
place of birth by continent, schooling and relationship by level, age and weekly hours by piecewise
linear functions at public knots. Logistic regression without privacy reaches 80.9 % (a plain scaled
age and hours with the 26 major occupation groups: 79.5 %; every single occupation, 1,092 features:
81.3 %).
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sumus.data.catalogue_entry import NamedSet
from sumus.data.columns import hats
from sumus.data.locations import find, missing
from sumus.data.pool import Pool
from sumus.errors import DataError
from sumus.tasks import LabelFacts, Labels

__all__ = [
    "CLASS_COUNTS",
    "FILE",
    "SETS",
    "STATE_COUNTS",
    "encode_income",
    "income_place",
    "income_width",
    "prepare_income",
    "state_counts",
]

FILE = "acs_income_2018.parquet"
HOW = (
    f"Put {FILE} into ~/.cache/sumus (or set SUMUS_DATA to its folder), or run: pip install "
    "folktables && "
    "sumus data prepare income --download"
)
_LABELS = LabelFacts(("at most $50,000", "more than $50,000"))
CLASS_COUNTS = (921_253, 530_039)
STATE_COUNTS = {
    "AK": 3463, "AL": 22268, "AR": 13925, "AZ": 33221, "CA": 32166, "CO": 31306, "CT": 19785, "DE": 4712, "FL": 49462,
    "GA": 50915, "HI": 7731, "IA": 17745, "ID": 8265, "IL": 67016, "IN": 35022, "KS": 15807, "KY": 22006, "LA": 20623,
    "MA": 40114, "MD": 33042, "ME": 7002, "MI": 50008, "MN": 30991, "MO": 31664, "MS": 13186, "MT": 5463, "NC": 52067,
    "ND": 4455, "NE": 10780, "NH": 7966, "NJ": 47781, "NM": 8711, "NV": 14807, "NY": 103021, "OH": 62134, "OK": 17917,
    "OR": 21905, "PA": 68308, "PR": 9071, "RI": 5712, "SC": 24879, "SD": 4899, "TN": 34003, "TX": 135924, "UT": 16337,
    "VA": 46144, "VT": 3767, "WA": 39944, "WI": 32690, "WV": 8098, "WY": 3064,
}  # fmt: skip

# Groups of consecutive codes: a code belongs to the last start that does not exceed it
_GROUP_STARTS: dict[str, tuple[int, ...]] = {
    "COW": tuple(range(1, 10)),  # class of worker
    # schooling: below grade 9, …, high school, college, …, doctorate
    "SCHL": (1, 12, 16, 18, 19, 20, 21, 22, 23, 24),
    "MAR": (1, 2),  # married, other
    "RELP": (0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 13, 16, 17),  # relationship to the householder
    "SEX": (1, 2),
    "RAC2": (1, 2),  # white, other
    # born in: a state, a territory, Europe, Asia, the Americas, Africa, Oceania
    "POBP": (1, 60, 100, 200, 300, 400, 500),
}
_KNOTS = {"AGEP": (17, 22, 27, 35, 45, 55, 65, 75, 95), "WKHP": (1, 20, 35, 40, 50, 60, 99)}
_CODES_A_GROUP = 50
_OCCUPATION_GROUPS = 197
_UNUSED_GROUPS = frozenset(
    (
        5,
        9,
        23,
        25,
        45,
        49,
        53,
        59,
        67,
        69,
        91,
        101,
        109,
        113,
        115,
        119,
        123,
        131,
        138,
        141,
        149,
        153,
        161,
        163,
        168,
        189,
    )
)  # no code of the 2018 occupation list falls into these groups; whatever else may turn up shares one feature
_RANGES = {
    "AGEP": (0, 130), "COW": (1, 9), "SCHL": (1, 24), "MAR": (1, 5), "OCCP": (0, 9999), "POBP": (1, 999), "RELP": (0, 17),
    "WKHP": (0, 168), "SEX": (1, 2), "RAC2": (1, 2),
}  # fmt: skip
_ROWS_AT_ONCE = 8192  # 7 MB of float32: a block is written while it is in the cache


def income_width() -> int:
    """Features of one encoded record."""
    return (
        sum(map(len, _GROUP_STARTS.values()))
        + sum(map(len, _KNOTS.values()))
        + len(_occupation_features()[1])
    )


def income_place(cache: Path | None = None) -> Path:
    """The Parquet file."""
    path = find(FILE, cache=cache)
    if path is None:
        raise missing("income", HOW)
    return path


def _load(cache: Path | None = None) -> Pool:
    """All records, with one silo per state in alphabetical order."""
    path = income_place(cache)
    table = _read(path, [*_RANGES, "PINCP", "STATE"])
    columns = {name: table[name].to_numpy().copy() for name in _RANGES}
    for name, (low, high) in _RANGES.items():
        values = columns[name]
        if values.dtype.kind not in "iu" or (
            len(values) and not low <= values.min() <= values.max() <= high
        ):
            raise DataError(
                f"{path}: column {name} must hold codes {low} … {high}. Get the file again: {HOW}"
            )
    labels = table["PINCP"].to_numpy().astype(np.int64)
    if not set(np.unique(labels)) <= {0, 1}:
        raise DataError(
            f"{path}: column PINCP must hold 0 or 1 (income above $50,000). Get the file again: "
            f"{HOW}"
        )
    states = table["STATE"].combine_chunks().dictionary_encode()
    names = np.array(states.dictionary.to_pylist())
    order = np.argsort(names)
    silo_of = np.argsort(order).astype(np.uint8)[states.indices.to_numpy()]
    del table, states
    importlib.import_module("pyarrow").default_memory_pool().release_unused()
    return Pool(
        name="income",
        labels=Labels(labels, _LABELS),
        encode=lambda rows: encode_income({name: values[rows] for name, values in columns.items()}),
        shape=(income_width(),),
        silo_names=tuple(str(name) for name in names[order]),
        silo_of=silo_of.astype(np.int64),
        assumptions=(
            "record counts per state are published by the Census Bureau and taken as public",
            "features use the published code lists and fixed knots only, no statistic of the "
            "records",
        ),
    )


def state_counts(cache: Path | None = None) -> dict[str, int]:
    """Records of each state: counted in the file if it is here, otherwise those of the published
    selection.
    """
    path = find(FILE, cache=cache)
    if path is None:
        return dict(STATE_COUNTS)
    counted = _read(path, ["STATE"])["STATE"].value_counts().to_pylist()
    return {
        row["values"]: row["counts"] for row in sorted(counted, key=lambda row: str(row["values"]))
    }


def encode_income(columns: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    """Features of records given as integer code columns: every group of features sums to one, so
    all records have about one norm.

    Args:
        columns: AGEP, COW, SCHL, MAR, OCCP, POBP, RELP, WKHP, SEX and RAC2, of equal length, within
            the ranges of their codes.
    """
    rows = len(columns["OCCP"])
    out = np.zeros((rows, income_width()), dtype=np.float32)
    for start in range(0, rows, _ROWS_AT_ONCE):
        block = {name: values[start : start + _ROWS_AT_ONCE] for name, values in columns.items()}
        _encode_block(block, out[start : start + _ROWS_AT_ONCE])
    return out


def _encode_block(columns: dict[str, NDArray[Any]], out: NDArray[np.float32]) -> None:
    flat, first = out.reshape(-1), np.arange(len(out)) * out.shape[1]
    for name, places in _places().items():
        flat[first + places[columns[name]]] = 1.0
    for name, (offset, shares) in _shares().items():
        out[:, offset : offset + shares.shape[1]] = shares[columns[name]]


@cache
def _places() -> dict[str, NDArray[np.int64]]:
    """Feature of every code of the columns that are groups."""
    places, offset = {}, 0
    for name, starts in _GROUP_STARTS.items():
        codes = np.arange(_RANGES[name][1] + 1)
        places[name] = offset + np.searchsorted(starts, codes, side="right") - 1
        offset += len(starts)
    lookup, _ = _occupation_features()
    codes = np.arange(_RANGES["OCCP"][1] + 1)
    groups = np.minimum(codes // _CODES_A_GROUP, _OCCUPATION_GROUPS)
    return places | {"OCCP": offset + sum(map(len, _KNOTS.values())) + lookup[groups]}


@cache
def _shares() -> dict[str, tuple[int, NDArray[np.float32]]]:
    """First feature of the columns that are numbers, and the features of every number."""
    shares, offset = {}, sum(map(len, _GROUP_STARTS.values()))
    for name, knots in _KNOTS.items():
        numbers = np.arange(_RANGES[name][1] + 1, dtype=np.float64)
        shares[name] = offset, hats(numbers, np.array(knots, dtype=np.float64))
        offset += len(knots)
    return shares


def _occupation_features() -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Feature of each group of 50 occupation codes (the last entry: codes beyond the list), and the
    names of the features.
    """
    used = [group for group in range(_OCCUPATION_GROUPS) if group not in _UNUSED_GROUPS]
    lookup = np.full(_OCCUPATION_GROUPS + 1, len(used), dtype=np.int64)
    lookup[used] = np.arange(len(used))
    return lookup, (*(f"OCCP {group * _CODES_A_GROUP}…" for group in used), "OCCP other")


def _read(path: Path, columns: list[str]) -> Any:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(
            "data set 'income' is a Parquet file, which needs pyarrow. Run: pip install "
            "'sumus[train]'"
        ) from None
    try:
        # not `read_table`, which imports pyarrow's data sets and with them pandas
        return parquet.ParquetFile(path).read(columns=columns)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise DataError(f"{path} cannot be read: {str(error).splitlines()[0]}. {HOW}") from None


def prepare_income(into: Path, download: bool) -> None:
    """Write the selection of ACSIncome 2018 as one Parquet file, from files that folktables keeps
    below the same folder.

    Args:
        into: folder of the Parquet file.
        download: let folktables fetch missing Census files; never done unless asked for.
    """
    try:
        folktables = importlib.import_module("folktables")
        arrow, parquet = (
            importlib.import_module("pyarrow"),
            importlib.import_module("pyarrow.parquet"),
        )
    except ImportError as error:
        raise missing("income", f"{error.name} is not installed. {HOW}") from None
    source = folktables.ACSDataSource(
        survey_year="2018", horizon="1-Year", survey="person", root_dir=str(into / "folktables")
    )
    parts = []
    for state in STATE_COUNTS:
        try:
            frame = folktables.adult_filter(source.get_data(states=[state], download=download))
        except FileNotFoundError:
            raise missing(
                "income",
                f"The Census file of {state} is not below {into}. Run: sumus data prepare income "
                "--download",
            ) from None
        codes = {
            name: frame[name].to_numpy()
            for name in ("AGEP", "COW", "SCHL", "OCCP", "POBP", "RELP", "WKHP", "SEX")
        }
        codes["MAR"] = np.where(frame["MAR"].to_numpy() == 1, 1, 2)
        codes["RAC2"] = np.where(frame["RAC1P"].to_numpy() == 1, 1, 2)
        codes["PINCP"] = frame["PINCP"].to_numpy() > 50_000
        entries = {
            name: arrow.array(np.nan_to_num(values).astype(np.int16))
            for name, values in codes.items()
        }
        parts.append(arrow.table({**entries, "STATE": [state] * len(frame)}))
    into.mkdir(parents=True, exist_ok=True)
    draft = into / f"{FILE}.draft"
    parquet.write_table(arrow.concat_tables(parts), draft)
    draft.replace(into / FILE)


SETS = (
    NamedSet(
        name="income",
        title="ACS Income 2018, one silo per US state and Puerto Rico",
        shape=(income_width(),),
        labels=_LABELS,
        class_counts=CLASS_COUNTS,
        default_silos=len(STATE_COUNTS),
        place=income_place,
        load=_load,
        natural_counts=state_counts,
        prepare=prepare_income,
    ),
)
