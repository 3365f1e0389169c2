"""From a noisy sum of second moments to a linear model, by public rules.

    targets       [G]⁻¹·H                          G = Σ x·xᵀ, H = Σ x·yᵀ
    two classes   [(1 − a)·S₀ + a·S₁]⁻¹·(m₁ − m₀)  then slope and intercept of a logit

S is the scatter of a class about its mean m, per record; means and numbers of records stand in the
column of the bias feature. In [G] every eigenvalue s counts as √(max(s, 0)² + λ²), λ = √2·σ√f with
σ the standard deviation of the noise on a diagonal entry: the noise is a symmetric matrix with
variance σ² on the diagonal and σ²/2 off it, and λ is its norm in the limit of many features. So what
is well above the noise is kept as it is, and what is below counts as the noise. All of it is
computed from a released sum and public numbers: post-processing.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sumus.features import bias_feature
from sumus.guarantee import NoiseDesign
from sumus.plan import MomentShape

__all__ = ["discriminant", "least_squares", "solved_model", "symmetric"]

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]


def solved_model(design: NoiseDesign, decoded: Vector, survivors: int) -> Vector:
    """The weights (K, f), flat, that a sum of moments stands for.

    Args:
        decoded: the sum in real units, with noise.
        survivors: silos whose noise is in it.
    """
    shape, resolved = design.resolved.moments, design.resolved
    noisy = resolved.contributors if design.plan.noise.removable else survivors
    std = math.sqrt(noisy * design.share.variance_grid) * design.grid.granularity
    if shape.matrices > 1:
        bias = bias_feature(resolved.plan.training.feature_bound)
        return discriminant(decoded, shape, std=std, bias=bias)
    return least_squares(decoded, shape, std=std)


def least_squares(decoded: Vector, shape: MomentShape, *, std: float) -> Vector:
    """The regression of the targets on the features.

    Args:
        std: σ, of the noise on a diagonal entry.
    """
    gram = _matrices(decoded, shape)[0]
    products = decoded[shape.triangle :].reshape(shape.outputs, shape.features)
    return _solved(gram, products.T, _noise_norm(std, shape)).T.reshape(-1)


def discriminant(decoded: Vector, shape: MomentShape, *, std: float, bias: float) -> Vector:
    """The logit of the second of two classes.

    Records near the boundary count most in a logistic regression, and those of the common class
    are spread there like the rare one's. So the rare class's scatter counts for more than its share
    of records: for as much as the other's share where the noise allows, for its own where it does
    not.

    Args:
        std: σ, of the noise on a diagonal entry.
        bias: b, the bias feature of every record.
    """
    counts, means, scatters = [], [], []
    for gram in _matrices(decoded, shape):
        counts.append(_count(gram, std=std, bias=bias))
        means.append(gram[:-1, -1] / (bias * counts[-1]))
        scatters.append(gram[:-1, :-1] / counts[-1] - np.outer(means[-1], means[-1]))
    shares = [count / sum(counts) for count in counts]
    pooled = shares[0] * np.trace(scatters[0]) + shares[1] * np.trace(scatters[1])
    for weight in np.linspace(shares[0], shares[1], 65):  # of the second class, its own share last
        each = std * math.hypot((1.0 - weight) / counts[0], weight / counts[1])
        noise = _noise_norm(each, shape)
        if noise * shape.features <= pooled / 2.0:  # half of an eigenvalue on the average
            break
    scatter = (1.0 - weight) * scatters[0] + weight * scatters[1]
    slopes = _solved(scatter, means[1] - means[0], noise)
    centres = [float(slopes @ mean) for mean in means]
    # w·[S]·w = w·(m₁ − m₀) is what both should be near; noise may make one negative
    least = abs(centres[1] - centres[0]) / 4.0
    spreads = [max(float(slopes @ each @ slopes), least) ** 0.5 for each in scatters]
    slope, intercept = _logit(shares, centres, spreads)
    return np.append(slope * slopes, intercept / bias)


def _logit(shares: list[float], centres: list[float], spreads: list[float]) -> tuple[float, float]:
    """Slope and intercept of the logistic regression of two classes on one Gaussian score each, by
    Newton's method.
    """
    nodes, heights = np.polynomial.hermite_e.hermegauss(40)
    heights = heights / heights.sum()
    unit = max(*spreads, abs(centres[1] - centres[0]), 1e-300)
    middle = (centres[0] + centres[1]) / 2.0
    scores = np.stack(
        [(c - middle + s * nodes) / unit for c, s in zip(centres, spreads, strict=True)]
    )
    chances = np.outer(shares, heights)
    line = np.array([0.0, math.log(shares[1] / shares[0])])
    for _ in range(60):
        found = 1.0 / (1.0 + np.exp(-np.clip(line[0] * scores + line[1], -30.0, 30.0)))
        wrong, curvature = chances * (found - [[0.0], [1.0]]), chances * found * (1.0 - found)
        slope = [float((wrong * scores).sum()), float(wrong.sum())]
        cross = float((curvature * scores).sum())
        hessian = np.array(
            [
                [float((curvature * scores**2).sum()) + 1e-9, cross],
                [cross, float(curvature.sum()) + 1e-9],
            ]
        )
        step = np.linalg.solve(hessian, slope)
        line = line - step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-12:
            break
    return float(line[0] / unit), float(line[1] - line[0] * middle / unit)


def _matrices(decoded: Vector, shape: MomentShape) -> list[Matrix]:
    """The symmetric matrices of a sum."""
    return [
        symmetric(decoded[place * shape.triangle : (place + 1) * shape.triangle], shape.features)
        for place in range(shape.matrices)
    ]


def symmetric(triangle: Vector, features: int) -> Matrix:
    """The matrix of an upper triangle, row by row, whose off-diagonals are times √2."""
    upper = np.triu_indices(features)
    scale = np.where(upper[0] == upper[1], 1.0, 1.0 / math.sqrt(2.0))
    gram = np.zeros((features, features))
    gram[upper] = triangle * scale
    return np.asarray(gram + np.triu(gram, 1).T)


def _count(gram: Matrix, *, std: float, bias: float) -> float:
    """n, from n·b² at the end of the diagonal; never below what the noise alone would make it."""
    return max(float(gram[-1, -1]), std, bias * bias) / (bias * bias)


def _noise_norm(std: float, shape: MomentShape) -> float:
    """λ = √2·σ√f, the norm of symmetric noise."""
    return std * math.sqrt(2.0 * shape.features)


def _solved(matrix: Matrix, right: Matrix, noise: float) -> Matrix:
    """[matrix]⁻¹·right, every eigenvalue s counting as √(max(s, 0)² + λ²)."""
    values, vectors = np.linalg.eigh(matrix)
    kept = np.hypot(np.maximum(values, 0.0), noise)
    projected = vectors.T @ right
    return np.asarray(vectors @ (projected / (kept if right.ndim == 1 else kept[:, None])))
