"""From a place on disk to columns, whatever kind of file, folder or query lies there."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from sumus.data.columns import Column
from sumus.data.csv_table import read_csv
from sumus.data.folder_table import join_tables, table_files
from sumus.data.parquet_table import read_arrow, read_parquet
from sumus.data.query_table import SiloSource, read_query
from sumus.data.table_files import Kind, kind_of
from sumus.data.xlsx_table import read_xlsx
from sumus.errors import DataError
from sumus.plan import DataPlan

__all__ = ["ReadingRules", "forget_large", "read_table"]

_KEPT = 5_000_000  # values of a table that stays in memory


@final
@dataclass(frozen=True)
class ReadingRules:
    """What a plan says about how its file is written."""

    encoding: str | None = None
    sheet: str | None = None

    @classmethod
    def of(cls, data: DataPlan) -> ReadingRules:
        """As the plan says."""
        return cls(data.encoding, data.sheet)


def read_table(
    path: Path, rules: ReadingRules, *, as_asked: bool = False
) -> tuple[dict[str, Column], bool]:
    """All columns, and whether a schema declares what is a number.

    One reading serves facts, check and load; a file that has changed is read again, and a query is
    asked every time.

    Args:
        path: a file, a folder of files or a silo's source file.
        rules: what the plan says about it.
        as_asked: rows of a query in its own order, not sorted.
    """
    if path.is_dir():
        files = table_files(path)
        return _of_folder(path, tuple((file, *_state(file)) for file in files), rules)
    if kind_of(path) == "query":
        asked = SiloSource.load(path)
        if asked.file is None:
            return read_query(path, asked, as_asked=as_asked)
        inner = path.parent / asked.file
        if not inner.exists() or (inner.is_file() and kind_of(inner) == "query"):
            raise DataError(f"{path}: file {asked.file!r} must be a table. Correct the path.")
        return read_table(inner, ReadingRules(asked.encoding or rules.encoding, asked.sheet))
    return _of_file(path, *_state(path), rules)


def forget_large(columns: Mapping[str, Column]) -> None:
    """Let go of a table whose records have been loaded, if it is so large that reading it again is
    better than keeping it.
    """
    if sum(map(len, columns.values())) > _KEPT:
        _of_file.cache_clear()
        _of_folder.cache_clear()
        if (arrow := sys.modules.get("pyarrow")) is not None:
            arrow.default_memory_pool().release_unused()


def _state(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_mtime_ns, state.st_size


@functools.lru_cache(maxsize=2)
def _of_file(
    path: Path, modified_ns: int, size: int, rules: ReadingRules
) -> tuple[dict[str, Column], bool]:
    kind = kind_of(path)
    return _reader(kind, rules)(path), kind in ("parquet", "arrow", "stream")


@functools.lru_cache(maxsize=1)
def _of_folder(
    path: Path, files: tuple[tuple[Path, int, int], ...], rules: ReadingRules
) -> tuple[dict[str, Column], bool]:
    kinds = {kind_of(file): file for file, *_ in files}
    if len(kinds) > 1:
        names = " and ".join(file.name for file in list(kinds.values())[:2])
        raise DataError(
            f"data.path: the files of {path} are of different kinds, such as {names}. Keep one kind."
        )
    (kind,) = kinds
    if kind in ("query", "xlsx"):
        raise DataError(
            f"data.path: folder {path} must hold Parquet, Arrow or CSV files. Name a single file."
        )
    columns = join_tables(path, [file for file, *_ in files], _reader(kind, rules))
    return columns, kind in ("parquet", "arrow", "stream")


def _reader(kind: Kind, rules: ReadingRules) -> Callable[[Path], dict[str, Column]]:
    readers: dict[Kind, Callable[[Path], dict[str, Column]]] = {
        "csv": lambda path: dict(read_csv(path, encoding=rules.encoding)),
        "parquet": read_parquet,
        "arrow": read_arrow,
        "stream": lambda path: read_arrow(path, stream=True),
        "xlsx": lambda path: dict(read_xlsx(path, sheet=rules.sheet)),
    }
    return readers[kind]
