"""Public bins of what a classifier says, and where in them a record falls.

    two classes    log-odds z of class 1: 64 bins, split at 0, where the decision is; on each side
                   twenty of width 0.2, eleven of 0.4, and one beyond ±8.4
    more classes   probability of the predicted class: 16 bins, finer near 1

In log-odds rare outcomes are told apart as well as even ones: a model of a 1 % risk has its scores
near −4.6 ± 2, where equal bins of the probability would put nearly all of them into one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "CONFIDENCE_BINS",
    "CONFIDENCE_EDGES",
    "GROUPS",
    "HALF_WIDTHS",
    "MIDDLES",
    "PER_SIDE",
    "SCORE_BINS",
    "confidence_bin",
    "group_of",
    "magnitude_bin",
    "probability",
]

Floats = npt.NDArray[np.float64]

PER_SIDE = 32
"""Bins on each side of the decision; a power of two, for the tree of `sumus.tasks.score_tree`."""
SCORE_BINS = 2 * PER_SIDE
GROUPS = 16
"""Neighbouring bins together, for calibration: four in each."""
_SIDE = np.concatenate([0.2 * np.arange(1, 21), 4.0 + 0.4 * np.arange(1, 12)])
CONFIDENCE_EDGES: Floats = np.array(
    [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1]
)
CONFIDENCE_BINS = len(CONFIDENCE_EDGES) - 1


def probability(log_odds: npt.NDArray[Any]) -> Floats:
    """1 / (1 + e^−z), without overflow."""
    small = np.exp(-np.abs(log_odds.astype(np.float64)))
    return np.where(log_odds >= 0, 1.0, small) / (1.0 + small)


_EDGES = np.concatenate([[-np.inf], -_SIDE[::-1], [0.0], _SIDE, [np.inf]])
_LOW, _HIGH = probability(_EDGES[:-1]), probability(_EDGES[1:])
MIDDLES: Floats = (_LOW + _HIGH) / 2.0
"""Of each bin's range of probabilities of class 1."""
HALF_WIDTHS: Floats = (_HIGH - _LOW) / 2.0
"""The most that a probability is away from the middle of its bin."""


def magnitude_bin(log_odds: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """How far from the decision, 0 … 31; what is not a number is farthest."""
    size = np.where(np.isnan(log_odds), np.inf, np.abs(log_odds.astype(np.float64)))
    return np.searchsorted(_SIDE, size, side="right")


def confidence_bin(confidence: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """0 … 15; what is not a number is most sure."""
    known = np.where(np.isnan(confidence), 1.0, confidence.astype(np.float64))
    return np.searchsorted(CONFIDENCE_EDGES[1:-1], known, side="right")


def group_of(log_odds: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The calibration group of each score, 0 … 15 from the least likely."""
    per_group = SCORE_BINS // GROUPS
    place = magnitude_bin(log_odds) // per_group
    return np.where(log_odds > 0, GROUPS // 2 + place, GROUPS // 2 - 1 - place)
