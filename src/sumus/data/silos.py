"""What training receives: records of every silo, split into training, validation and test parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from sumus.errors import DataError
from sumus.plan import PublicFacts
from sumus.tasks import LabelFacts

if TYPE_CHECKING:
    from sumus.data.encoding import Encoding

__all__ = ["FeaturesFor", "FederatedData", "Records", "RowFeatures", "SiloRecords"]


class RowFeatures(Protocol):
    """A public function of single records; two that are equal compute the same."""

    def __call__(self, records: NDArray[Any]) -> NDArray[np.float32]: ...


FeaturesFor = Callable[[tuple[int, ...], int], RowFeatures | None]
"""From one record's shape, and the number of columns that it was in a table, to the features that
are kept instead of records; None: records are.
"""


@final
@dataclass(frozen=True)
class Records:
    """Rows with their labels, and whose they are.

    A unit is what is protected, counted, sampled and split: a person where `persons` says whose row
    each one is, otherwise the row itself.

    Args:
        x: one row per record, any shape after the first axis; whole numbers where the records may
            be tokens.
        y: label of each row, as the task stores it (a class: 0 … K − 1).
        persons: of each row, numbered 0, 1, … P − 1 in the order of the rows; None: every row is a
            unit of its own.
    """

    x: NDArray[np.float32 | np.int64]
    y: NDArray[Any]
    persons: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if not self.y.ndim or len(self.x) != len(self.y):
            raise DataError(
                f"records must come with one label each, got {len(self.x)} records and labels of "
                f"shape {self.y.shape}."
            )
        if self.persons is None:
            return
        # the first is 0, and each number is the last one or the next
        steps = np.diff(self.persons, prepend=-1)
        if self.persons.shape != self.y.shape[:1] or (
            len(steps) and (steps[0] != 1 or not np.isin(steps, (0, 1)).all())
        ):
            raise DataError(
                f"persons must number the {len(self.y)} rows 0, 1, … with the rows of one person "
                "side by side. Sort them by person first."
            )

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """Where units begin: unit u has the rows edges[u] … edges[u + 1] − 1."""
        if self.persons is None:
            return np.arange(len(self.y) + 1, dtype=np.int64)
        first = np.flatnonzero(np.diff(self.persons, prepend=-1))
        return np.append(first, len(self.y)).astype(np.int64)

    @property
    def units(self) -> int:
        """How many persons there are, or rows where every row is a unit of its own."""
        return len(self.edges) - 1

    @property
    def rows_per_unit(self) -> NDArray[np.int64]:
        """m_p: how many rows every unit has."""
        return np.diff(self.edges)

    def weights(self, weighting: str = "mean", most: int = 1) -> NDArray[np.float64]:
        """The share of every row in its unit's loss f_p = Σ_j w_j·f_j.

            mean: w = 1/m_p      sum: w = 1/M

        Guarantee: the shares of a unit are positive and sum to at most 1, so that f_p keeps the
            gradient bound, the smoothness and the convexity of its rows' losses. Refuses a unit
            with more than M rows under "sum".

        Args:
            weighting: `data.person_weighting`; rows that are units of their own weigh 1 either way.
            most: M, `plan.rows_per_person`.
        """
        if self.persons is None:
            return np.ones(len(self.y))
        rows = self.rows_per_unit
        if weighting == "sum":
            if len(rows) and rows.max() > most:
                raise DataError(
                    f"data.records_per_person = {most} is exceeded by a person's rows. Load the "
                    "records by the plan that is trained."
                )
            return np.full(len(self.y), 1.0 / most)
        return np.repeat(1.0 / rows, rows)

    def take(self, units: NDArray[np.int64]) -> Records:
        """The given units with all their rows, in that order and numbered anew.

        Args:
            units: positions among the units, each at most once.
        """
        if self.persons is None:
            return Records(self.x[units], self.y[units])
        counts = self.rows_per_unit[units]
        ends = np.cumsum(counts)
        rows = np.repeat(self.edges[units] - (ends - counts), counts) + np.arange(counts.sum())
        numbers = np.repeat(np.arange(len(units), dtype=np.int64), counts)
        return Records(self.x[rows], self.y[rows], numbers)

    @classmethod
    def joined(cls, parts: Sequence[Records]) -> Records:
        """All rows of several, no two parts sharing a unit."""
        x, y = (np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y"))
        if all(part.persons is None for part in parts):
            return cls(x, y)
        edges = [part.rows_per_unit for part in parts]
        rows = np.concatenate(edges)
        return cls(x, y, np.repeat(np.arange(len(rows), dtype=np.int64), rows))


@final
@dataclass(frozen=True)
class SiloRecords:
    """All records of one silo. The three parts share no record, and any of them may be empty.

    Args:
        bound: public upper bound on the training records (persons, where they are the unit); None
            where their number itself is public.
        left_out: training records (or persons) beyond the bound, which are not used. For the silo's
            own eyes: no record or report may hold it.
        rows_left_out: rows beyond the most of a person that count, likewise.
    """

    name: str
    train: Records
    validation: Records
    test: Records
    bound: int | None = None
    left_out: int = 0
    rows_left_out: int = 0

    @property
    def counted(self) -> str:
        """What the silo's units are, in words."""
        return "records" if self.train.persons is None else "persons"

    def __len__(self) -> int:
        return len(self.train) + len(self.validation) + len(self.test)


