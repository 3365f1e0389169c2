"""Reads Parquet and Arrow (Feather) files into columns; the file's own schema says what is a number,
a flag or a category.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sumus.data.arrow_columns import arrow_columns, import_arrow
from sumus.data.columns import Column
from sumus.errors import DataError

__all__ = ["read_arrow", "read_parquet"]


def read_parquet(path: Path) -> dict[str, Column]:
    """All columns of a Parquet file, in file order, by the rules of `arrow_columns`.

    Args:
        path: the file.
    """
    what, instead = f"{path} is a Parquet file, which", "save it as CSV"
    arrow = import_arrow(what, instead)
    parquet = import_arrow(what, instead, "pyarrow.parquet")
    columns: dict[str, Column] = {}
    with _one_line(path, "Parquet"), parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        arrow_columns(arrow, str(path), schema.empty_table())  # names and types, before a value
        for name in schema.names:  # one by one: only one stands in memory twice
            columns |= arrow_columns(arrow, str(path), file.read(columns=[name]).select([name]))
    return columns


def read_arrow(path: Path, *, stream: bool = False) -> dict[str, Column]:
    """All columns of an Arrow file, which is what Feather files are, likewise.

    Args:
        path: the file.
        stream: whether it is in the streaming format.
    """
    what, instead = f"{path} is an Arrow file, which", "save it as CSV"
    arrow = import_arrow(what, instead)
    ipc = import_arrow(what, instead, "pyarrow.ipc")
    with _one_line(path, "Arrow"), path.open("rb") as file:
        table = (ipc.open_stream if stream else ipc.open_file)(file).read_all()
        table.validate(full=True)  # a broken file may point anywhere
        return arrow_columns(arrow, str(path), table)


@contextmanager
def _one_line(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except (
        OSError,
        ValueError,
        KeyError,
        NotImplementedError,
    ) as error:  # arrow's own errors are kinds of these
        reason = (str(error).splitlines() or ["unreadable"])[0].rstrip(".")
        raise DataError(f"{path} cannot be read as {kind}: {reason}. Check data.path.") from None
