"""Where a table lies and what kind of file it is, before a value of it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sumus.data.locations import find
from sumus.data.packed import packing_of, unpacked
from sumus.data.xlsx_table import is_workbook
from sumus.errors import DataError
from sumus.plan import TrainingPlan

__all__ = ["Kind", "data_folder", "kind_of", "locate"]

Kind = Literal["csv", "parquet", "arrow", "stream", "xlsx", "query"]
_SHEET = "Save the sheet as CSV (UTF-8) or .xlsx in the program that made it"
_QUERY = 'Name a .toml file of yours that says database = "…" and query = "SELECT …"'
_KINDS: dict[bytes, Kind] = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "stream",
}
_OTHERS = {
    b"PK\x03\x04": f"is a zip archive and no Excel workbook. Unpack it, or: {_SHEET}",
    b"PK\x05\x06": "is an empty zip archive. Give a CSV or Parquet file",
    b"\xd0\xcf\x11\xe0": f"is an old or encrypted Excel workbook. {_SHEET}",
    b"FEA1": "is a Feather file of version 1. Save it as Parquet",
    b"SQLite": f"is an SQLite database. {_QUERY}",
    b"%PDF": "is a PDF. Save the table as CSV",
}


def locate(given: str, folder: Path | None) -> tuple[Path, str | None]:
    """The file that `data.path` means, and a line where that could surprise.

    A relative path starts at the plan's folder. Where the plan has none, or nothing lies there, the
    current folder and the search path of data sets are tried, and that is said.

    Args:
        given: `data.path`.
        folder: of the plan's file, if the plan came from one.
    """
    path = _expanded(given)
    places = [path] if path.is_absolute() or folder is None else [folder / path, path]
    try:
        there = [place for place in places if place.exists()]
        other = None if there or path.is_absolute() else find(given)
    except OSError as error:
        raise DataError(
            f"data.path {given!r} cannot be read: {error.strerror}. Give another file."
        ) from None
    if not there and other is None:
        where = (
            "beside the plan, in the current folder"
            if folder is not None
            else "in the current folder"
        )
        slashes = (
            " Write / between folders, on Windows too."
            if "\\" in given or not given.isprintable()
            else ""
        )
        raise DataError(
            f"data.path {given!r} does not exist. Give a CSV or Parquet file {where} or below "
            f"$SUMUS_DATA.{slashes}"
        )
    file = there[0] if there else other
    if file is None or not (file.is_file() or file.is_dir()):
        raise DataError(f"data.path {given!r} is not a file. Give a CSV or Parquet file.")
    return file, _surprise(given, file, places, there)


def _expanded(given: str) -> Path:
    """A path with ~ replaced by the home folder it means."""
    try:
        return Path(given).expanduser()
    except RuntimeError:
        raise DataError(
            f"data.path {given!r} begins with the home folder of nobody. Write the path in full."
        ) from None


def data_folder(plan: TrainingPlan) -> Path | None:
    """The folder that the plan's `data.path` starts at on this machine; None without one, or where
    it is absolute.
    """
    path = _expanded(plan.data.path or "/")
    if path.is_absolute():
        return None
    place, _ = locate(str(path), plan.folder)
    return Path(str(place.absolute()).removesuffix(str(path)))


def _surprise(given: str, file: Path, places: list[Path], there: list[Path]) -> str | None:
    if not there:
        return f"data.path {given} was found below the search path of data sets ($SUMUS_DATA)"
    if file != places[0]:
        return f"data.path {given} is not beside the plan: the file of the current folder is used"
    if len(there) == 2 and not there[0].samefile(there[1]):
        return (
            f"data.path {given} is the file beside the plan; the current folder holds another one "
            "of that name"
        )
    return None


def kind_of(path: Path) -> Kind:
    """What kind of table a file holds, by its first bytes; what is none is refused, with the way
    out.
    """
    with path.open("rb") as file:
        first = file.read(16)
    for magic, kind in _KINDS.items():
        if first.startswith(magic):
            return kind
    if first.startswith(b"PK\x03\x04") and is_workbook(path):
        return "xlsx"
    if first[8:12] == b"DUCK":
        raise DataError(f"{path} is a DuckDB database. {_QUERY}.")
    for magic, told in _OTHERS.items():
        if first.startswith(magic):
            raise DataError(f"{path} {told}.")
    if path.suffix.lower() in (".parquet", ".pq"):
        raise DataError(
            f"{path} is named like a Parquet file but is none. Save it again, or rename it to .csv."
        )
    if packing_of(first) is not None:
        with unpacked(path) as inside:
            packed = inside.read(16)
        if any(packed.startswith(magic) for magic in (*_KINDS, *_OTHERS)):
            raise DataError(f"{path} is a packed file of another kind than text. Unpack it.")
        if _is_archive(path):
            raise DataError(f"{path} is a packed archive of files. Unpack it.")
    return "query" if path.suffix.lower() == ".toml" else "csv"


def _is_archive(path: Path) -> bool:
    return any(suffix.lower() in (".tar", ".tgz", ".tbz", ".txz") for suffix in path.suffixes)
