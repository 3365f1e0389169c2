"""Reads what a silo's own source file names into columns: the result of a query, or a file that
needs more words than its path.

    database = "warehouse.duckdb"                # or an SQLite file; omitted: DuckDB over Parquet files
    query = "SELECT hospital, age, label FROM visits"    # or FROM '{folder}/visits/*.parquet'

The query stands in a file of the silo, never in a plan: a plan comes from a coordinator, who must not
be able to choose what is computed on somebody else's database. `data.path` (or `sumus join --data`)
names that file.

    file = "visits.xlsx"                         # instead of a query
    sheet = "2024"                               # or encoding = "latin-1"
"""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from sumus.data.arrow_columns import arrow_columns, import_arrow
from sumus.data.columns import Column, NumberColumn, TextColumn
from sumus.data.csv_table import columns_of_rows
from sumus.errors import DataError
from sumus.files import closest, parse_toml, read_toml
from sumus.plan import ENCODINGS

__all__ = ["SiloSource", "read_query"]

_ROWS_AT_ONCE = 65_536
_FOLDER = "{folder}"
_SAYS_VALUES = ("Conversion Error", "Out of Range Error", "Constraint Error", "Invalid Input Error")
_PARQUET = frozenset(("PARQUET_SCAN", "READ_PARQUET"))
_TYPES_ARE_DECLARED = _PARQUET | {  # where the rows of a query may come from
    "SEQ_SCAN",
    "TABLE_SCAN",
    "INDEX_SCAN",
    "COLUMN_DATA_SCAN",
    "EXPRESSION_SCAN",
    "DUMMY_SCAN",
    "EMPTY_RESULT",
    "CTE_SCAN",
    "REC_CTE_SCAN",
    "RECURSIVE_CTE_SCAN",
    "DELIM_SCAN",
    "RANGE",
    "GENERATE_SERIES",
}
_DUCKDB_RULES = (  # in this order: the last one locks them
    ("autoinstall_known_extensions", "false"),
    ("autoload_known_extensions", "false"),
    ("allow_community_extensions", "false"),
    ("enable_external_access", "false"),
    ("lock_configuration", "true"),
)


@final
@dataclass(frozen=True, kw_only=True)
class SiloSource:
    """What a silo's source file says.

    Args:
        query: one SELECT statement; {folder} is the folder of the source file, the only one from
            which DuckDB reads.
        database: a DuckDB or SQLite file, relative to the source file; None: DuckDB over Parquet files.
        driver: instead, an installed Python driver (DB-API 2.0), such as psycopg.
        connect: what the driver's connect() takes; None: nothing, the driver reads the environment.
        file: instead of a query, a file or folder, relative to the source file.
        sheet: of that file, where it is a workbook.
        encoding: of that file, where it is text.
    """

    query: str = ""
    database: str | None = None
    driver: str | None = None
    connect: str | None = None
    file: str | None = None
    sheet: str | None = None
    encoding: str | None = None

    @classmethod
    def load(cls, path: Path) -> SiloSource:
        """Read a source file, refusing keys it does not know."""
        entries = parse_toml(read_toml(path, "source file"), "source file")
        known = [item.name for item in fields(cls)]
        for name, value in entries.items():
            if name not in known:
                raise DataError(
                    f"{path}: {name!r} is no key of a source file. {closest(name, known)}"
                )
            if not isinstance(value, str) or not value.strip():
                raise DataError(f"{path}: {name} must be text. Write it in quotes.")
        if ("query" in entries) == ("file" in entries):
            raise DataError(f'{path} must say query = "SELECT …" or file = "…", one of them.')
        if entries.get("encoding", ENCODINGS[0]) not in ENCODINGS:
            raise DataError(f"{path}: encoding must be one of {', '.join(ENCODINGS)}.")
        if {"driver", "database"} <= set(entries):
            raise DataError(f"{path} must name a database or a driver, not both. Remove one.")
        return cls(**entries)


def read_query(
    path: Path, asked: SiloSource, *, as_asked: bool = False
) -> tuple[dict[str, Column], bool]:
    """All columns of a query's result, and whether the database declares their types.

    Guarantee: nothing is written: DuckDB and SQLite open the database read-only and run one SELECT,
        without extensions, network or files outside of the source file's folder. Rows are sorted by
        their values: their order in the database does not matter. DuckDB's types are those that
        tables and Parquet files declare, and never hang on a value.

    Args:
        path: the source file.
        asked: what it says.
        as_asked: rows in the query's own order instead.
    """
    columns, typed = _asked(path, asked)
    return columns if as_asked else _sorted_rows(columns), typed


def _asked(path: Path, asked: SiloSource) -> tuple[dict[str, Column], bool]:
    if asked.driver is not None:
        return dict(_by_driver(path, asked)), False
    database = None if asked.database is None else (path.parent / asked.database).resolve()
    if database is None or not _is_sqlite(path, database):
        return _by_duckdb(path, asked.query, database), True
    return dict(_by_sqlite(path, asked.query, database)), False


def _is_sqlite(path: Path, database: Path) -> bool:
    try:
        with database.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError as error:
        raise DataError(
            f"{path}: database {database.name!r} cannot be read: {error.strerror}. Correct the path."
        ) from None


