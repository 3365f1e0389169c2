"""From a noisy sum of second moments to a linear model: ridge regression by a public rule.

    (G + λI)·W = H,      λ = 2·σ·√f

G is the decoded f × f matrix, H the f × K products, σ the standard deviation of the noise on a
diagonal entry. The noise in G is a symmetric matrix with variance σ² on the diagonal and σ²/2 off
it, whose norm is √2·σ·√f in the limit of many features, so that G + λI is positive definite up to a
vanishing chance; an eigenvalue below λ/4 counts as λ/4, and the solution is finite always. All of
it is computed from a released sum and public numbers: post-processing.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sumus.guarantee import NoiseDesign
from sumus.plan import moment_shape

__all__ = ["solved_model"]

Vector = npt.NDArray[np.float64]


def solved_model(design: NoiseDesign, decoded: Vector, survivors: int) -> Vector:
    """The weights (K, f), flat, that a sum of moments stands for.

    Args:
        decoded: the sum in real units, with noise.
        survivors: silos whose noise is in it.
    """
    features, outputs = moment_shape(design.resolved.coordinates, design.resolved.dimension)
    triangle, products = np.split(decoded, [features * (features + 1) // 2])
    gram = np.zeros((features, features))
    upper = np.triu_indices(features)
    gram[upper] = np.where(upper[0] == upper[1], triangle, triangle / math.sqrt(2.0))
    gram = gram + np.triu(gram, 1).T
    noisy = design.resolved.contributors if design.plan.noise.removable else survivors
    std = math.sqrt(noisy * design.share.variance_grid) * design.grid.granularity
    ridge = 2.0 * std * math.sqrt(features)
    values, vectors = np.linalg.eigh(gram)
    right = vectors.T @ products.reshape(outputs, features).T
    solution = vectors @ (right / np.maximum(values + ridge, ridge / 4.0)[:, None])
    return np.ascontiguousarray(solution.T).reshape(-1)
