"""Reads a sheet of an Excel workbook into columns, cell by cell and without what only Excel knows:
colours, widths, formulas.
"""

from __future__ import annotations

import datetime
import importlib
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sumus.data.columns import TextColumn
from sumus.data.csv_table import columns_of_rows
from sumus.data.packed import RATIO, most_unpacked
from sumus.errors import DataError

__all__ = ["is_workbook", "read_xlsx"]

_ERRORS = frozenset(("#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#N/A"))
_FORMULA = re.compile(rb"<(\w+:)?f[\s/>]")
_ENCODING = re.compile(rb"\A\s*<\?xml[^>]*?\bencoding\s*=\s*[\"']([^\"']*)[\"']")
_EPOCH = datetime.datetime(1970, 1, 1)
_DAY = datetime.timedelta(days=1)


def is_workbook(path: Path) -> bool:
    """Whether a zip archive is an Excel workbook."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "xl/workbook.xml" in archive.namelist()
    except (zipfile.BadZipFile, OSError, NotImplementedError):
        raise DataError(f"{path} is a damaged zip archive. Get it again.") from None


def read_xlsx(path: Path, *, sheet: str | None = None) -> dict[str, TextColumn]:
    """All columns of a sheet whose first row that is not empty holds their names.

    A cell counts with the value that it shows: a formula with its result, a date or time with its
    days since 1970, an error as missing. Everything else is as in `read_csv`.

    Args:
        path: the workbook.
        sheet: `data.sheet`; omitted: the first one.
    """
    try:
        openpyxl = importlib.import_module("openpyxl")
    except ImportError:
        raise DataError(
            f"{path} is an Excel workbook, which needs openpyxl. Run: pip install 'sumus[tables]' "
            "(or save the sheet as CSV)."
        ) from None
    try:
        formulas = _check_archive(path)
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        try:
            rows = _sheet(path, book, sheet)
            if not formulas:
                return columns_of_rows(path, _rows(rows))
            source = openpyxl.load_workbook(path, read_only=True)
            try:
                _require_results(path, _sheet(path, source, sheet), rows)
            finally:
                source.close()
            return columns_of_rows(path, _rows(rows))
        finally:
            book.close()
    except DataError:
        raise
    except Exception as error:  # a broken workbook fails at many places of openpyxl
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DataError(
            f"{path} cannot be read as an Excel workbook: {reason}. Save the sheet as CSV."
        ) from None


def _check_archive(path: Path) -> bool:
    """Whether there are formulas; refuses archives that would fill the memory, and documents that
    define entities.
    """
    formulas = False
    with zipfile.ZipFile(path) as archive:
        if sum(member.file_size for member in archive.infolist()) > most_unpacked(path):
            raise DataError(
                f"{path} unpacks to more than {RATIO} times its size, like a file made to fill a "
                "machine. Save the sheet as CSV if you trust it."
            )
        for name in archive.namelist():
            content = archive.read(name)
            if not name.lower().endswith((".xml", ".rels")) and not _may_be_xml(content):
                continue
            if not _is_utf8(content):
                raise DataError(
                    f"{path} holds XML in another encoding than UTF-8, which no workbook does. Save "
                    "the sheet as CSV if you trust it."
                )
            if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
                raise DataError(
                    f"{path} defines entities of its own, which no workbook does. Save the sheet as "
                    "CSV if you trust it."
                )
            formulas |= not name.startswith("xl/charts/") and bool(_FORMULA.search(content))
    return formulas


def _may_be_xml(content: bytes) -> bool:
    """Whether a parser could take these bytes for a document, under whatever name."""
    start = content[:64].lstrip(b"\xef\xbb\xbf\xfe\xff\0 \t\r\n")
    return start.startswith(b"<")


def _is_utf8(content: bytes) -> bool:
    """Whether a parser reads these bytes as the check below does."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    declared = _ENCODING.match(content.removeprefix(b"\xef\xbb\xbf"))
    return "\0" not in text and (
        declared is None or declared[1].lower() in (b"utf-8", b"utf8", b"us-ascii")
    )


def _sheet(path: Path, book: Any, sheet: str | None) -> Any:
    names = [each.title for each in book.worksheets]
    if not names:
        raise DataError(f"{path} has no sheet of cells. Save the table as CSV.")
    if sheet is not None and sheet not in names:
        listed = ", ".join(names[:12])
        raise DataError(f"data.sheet: {path.name} has no sheet {sheet!r}. Sheets: {listed}.")
    found = book[sheet or names[0]]
    found.reset_dimensions()  # what the file says of its size may be wrong
    return found


def _require_results(path: Path, source: Any, sheet: Any) -> None:
    """Refuse formulas whose results are not in the file: their cells would pass for empty."""
    for formulas, values in zip(
        source.iter_rows(), sheet.iter_rows(values_only=True), strict=False
    ):
        for cell, value in zip(formulas, values, strict=False):
            if value is None and getattr(cell, "data_type", None) == "f":
                raise DataError(
                    f"{path}: cell {cell.coordinate} holds a formula that was never computed. Open "
                    "and save the workbook in a spreadsheet program."
                )


def _rows(sheet: Any) -> Iterator[list[str]]:
    """Rows with a value, as strings, all as long as the header or the error says so."""
    width: int | None = None
    for values in sheet.iter_rows(values_only=True):
        row = [_text(value) for value in values]
        while row and not row[-1]:
            row.pop()
        if not row:
            continue
        width = width or len(row)
        yield row + [""] * (width - len(row))


def _text(value: Any) -> str:
    """What a cell shows, spelt as in a CSV file."""
    if value is None:
        return ""
    if isinstance(value, datetime.datetime):
        return repr((value - _EPOCH) / _DAY)
    if isinstance(value, datetime.date):
        return repr(float((value - _EPOCH.date()).days))
    if isinstance(value, datetime.time):
        return repr(
            datetime.timedelta(
                hours=value.hour,
                minutes=value.minute,
                seconds=value.second,
                microseconds=value.microsecond,
            )
            / _DAY
        )
    if isinstance(value, datetime.timedelta):
        return repr(value / _DAY)
    text = str(value).strip()
    return "" if text in _ERRORS else text
