"""Reads a Parquet file into columns; the file's own schema says what is a number, a flag or a
category.
"""

from __future__ import annotations

from pathlib import Path

from sumus.data.arrow_columns import arrow_columns, import_arrow
from sumus.data.columns import Column
from sumus.errors import DataError

__all__ = ["read_parquet"]


def read_parquet(path: Path) -> dict[str, Column]:
    """All columns of a Parquet file, in file order, by the rules of `arrow_columns`.

    Args:
        path: the file.
    """
    what, instead = f"{path} is a Parquet file, which", "save it as CSV"
    arrow = import_arrow(what, instead)
    parquet = import_arrow(what, instead, "pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            return arrow_columns(arrow, str(path), file.read())
    except (
        OSError,
        ValueError,
        KeyError,
        NotImplementedError,
    ) as error:  # arrow's own errors are kinds of these
        reason = (str(error).splitlines() or ["unreadable"])[0].rstrip(".")
        raise DataError(f"{path} cannot be read as Parquet: {reason}. Check data.path.") from None
