"""What training receives: records of every silo, split into training, validation and test parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sumus.errors import DataError
from sumus.plan import PublicFacts
from sumus.tasks import LabelFacts

__all__ = ["FederatedData", "Records", "SiloRecords"]


@final
@dataclass(frozen=True)
class Records:
    """Records and their labels.

    Args:
        x: one record per row, any shape after the first axis; whole numbers where the records may
            be tokens.
        y: label of each record, as the task stores it (a class: 0 … K − 1).
    """

    x: NDArray[np.float32 | np.int64]
    y: NDArray[Any]

    def __post_init__(self) -> None:
        if not self.y.ndim or len(self.x) != len(self.y):
            raise DataError(
                f"records must come with one label each, got {len(self.x)} records and labels of "
                f"shape {self.y.shape}."
            )

    def __len__(self) -> int:
        return len(self.y)


@final
@dataclass(frozen=True)
class SiloRecords:
    """All records of one silo. The three parts share no record, and any of them may be empty.

    Args:
        bound: public upper bound on the training records; None where their number itself is public.
        left_out: training records beyond the bound, which are not used. For the silo's own eyes: no
            record or report may hold it.
    """

    name: str
    train: Records
    validation: Records
    test: Records
    bound: int | None = None
    left_out: int = 0

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
        columns: of a table, those that make features; of a description, those that are described.
        numbers: of a description, the columns that hold numbers.
    """

    name: str
    silos: tuple[SiloRecords, ...]
    shape: tuple[int, ...]
    labels: LabelFacts
    assumptions: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    split_by_record: bool = False
    columns: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

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

    def facts(self) -> PublicFacts:
        """What is public about these records: the silos' bounds or, for silos without one, their
        training record counts.
        """
        counted = tuple(max(len(silo.train), 1) for silo in self.silos)
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
