"""A number that says how well a model does, and all that were measured of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from sumus.tasks.uncertainty import Measured, number_text, percent_text

__all__ = ["Measure", "Metrics"]

_SHOWN_AS_ZERO = 0.0005  # of a share, in per cent with one decimal


@final
@dataclass(frozen=True)
class Measure:
    """A number that says how well a model does.

    Args:
        name: its key in journals and JSON.
        larger_is_better: the direction of a search.
        is_share: lies in [0, 1] and is shown in per cent.
        word: how people write it; empty: as its name.
        of_second: of two classes it is about the second, whose name belongs beside it.
        at_zero: what is said instead of 0.
    """

    name: str
    larger_is_better: bool
    is_share: bool = False
    word: str = ""
    of_second: bool = False
    at_zero: str = ""

    @property
    def title(self) -> str:
        """As a heading."""
        return self.word[:1].upper() + self.word[1:] if self.word else self.name.capitalize()

    @property
    def shown(self) -> str:
        """Within a sentence."""
        return self.word or self.name

    def among(self, classes: Sequence[str]) -> Measure:
        """With the class that it is about in its word, where there are two.

        Args:
            classes: their names; empty: not known.
        """
        if not self.of_second or len(classes) != 2:
            return self
        return replace(self, word=f"{self.shown} for class {classes[-1]}")

    @property
    def best(self) -> Callable[[Iterable[float]], float]:
        """Of several values."""
        return max if self.larger_is_better else min

    @property
    def worst(self) -> Callable[[Iterable[float]], float]:
        """Of several values."""
        return min if self.larger_is_better else max

    def is_worse(self, value: float, than: float, *, by: float = 0.0) -> bool:
        """Whether a value is worse than another one, by more than a margin."""
        return value < than - by if self.larger_is_better else value > than + by

    def text(self, value: float, plus_minus: float | None = None) -> str:
        """With no more digits than its half-width bears."""
        if self.at_zero and value < _SHOWN_AS_ZERO:
            return self.at_zero + self._beside_zero(plus_minus)
        if self.is_share:
            return percent_text(value, plus_minus)
        return f"{value:.4g}" if plus_minus is None else number_text(value, plus_minus)

    def _beside_zero(self, plus_minus: float | None) -> str:
        return "" if plus_minus is None else f", {percent_text(0.0, plus_minus)}"


@final
@dataclass(frozen=True)
class Metrics:
    """How well a model does on some records.

    Args:
        values: by the name of the measure; empty without records.
        records: how many, as far as noise lets one tell.
        scores: of each row, where they are told in the clear.
        weights: of each row; None: every row is a record of its own.
        baseline: what the best constant answer would reach, by the name of the measure.
        tables: curves and the like that the same counts tell, columns by name.
    """

    values: Mapping[str, Measured]
    records: int
    scores: tuple[npt.NDArray[Any], ...] = field(default=(), repr=False, compare=False)
    weights: npt.NDArray[np.float64] | None = field(default=None, repr=False, compare=False)
    baseline: Mapping[str, float] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> float:
        return self.values[name].value

    @property
    def numbers(self) -> dict[str, float]:
        """The values alone."""
        return {name: measured.value for name, measured in self.values.items()}

    @property
    def plus_minus(self) -> dict[str, float]:
        """Half-widths of 95 % intervals, noise and sampling error included, of values that are not
        exact.
        """
        return {
            name: measured.plus_minus
            for name, measured in self.values.items()
            if measured.plus_minus is not None
        }
