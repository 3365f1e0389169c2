"""What everybody may know about the records before training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sumus.tasks import LabelFacts

__all__ = ["PublicFacts"]


@final
@dataclass(frozen=True)
class PublicFacts:
    """What everybody may know about the data before training: never a function of a single record's
    content.

    Args:
        name: of the data set, or the file name.
        silo_names: one per silo, in the order of the federation.
        records_per_silo: upper bounds on the *training* records of each silo, or on its persons
            where they are the unit.
        shape: of one record, after public encoding.
        labels: what is public about labels.
        assumptions: what had to be assumed to be public, one line each.
        bounded: the bounds were declared and hide how many records there are; otherwise they are
            the counts, taken as public.
        columns: of a table, those that make features; of a description, those that are described.
        numbers: of a description, the columns that hold numbers.
    """

    name: str
    silo_names: tuple[str, ...]
    records_per_silo: tuple[int, ...]
    shape: tuple[int, ...]
    labels: LabelFacts
    assumptions: tuple[str, ...] = ()
    bounded: bool = False
    columns: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    @property
    def silos(self) -> int:
        """N: number of silos."""
        return len(self.silo_names)
