"""Measures of scores in the clear: ranking, precision, calibration.

    AUROC              P[score of a case > score of a control] + ½·P[equal]
    average precision  Σ_n (R_n − R_{n−1})·P_n over all thresholds, equal scores together
    calibration error  Σ_g |Σ_{i in g} (y_i − p_i)| / n over public groups of scores

Rows may have weights, so that a person's together weigh 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["auroc", "average_precision", "gaps"]

Floats = npt.NDArray[np.float64]


def auroc(cases: npt.NDArray[np.bool_], scores: npt.NDArray[Any], weights: Floats) -> float | None:
    """The area under the curve of true over false positives; None without cases or controls."""
    hits, misses = _by_score(cases, scores, weights)
    found, alarms = hits.sum(), misses.sum()
    if not (found > 0.0 and alarms > 0.0):
        return None
    below = np.cumsum(misses) - misses / 2.0
    return float(hits @ below) / float(found * alarms)


def average_precision(
    cases: npt.NDArray[np.bool_], scores: npt.NDArray[Any], weights: Floats
) -> float | None:
    """Precision, averaged over the cases; None without a case."""
    hits, misses = (counts[::-1] for counts in _by_score(cases, scores, weights))
    found = hits.sum()
    if not found > 0.0:
        return None
    above = np.cumsum(hits)
    precision = above / np.maximum(above + np.cumsum(misses), np.finfo(np.float64).tiny)
    return float(hits @ precision) / float(found)


def gaps(
    groups: npt.NDArray[np.int64], differences: Floats, weights: Floats, *, count: int
) -> float:
    """The calibration error: per group how far outcomes are from what was predicted, over all."""
    sums = np.bincount(groups, weights=weights * differences, minlength=count)
    return float(np.abs(sums).sum()) / float(weights.sum())


def _by_score(
    cases: npt.NDArray[np.bool_], scores: npt.NDArray[Any], weights: Floats
) -> tuple[Floats, Floats]:
    """Weight of cases and of controls at every distinct score, from the lowest."""
    distinct, places = np.unique(scores, return_inverse=True)
    hits, misses = np.zeros(len(distinct)), np.zeros(len(distinct))
    hits += np.bincount(places, weights=np.where(cases, weights, 0.0), minlength=len(distinct))
    misses += np.bincount(places, weights=np.where(cases, 0.0, weights), minlength=len(distinct))
    return hits, misses