@final
@dataclass(frozen=True)
class FederatedData:
    """The records of a whole federation, as a simulation or one silo's process holds them.

    Args:
        labels: what is public about labels.
        assumptions: what was assumed or taken as public, one line each; every front end shows them.
        remarks: what one record could change, for the silo's own eyes: no record or report may hold
            it.
        split_by_record: every record's part follows from that record alone.
        same_part_everywhere: a person of several silos trains in all of them or in none.
        columns: of a table, those that make features; of a description, those that are described.
        numbers: of a description, the columns that hold numbers.
        encoding: of a table, how its rows became features; None: records were arrays.
        behind: the features that every x already is, where records were loaded for one plan alone;
            `shape` is that of a record before them.
    """

    name: str
    silos: tuple[SiloRecords, ...]
    shape: tuple[int, ...]
    labels: LabelFacts
    assumptions: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    split_by_record: bool = False
    same_part_everywhere: bool = False
    columns: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    encoding: Encoding | None = None
    behind: RowFeatures | None = None

    def __post_init__(self) -> None:
        if not self.silos:
            raise DataError(
                f"{self.name}: must hold at least one silo, got none. Name the silo column or pass "
                "one pair (x, y) per silo."
            )
        repeated = {
            silo.name
            for silo in self.silos
            if sum(silo.name == other.name for other in self.silos) > 1
        }
        if repeated:
            raise DataError(
                f"{self.name}: silo names must differ, {sorted(repeated)[0]!r} appears twice. "
                "Rename one."
            )

    @property
    def unit(self) -> str:
        """What counts as one: a record, or a person with all its rows."""
        return "record" if self.silos[0].train.persons is None else "person"

    def facts(self) -> PublicFacts:
        """What is public about these records: the silos' bounds or, for silos without one, their
        training record counts.
        """
        counted = tuple(max(silo.train.units, 1) for silo in self.silos)
        return PublicFacts(
            name=self.name,
            silo_names=tuple(silo.name for silo in self.silos),
            records_per_silo=tuple(
                count if silo.bound is None else silo.bound
                for silo, count in zip(self.silos, counted, strict=True)
            ),
            shape=self.shape,
            labels=self.labels,
            assumptions=self.assumptions,
            bounded=all(silo.bound is not None for silo in self.silos),
            columns=self.columns,
            numbers=self.numbers,
        )
