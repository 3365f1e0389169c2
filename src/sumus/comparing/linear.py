"""Linear models without privacy, fitted to the end: Newton's method where every output stands by
itself, L-BFGS for softmax, whose outputs hang together.

    min_W  Σ_rows w·φ(x·W, y) + λ/2·|slopes|²
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numpy.linalg import LinAlgError

from sumus.comparing.design import Floats, LinearDesign
from sumus.tasks import Link

__all__ = ["fitted_weights", "mean_loss"]

_STEPS: Final = 60
_CLOSE: Final = 1e-9  # decrement per row at which Newton's method ends
_LEAST: Final = 1e-3  # on intercepts: one of them is free in softmax, and a class may have nobody


def fitted_weights(design: LinearDesign, penalty: float, *, start: Floats | None = None) -> Floats:
    """The minimiser, (columns, outputs).

    Args:
        penalty: λ > 0.
        start: weights to begin with; omitted: 0.
    """
    columns = design.x.shape[1]
    ridge = np.full(columns, penalty)
    ridge[columns - design.intercepts :] = _LEAST
    first = np.zeros((columns, design.outputs)) if start is None else start
    if design.link is not Link.SOFTMAX:
        return np.column_stack(
            [_newton(design, ridge, first[:, place], place) for place in range(design.outputs)]
        )
    return _softmax(design, ridge, first)


def mean_loss(design: LinearDesign, weights: Floats) -> float:
    """Σ w·φ over Σ w of rows that were not fitted to."""
    total = max(float(design.weights.sum()), 1e-12)
    return float(design.weights @ _losses(design, design.x @ weights)) / total


def _losses(design: LinearDesign, z: Floats) -> Floats:
    """φ of every row, over all its outputs."""
    if design.link is Link.SOFTMAX:
        return np.asarray(_log_sum(z) - z[np.arange(len(z)), design.y])
    return np.asarray(_loss(design.link, z, design.y).sum(axis=1))


def _loss(link: Link, z: Floats, y: npt.NDArray[Any]) -> Floats:
    if link is Link.LOGISTIC:
        return np.asarray(np.logaddexp(0.0, z) - y * z)
    if link is Link.EXPONENTIAL:
        return np.asarray(np.exp(np.minimum(z, 0.0)) + np.maximum(z, 0.0) - y * z)
    return np.asarray(np.square(z - y) / 2.0)


def _slope_and_curvature(link: Link, z: Floats, y: Floats) -> tuple[Floats, Floats]:
    if link is Link.LOGISTIC:
        expected = _sigmoid(z)
        return expected - y, expected * (1.0 - expected)
    if link is Link.EXPONENTIAL:
        expected = np.exp(np.minimum(z, 0.0))
        return expected - y, np.where(z < 0.0, expected, 0.0)
    return z - y, np.ones_like(z)


def _sigmoid(z: Floats) -> Floats:
    return np.asarray(np.exp(-np.logaddexp(0.0, -z)))


def _log_sum(z: Floats) -> Floats:
    top = z.max(axis=1)
    return np.asarray(top + np.log(np.exp(z - top[:, None]).sum(axis=1)))


def _newton(design: LinearDesign, ridge: Floats, first: Floats, place: int) -> Floats:
    """One output by itself, with steps that are halved until they help."""
    x, w = design.x, design.weights
    y = np.asarray(design.y[:, place], dtype=np.float64)

    def objective(weights: Floats, z: Floats) -> float:
        return float(w @ _loss(design.link, z, y) + ridge @ weights**2 / 2.0)

    weights = first.copy()
    z = x @ weights
    value = objective(weights, z)
    for _ in range(_STEPS):
        slope, curvature = _slope_and_curvature(design.link, z, y)
        gradient = x.T @ (w * slope) + ridge * weights
        hessian = (x * (w * curvature)[:, None]).T @ x
        hessian[np.diag_indices_from(hessian)] += ridge
        step = _solved(hessian, gradient)
        decrement = float(gradient @ step)
        if not decrement > _CLOSE * max(len(y), 1):
            break
        moved = x @ step
        size = 1.0
        while size > 1e-8:
            candidate = objective(weights - size * step, z - size * moved)
            if candidate <= value - 1e-4 * size * decrement:
                break
            size /= 2.0
        else:
            break
        weights, z, value = weights - size * step, z - size * moved, candidate
    return weights


def _solved(hessian: Floats, gradient: Floats) -> Floats:
    """Newton's step; the shortest one where rounding has made the matrix singular."""
    try:
        return np.asarray(np.linalg.solve(hessian, gradient))
    except LinAlgError:
        return np.asarray(np.linalg.lstsq(hessian, gradient, rcond=None)[0])


def _softmax_value(design: LinearDesign, ridge: Floats, weights: Floats) -> tuple[float, Floats]:
    """The objective and its gradient."""
    z = design.x @ weights
    losses = _losses(design, z)
    residual = np.exp(z - _log_sum(z)[:, None])
    residual[np.arange(len(z)), design.y] -= 1.0
    gradient = design.x.T @ (residual * design.weights[:, None]) + ridge[:, None] * weights
    value = float(design.weights @ losses + (ridge @ weights**2).sum() / 2.0)
    return value, gradient


def _softmax(design: LinearDesign, ridge: Floats, first: Floats) -> Floats:
    """Standard columns make it quick."""
    # importing it takes a fifth of a second, and a run that compares nothing fits nothing
    from scipy.optimize import minimize

    shape = first.shape

    def objective(flat: Floats) -> tuple[float, Floats]:
        value, gradient = _softmax_value(design, ridge, flat.reshape(shape))
        return value, gradient.reshape(-1)

    found = minimize(
        objective,
        first.reshape(-1),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 300, "gtol": 1e-4 * math.sqrt(max(len(design.x), 1)), "maxcor": 20},
    )
    return np.asarray(found.x, dtype=np.float64).reshape(shape)
