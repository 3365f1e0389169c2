"""Newton steps from released sums: the second moments of all rounds bend every round's gradient.

    direction = [Ḡ]⁻¹·ĝ / β

Ḡ is the mean over rounds of the released Σ x·xᵀ and ĝ the round's sum of clipped gradients; β is
what the loss curves at most along an output (½ for a softmax, ¼ for yes or no, 1 for numbers), so
that β·Ḡ bounds the Hessian from above (Böhning and Lindsay 1988) and a rate of 1 cannot overshoot
without noise. In [Ḡ] every eigenvalue s counts as √(max(s, 0)² + λ²) + ρ·n·R², λ the norm of the
noise on Ḡ, which falls with the rounds, and ρ the plan's ridge. All of it is computed from released
sums and public numbers: post-processing.
"""

from __future__ import annotations

import math
from typing import final

import numpy as np
import numpy.typing as npt

from sumus.errors import PlanError
from sumus.guarantee import NoiseDesign, newton_parts
from sumus.training.solving import symmetric

__all__ = ["Bending"]

Vector = npt.NDArray[np.float64]


@final
class Bending:
    """The released moments of all rounds so far.

    Args:
        design: of the plan.
    """

    def __init__(self, design: NoiseDesign) -> None:
        training, task = design.plan.training, design.plan.task
        self._design, self._shape = design, design.resolved.moments
        self._parts = newton_parts(design.resolved, design.grid.resolution)
        bound = training.feature_bound
        curvature = task.curvature(training.model, feature_bound=bound, residual_cap=1.0)
        if curvature is None:
            rule = f"has no newton steps for {task.name}"
            raise PlanError("training.model", training.model, rule, 'Use "dp-sgd".')
        self._beta = curvature.smoothness / bound**2
        self._total = np.zeros(self._shape.triangle)
        self._variance, self._rounds = 0.0, 0

    def direction(self, decoded: Vector, survivors: int) -> Vector:
        """What the model should move along, downhill, flat; remembers the round's moments.

        Args:
            decoded: the sum in records' lengths, with noise.
            survivors: silos that are in it.
        """
        design, shape, training = self._design, self._shape, self._design.plan.training
        everybody = design.resolved.invited / max(survivors, 1)
        length = float(design.grid.resolution)
        bound2 = training.feature_bound**2
        to_matrix = everybody * bound2 * length / self._parts.matrix
        to_gradient = everybody * training.clip_norm * length / self._parts.gradient
        noisy = design.resolved.contributors if design.plan.noise.removable else survivors
        std = math.sqrt(noisy * design.share.variance_grid) * design.grid.granularity
        self._total = self._total + decoded[: shape.triangle] * to_matrix
        self._variance += (std * to_matrix) ** 2
        self._rounds += 1

        gradient = decoded[shape.triangle :].reshape(shape.outputs, shape.features) * to_gradient
        values, vectors = np.linalg.eigh(symmetric(self._total / self._rounds, shape.features))
        noise = math.sqrt(2.0 * shape.features * self._variance) / self._rounds
        records = math.fsum(silo.records for silo in design.resolved.silos)
        counted = np.hypot(np.maximum(values, 0.0), noise) + training.ridge * records * bound2
        bent = (gradient @ vectors / counted) @ vectors.T
        return np.asarray(-bent.reshape(-1) / self._beta)

    def state(self) -> Vector:
        """Everything a checkpoint must hold: moments, their noise, rounds."""
        return np.concatenate([self._total, [self._variance, float(self._rounds)]])

    def restore(self, state: Vector) -> bool:
        """Continue from a checkpoint; whether it fits."""
        if state.shape != (self._shape.triangle + 2,):
            return False
        self._total, self._variance = state[:-2].copy(), float(state[-2])
        self._rounds = round(float(state[-1]))
        return True
