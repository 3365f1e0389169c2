"""Where a table lies and what kind of file it is, before a value of it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sumus.data.locations import find
from sumus.errors import DataError
from sumus.plan import TrainingPlan

__all__ = ["check_kind", "data_folder", "locate"]

_SHEET = "Save the sheet as CSV (UTF-8) in the program that made it"
_KINDS = {
    b"PK\x03\x04": f"is an Excel workbook or another zip archive. {_SHEET}, or unpack it",
    b"\xd0\xcf\x11\xe0": f"is an old Excel workbook. {_SHEET}",
    b"BZh": "is packed with bzip2. Unpack it (bunzip2)",
    b"\xfd7zX": "is packed with xz. Unpack it (unxz)",
    b"\x28\xb5\x2f\xfd": "is packed with zstandard. Unpack it (unzstd)",
    b"ARROW1": "is a Feather file. Save it as Parquet or CSV",
    b"SQLite": "is an SQLite database. Save the table as CSV",
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
    if file is None or not file.is_file():
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


def check_kind(path: Path) -> Literal["csv", "parquet"]:
    """Tell a Parquet file from text by its first bytes; refuse what is neither, with the way
    out.
    """
    with path.open("rb") as file:
        first = file.read(8)
    if first.startswith(b"PAR1"):
        return "parquet"
    for magic, told in _KINDS.items():
        if first.startswith(magic):
            raise DataError(f"{path} {told}.")
    if path.suffix.lower() in (".parquet", ".pq"):
        raise DataError(
            f"{path} is named like a Parquet file but is none. Save it again, or rename it to .csv."
        )
    return "csv"
