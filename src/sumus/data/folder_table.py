"""A folder of files that are one table together: all Parquet, all Arrow or all CSV, with the same
columns.

Folders named `column=value` add that column, as query engines write partitioned tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from sumus.data.columns import Column, NumberColumn, TextColumn
from sumus.errors import DataError

__all__ = ["join_tables", "table_files"]

_MOST_FILES = 10_000


def table_files(folder: Path) -> list[Path]:
    """The files of a folder and of the folders below, by name; what begins with a point or an
    underscore is left out, as query engines leave out their notes.

    Guarantee: the same files give the same list in the same order; links to folders and what is no
        file at all are refused, never followed and never waited for.
    """
    files: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        for name in folders:
            if (Path(place) / name).is_symlink():
                raise DataError(f"{Path(place) / name} is a link to a folder. Copy its files.")
        for name in sorted(names):
            if name.startswith((".", "_")):
                continue
            if not (Path(place) / name).is_file():
                raise DataError(f"{Path(place) / name} is not a file. Remove it from the folder.")
            files.append(Path(place) / name)
        if len(files) > _MOST_FILES:
            raise DataError(f"{folder} holds more than {_MOST_FILES:,} files. Join some of them.")
    if not files:
        raise DataError(f"{folder} is a folder without files. Put Parquet or CSV files into it.")
    return sorted(files)


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename} cannot be read: {error.strerror}. Check data.path.")


def join_tables(
    folder: Path, files: list[Path], read: Callable[[Path], dict[str, Column]]
) -> dict[str, Column]:
    """All rows of all files, file by file.

    Guarantee: files whose columns differ in names or kinds are refused, by the file's name.

    Args:
        folder: that the files lie below.
        files: as `table_files` lists them.
        read: the columns of one file.
    """
    parts: dict[str, list[Column]] = {}
    for file in files:
        columns = read(file)
        rows = max((len(column) for column in columns.values()), default=0)
        columns |= _partition(folder, file, rows, columns)
        if parts and set(columns) != set(parts):
            other = sorted(set(columns) ^ set(parts))[0]
            has = "is missing" if other in parts else "is new"
            raise DataError(
                f"{folder}: column {other!r} {has} in {file.name}. All files of a folder must have "
                "the same columns."
            )
        for name, column in columns.items():
            parts.setdefault(name, []).append(column)
            kinds = {isinstance(part, NumberColumn) for part in parts[name] if not _is_void(part)}
            if len(kinds) > 1:
                raise DataError(
                    f"{folder}: column {name!r} holds numbers in one file and text in "
                    f"another, up to {file.name}. Give it one type."
                )
    return {name: _joined(name, parts.pop(name)) for name in list(parts)}


def _partition(
    folder: Path, file: Path, rows: int, columns: dict[str, Column]
) -> dict[str, TextColumn]:
    found: dict[str, TextColumn] = {}
    for step in file.relative_to(folder).parts[:-1]:
        name, equals, value = step.partition("=")
        if not equals:
            continue
        name, value = unquote(name).strip(), unquote(value).strip()
        if not name or name in columns or name in found:
            raise DataError(
                f"{folder}: folder {step!r} names column {name!r}, which the files have already. "
                "Rename one of them."
            )
        missing = value in ("", "__HIVE_DEFAULT_PARTITION__")
        found[name] = TextColumn(
            name, () if missing else (value,), np.full(rows, -1 if missing else 0, dtype=np.int32)
        )
    return found


def _is_void(column: Column) -> bool:
    """Whether a file says neither of what type a column is nor holds a value of it."""
    return isinstance(column, TextColumn) and column.untyped and not column.values


def _joined(name: str, parts: list[Column]) -> Column:
    numbers = [part for part in parts if isinstance(part, NumberColumn)]
    if numbers:
        bounds = {part.bounds for part in numbers}
        return NumberColumn(
            name,
            np.concatenate(
                [
                    part.values if isinstance(part, NumberColumn) else np.full(len(part), np.nan)
                    for part in parts
                ]
            ),
            numbers[0].bounds if len(bounds) == 1 else None,
        )
    texts = [part for part in parts if isinstance(part, TextColumn)]
    if len(texts) == 1:
        return texts[0]
    places: dict[str, int] = {}
    codes = []
    for part in texts:
        lookup = [places.setdefault(value, len(places)) for value in part.values]
        codes.append(np.array([*lookup, -1], dtype=np.int32)[part.codes])
    # a list that only some of the files declare is no public list
    typed = [part for part in texts if not _is_void(part)] or texts
    same = len({tuple(part.values) if part.declared else None for part in typed}) == 1
    return replace(
        typed[0],
        values=tuple(places),
        codes=np.concatenate(codes),
        declared=typed[0].declared and same,
    )
