"""A linear model without privacy whose penalty is chosen by cross-validation inside the training
part. Test records have no say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, final

import numpy as np
import numpy.typing as npt
import torch

from sumus.comparing.design import Floats, LinearDesign, Scale, link_of
from sumus.comparing.linear import fitted_weights, mean_loss
from sumus.data import Records
from sumus.randomness import RandomSource
from sumus.tasks import Task

__all__ = ["Family", "LinearFamily", "PlainModel", "at_most", "folds_of"]

_PENALTIES: Final = (300.0, 30.0, 3.0, 0.3, 0.03)  # strongest first: each starts from the last
_FOLDS: Final = 3
_MOST_ROWS: Final = 200_000  # that are fitted to
_MOST_TUNED: Final = 20_000  # that a penalty is chosen on
_BLOCK: Final = 8192


class PlainModel(Protocol):
    """A model without privacy."""

    def outputs(self, x: npt.NDArray[np.generic]) -> torch.Tensor:
        """(records, outputs)."""
        ...


class Family(Protocol):
    """How models of a plan's kind are fitted without privacy."""

    @property
    def words(self) -> str:
        """How, for readers."""
        ...

    def fitted(self, records: Records, source: RandomSource) -> PlainModel:
        """To records of one unit or more, tuned on them alone."""
        ...


@final
@dataclass(frozen=True, eq=False)
class LinearModel:
    """Weights behind a scale."""

    scale: Scale
    weights: Floats
    shared_slopes: bool

    def outputs(self, x: npt.NDArray[np.generic]) -> torch.Tensor:
        """See `PlainModel.outputs`."""
        flat = x.reshape(len(x), -1)
        parts = [
            self._block(self.scale(flat[start : start + _BLOCK]))
            for start in range(0, len(flat), _BLOCK)
        ]
        return torch.from_numpy(np.concatenate(parts).astype(np.float32))

    def _block(self, x: Floats) -> Floats:
        if not self.shared_slopes:
            return np.asarray(x @ self.weights)
        slopes = x.shape[1] - 1
        level = x[:, :-1] @ self.weights[:slopes]
        return np.asarray(level + self.weights[slopes:].T)


@final
@dataclass(frozen=True)
class LinearFamily:
    """Linear models of a task whose link is known, by an exact solver.

    Args:
        outputs: numbers that a model returns for one record.
    """

    task: Task
    outputs: int

    @property
    def words(self) -> str:
        """See `Family.words`."""
        return "the same linear model fitted exactly, its penalty chosen on training records"

    @classmethod
    def fits(cls, task: Task, outputs: int) -> bool:
        """Whether the task has such models."""
        return link_of(task, outputs) is not None

    def fitted(self, records: Records, source: RandomSource) -> LinearModel:
        """See `Family.fitted`."""
        records = at_most(records, _MOST_ROWS, source)
        scale = Scale.of(records.x.reshape(len(records), -1))
        penalty = self._penalty(at_most(records, _MOST_TUNED, source), scale, source)
        design = LinearDesign.of(self.task, records, scale, self.outputs)
        return LinearModel(scale, fitted_weights(design, penalty), self.task.shared_slopes)

    def _penalty(self, records: Records, scale: Scale, source: RandomSource) -> float:
        """The one with the smallest loss on units that were left out."""
        if records.units < 2 * _FOLDS:
            return _PENALTIES[0]
        losses = np.zeros(len(_PENALTIES))
        for kept, left in folds_of(records.units, _FOLDS, source):
            design, unseen = (
                LinearDesign.of(self.task, records.take(units), scale, self.outputs)
                for units in (kept, left)
            )
            weights = None
            for place, penalty in enumerate(_PENALTIES):
                weights = fitted_weights(design, penalty, start=weights)
                losses[place] += mean_loss(unseen, weights)
        return _PENALTIES[int(np.argmin(losses))]


def folds_of(
    units: int, folds: int, source: RandomSource
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """(the others, one part) of so many parts of about one size, in rising order each."""
    order = np.argsort(source.uniforms(units), kind="stable")
    parts = [np.sort(order[place::folds]) for place in range(folds)]
    everybody = np.arange(units, dtype=np.int64)
    return [(np.setdiff1d(everybody, part), part) for part in parts]


def at_most(records: Records, rows: int, source: RandomSource) -> Records:
    """A random part of the units, if there are more rows than this."""
    if len(records) <= rows:
        return records
    units = max(1, rows * records.units // len(records))
    order = np.argsort(source.uniforms(records.units), kind="stable")
    return records.take(np.sort(order[:units]))
