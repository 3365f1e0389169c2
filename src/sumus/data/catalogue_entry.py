"""What everybody may know about a data set of the catalogue, and where its records come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from sumus.data.pool import Pool
from sumus.tasks import LabelFacts

__all__ = ["NamedSet"]


@final
@dataclass(frozen=True, kw_only=True)
class NamedSet:
    """One data set of the catalogue.

    Args:
        class_counts: records of each class, as published, or of all together where labels are no
            classes; they fix the sizes of every simulated silo.
        default_silos: N if the plan does not say.
        natural_counts: records of each silo that the data itself has, if it has any.
        place: where it is on this machine, or the error that says how to get it; cheap.
        load: reads it from there.
        prepare: makes it in a folder, `download` says whether it may fetch files; None: it is taken
            as it is, or needs more than this room.
    """

    name: str
    title: str
    shape: tuple[int, ...]
    labels: LabelFacts
    class_counts: tuple[int, ...]
    default_silos: int
    place: Callable[[Path | None], Path | str]
    load: Callable[[Path | None], Pool]
    natural_counts: Callable[[Path | None], dict[str, int]] | None = None
    prepare: Callable[[Path, bool], None] | None = None

    @property
    def records(self) -> int:
        """Of all silos together."""
        return sum(self.class_counts)
