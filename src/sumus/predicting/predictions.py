"""What a model says of rows: named columns in the rows' order, and what was odd about the rows."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from sumus.data import Column, NumberColumn
from sumus.errors import DataError
from sumus.files import replace_atomically
from sumus.predicting.rows import RowCounts

__all__ = ["Predictions", "require_kind"]


@final
@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says.

    Args:
        columns: by name, a value a row: `prediction`, `probability:<class>`; of times `risk`,
            `survival:<time>`; of several labels `prediction:<label>`, `probability:<label>`.
        counts: how many rows were not as training expects them.
        notes: what a reader should know of the model, a line each.
    """

    columns: Mapping[str, npt.NDArray[Any]]
    counts: RowCounts
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.counts.rows

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.columns[name]

    def lines(self) -> tuple[str, ...]:
        """What must be said beside the predictions."""
        return (*self.notes, *self.counts.lines())

    def beside(self, table: Mapping[str, Column], names: Sequence[str]) -> Predictions:
        """The same with columns of the table in front, as they stand there.

        Args:
            table: whose rows were predicted.
            names: of the columns.
        """
        for name in names:
            if name not in table:
                known = ", ".join(list(table)[:6]) + (", …" if len(table) > 6 else "")
                raise DataError(f"--keep: the table has no column {name!r}. There are {known}.")
            if name in self.columns:
                raise DataError(
                    f"--keep: {name!r} is the name of a prediction. Rename the column first."
                )
        kept = {name: _values(table[name]) for name in names}
        unused = tuple(name for name in self.counts.unused if name not in kept)
        counts = replace(self.counts, unused=unused)
        return replace(self, columns={**kept, **self.columns}, counts=counts)

    def to_csv(self) -> str:
        """A header and a line a row; numbers as precise as they are."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(zip(*(column.tolist() for column in self.columns.values()), strict=True))
        return text.getvalue()

    def write(self, path: str | Path) -> Path:
        """Write CSV or, where the file is named so, Parquet; whole, or as it was.

        Args:
            path: ends in .csv, .parquet or .pq.
        """
        path = Path(path)
        kind = require_kind(path)
        replace_atomically(
            path, self._parquet(path) if kind == "parquet" else self.to_csv().encode()
        )
        return path

    def _parquet(self, path: Path) -> bytes:
        try:
            arrow = importlib.import_module("pyarrow")
            parquet = importlib.import_module("pyarrow.parquet")
        except ImportError:
            raise DataError(
                f"{path} is to be Parquet, which needs pyarrow. Run: pip install 'sumus[tables]' "
                "(or write .csv)."
            ) from None
        table = arrow.table({name: arrow.array(_plain(c)) for name, c in self.columns.items()})
        sink = io.BytesIO()
        parquet.write_table(table, sink)
        return sink.getvalue()


def require_kind(path: Path) -> str:
    """The kind of file that a name stands for, or a refusal."""
    kinds = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
    if path.suffix.lower() not in kinds:
        raise DataError(
            f"predictions are written as CSV or Parquet, got {path.name!r}. End it in .csv or "
            ".parquet."
        )
    if path.is_dir():
        raise DataError(f"{path} is a folder. Name a file in it.")
    return kinds[path.suffix.lower()]


def _values(column: Column) -> npt.NDArray[Any]:
    """A column of a table as values: whole numbers as such, missing text as nothing."""
    if isinstance(column, NumberColumn):
        numbers = column.values
        whole = np.isfinite(numbers).all() and (np.abs(numbers) < 2.0**53).all()
        return numbers.astype(np.int64) if whole and (numbers % 1 == 0).all() else numbers
    return np.array([*column.values, ""])[column.codes]


def _plain(column: npt.NDArray[Any]) -> Any:
    """A column as Arrow takes it: text as Python's strings."""
    return column.tolist() if column.dtype.kind == "U" else np.ascontiguousarray(column)