def _by_duckdb(path: Path, query: str, database: Path | None) -> dict[str, Column]:
    try:
        duckdb = importlib.import_module("duckdb")
    except ImportError:
        raise DataError(
            f"{path} needs duckdb. Run: pip install 'sumus[tables]' (or use an SQLite file)."
        ) from None
    folder = str(path.parent.resolve())
    query = query.replace(_FOLDER, folder.replace("'", "''"))
    try:
        with (
            duckdb.connect()
            if database is None
            else duckdb.connect(str(database), read_only=True) as link
        ):
            planner = link.cursor()
            planner.execute("PRAGMA disable_optimizer")  # it leaves out what has no rows
            link.execute("SET allowed_directories = ?", [[folder]])
            for rule, value in _DUCKDB_RULES:
                link.execute(f"SET {rule} = {value}")
            statements = link.extract_statements(query)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise DataError(f"{path}: query must be one SELECT statement. Remove the others.")
            _require_types(path, planner, query)
            table = link.sql(query).to_arrow_table()
            return arrow_columns(import_arrow(str(path), "use an SQLite file"), str(path), table)
    except (duckdb.Error, ValueError) as error:
        raise _failed(path, error) from None


def _require_types(path: Path, planner: Any, query: str) -> None:
    """Refuse a query of which DuckDB guesses names or types of columns from records: one record more
    could then change how all others are encoded.
    """
    (row,) = planner.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()
    sources = set(_sources(json.loads(row[1])))
    guessed = sorted(sources - _TYPES_ARE_DECLARED)
    if guessed:
        raise DataError(
            f"{path}: query must read tables of a database or Parquet files, whose types are "
            f'declared, not {guessed[0].lower()}. Name a text file itself (file = "…"), or load it '
            "into a table."
        )
    if sources & _PARQUET and "hive_types" not in query and _has_partitions(path.parent):
        raise DataError(
            f"{path}: the folder holds folders named column=value, whose types would be guessed. "
            "Read them by read_parquet(…, hive_types_autocast = false)."
        )


def _sources(plan: list[dict[str, Any]]) -> Iterator[str]:
    """What rows are read from, by the leaves of a query's plan."""
    for node in plan:
        if node["children"]:
            yield from _sources(node["children"])
        else:
            yield str(node["name"]).strip()


def _has_partitions(folder: Path) -> bool:
    return any("=" in name for _, folders, _ in os.walk(folder) for name in folders)


def _by_sqlite(path: Path, query: str, database: Path) -> dict[str, TextColumn]:
    link = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)
    try:
        link.text_factory = lambda value: value.decode(errors="replace")
        link.set_authorizer(_may_only_read)
        return _columns(path, link.execute(query))
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise _failed(path, error) from None
    finally:
        link.close()


def _may_only_read(action: int, first: str | None, second: str | None, *_: object) -> int:
    allowed = (
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    )
    harmless = action in allowed and "load_extension" not in (first, second)
    return sqlite3.SQLITE_OK if harmless else sqlite3.SQLITE_DENY


def _by_driver(path: Path, asked: SiloSource) -> dict[str, TextColumn]:
    name = asked.driver or ""
    if not all(part.isidentifier() for part in name.split(".")):
        raise DataError(f"{path}: driver {name!r} is no name of a module. Correct it.")
    try:
        driver = importlib.import_module(name)
    except ImportError:
        raise DataError(
            f"{path}: driver {name!r} is not installed. Install it, or correct the name."
        ) from None
    if getattr(driver, "apilevel", None) != "2.0":
        raise DataError(
            f"{path}: driver {asked.driver!r} is no database driver (DB-API 2.0). Name another."
        )
    try:
        link = driver.connect(*(() if asked.connect is None else (asked.connect,)))
        try:
            cursor = link.cursor()
            cursor.execute(asked.query)
            return _columns(path, cursor)
        finally:
            link.rollback()
            link.close()
    except driver.Error as error:
        raise DataError(
            f"{path}: the query cannot be run: {type(error).__name__} of {asked.driver}. Try it in "
            "the database's own program."
        ) from None


def _columns(path: Path, cursor: Any) -> dict[str, TextColumn]:
    if cursor.description is None:
        raise DataError(f"{path}: query must be one SELECT statement. It gives no rows.")
    return columns_of_rows(path, _rows(cursor))


def _rows(cursor: Any) -> Iterator[list[str]]:
    """Names, then rows as strings."""
    yield [str(column[0]) for column in cursor.description]
    while block := cursor.fetchmany(_ROWS_AT_ONCE):
        for row in block:
            yield ["" if value is None else str(value) for value in row]


def _failed(path: Path, error: Exception) -> DataError:
    reason = (str(error).splitlines() or ["it failed"])[0].rstrip(".")
    if reason.startswith(_SAYS_VALUES):  # a value belongs to somebody
        reason = reason.partition(":")[0]
    return DataError(f"{path}: the query cannot be run: {reason}. Correct it.")


def _sorted_rows(columns: dict[str, Column]) -> dict[str, Column]:
    """The same rows in the order of their values."""
    if not columns or not len(next(iter(columns.values()))):
        return columns
    order = np.lexsort([_ranks(column) for column in reversed(columns.values())])
    out: dict[str, Column] = {}
    for name, column in columns.items():
        if isinstance(column, NumberColumn):
            out[name] = replace(column, values=column.values[order])
        else:
            out[name] = replace(column, codes=column.codes[order])
    return out


def _ranks(column: Column) -> Any:
    if isinstance(column, NumberColumn):
        return column.values
    place: Sequence[int] = np.argsort(np.array([*column.values], dtype=object)).tolist()
    ranks = np.empty(len(place) + 1, dtype=np.int64)
    ranks[list(place)] = np.arange(len(place))
    ranks[-1] = -1
    return ranks[column.codes]
