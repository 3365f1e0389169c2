"""Two ordinary models, and the records with which their clipped gradients can be steered: logistic
regression and least squares.

Every trial has one weight w, labels are 0 or 1, gradients count in clip norms C. Three kinds of
records:

| kind       | its clipped gradient in w                 | logistic, ∇ = (sigmoid(wx) − y)·x        | least squares, ∇ = (wx − y)·x       |
|------------|-------------------------------------------|------------------------------------------|-------------------------------------|
| pusher     | +1 as long as w ≥ −`reach`                | x = 4, y = 0                             | x = −2, y = 1                       |
| switch     | −1 below zero, `quiet` above              | x = 2^60, y = 1; quiet = 0               | x = 2^60, y = 0; quiet = 1          |
| forgetful  | `curvature`·w near zero, never clipped    | x = 1, y = 0 and 1 in pairs; ½           | x = 1, y = 0; 1                     |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch

from sumus.errors import PlanError
from sumus.gradients import outer_norms2, scales
from sumus.tasks import TASKS, Link, Loss

__all__ = ["LEAST_SQUARES", "LOGISTIC", "REGRESSIONS", "Group", "Regression"]

Integers = npt.NDArray[np.int64]

_STEEP = 2.0**60  # feature of a switch: one grid step away from zero it has decided


@final
class LeastSquares(Loss):
    """½(f(x) − y)² of one output, labels 0 or 1."""

    def link(self, outputs: int) -> Link:
        """The output itself."""
        return Link.IDENTITY

    def check(self, labels: npt.NDArray[Any], outputs: int) -> None:
        """One output, two labels."""
        if outputs != 1:
            rule = f"must have one output, the model has {outputs}"
            raise PlanError("loss", "least-squares", rule, "Sum the outputs yourself.")
        TASKS["classification"].check(labels, outputs)

    def loss(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """One number per record."""
        return 0.5 * (outputs[:, 0] - labels.to(outputs.dtype)) ** 2


@final
@dataclass(frozen=True)
class Group:
    """Identical records of one silo, with one feature each."""

    feature: float
    label: int
    copies: int = 1

    def times(self, copies: int) -> Group:
        """The same records in another number."""
        return replace(self, copies=copies)


@final
@dataclass(frozen=True, kw_only=True)
class Regression:
    """A loss of w·x, and its three kinds of records (see the table above).

    Args:
        loss: that the silos use.
    """

    name: str
    loss: Loss
    pusher: Group
    reach: float
    switch: Group
    quiet: int
    forgetful: tuple[Group, ...]
    curvature: float

    def gradient_grid(
        self, groups: Sequence[Group], weights: npt.NDArray[np.float64], resolution: int
    ) -> Integers:
        """What a silo with these records adds to its integer sum at each of many weights, for clip
        norm 1.
        """
        total = np.zeros(weights.shape, dtype=np.int64)
        flat = torch.from_numpy(np.ascontiguousarray(weights).reshape(-1, 1))
        for group in groups:
            residual = self.loss.output_gradient(
                flat * group.feature, torch.tensor([group.label]).expand(len(flat))
            ).numpy()
            total += group.copies * _clipped_grid(group.feature, residual, resolution).reshape(
                weights.shape
            )
        return total

    def pusher_grid(self, resolution: int) -> int:
        """One pusher, one step: a clip norm less what clipping takes for safety."""
        return int(self.gradient_grid([self.pusher], np.zeros(1), resolution)[0])


def _clipped_grid(feature: float, residual: npt.NDArray[np.float64], resolution: int) -> Integers:
    """trunc(r·clip(residual·feature)), through the functions that silos clip with and the float32
    product of their loop.
    """
    norms2, scale = np.zeros(len(residual)), np.empty(len(residual))
    inputs = np.full((len(residual), 1), feature)
    outer_norms2(residual, inputs, np.square(inputs[:, 0]), False, norms2)
    scales(norms2, 1.0, float(resolution), scale)
    narrow = (residual[:, 0] * scale * abs(feature)).astype(np.float32)
    signed: npt.NDArray[np.float32] = narrow * np.float32(math.copysign(1.0, feature))
    return np.trunc(signed).astype(np.int64)


LOGISTIC = Regression(
    name="logistic",
    loss=TASKS["classification"],
    pusher=Group(4.0, 0),
    reach=0.25,
    switch=Group(_STEEP, 1),
    quiet=0,
    forgetful=(Group(1.0, 0), Group(1.0, 1)),
    curvature=0.5,
)
LEAST_SQUARES = Regression(
    name="least-squares",
    loss=LeastSquares(),
    pusher=Group(-2.0, 1),
    reach=0.25,
    switch=Group(_STEEP, 0),
    quiet=1,
    forgetful=(Group(1.0, 0),),
    curvature=1.0,
)
REGRESSIONS = {each.name: each for each in (LOGISTIC, LEAST_SQUARES)}
