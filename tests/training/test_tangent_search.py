"""An adversary climbs: it changes a record, its company and their labels little by little, and keeps
whatever moves a tangent pass further apart from that of its neighbour.
"""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest

from sumus.tasks import Link
from support.tangents import LINKS, Raw, bounds_for, labels_for, moved

_RECORDS, _BINS, _STARTS, _CLIMBS = 6, 3, 20, 200
_DEALT = np.arange(_RECORDS) % _BINS


def _reached(link: Link, seed: int, *, too_long: float = 1.0) -> float:
    """The largest move by one record that the climb has found, in γC/b."""
    rng = np.random.default_rng(seed)
    cap = _RECORDS // _BINS
    bounds = bounds_for(link, cap=cap)
    step = too_long * 2.0 / (bounds.convex.smoothness * cap) * (1 - 1e-5)
    bounds = dataclasses.replace(bounds, move_norm=1e6)  # no wall that would hide a long step
    options = {"bins": _BINS, "step": step, "bounds": bounds}

    def apart(own: Raw, labels: np.ndarray, bins: np.ndarray) -> float:
        both = [moved(own, each, [bins], **options) for each in (labels, labels[:-1])]
        return float(np.linalg.norm(both[0] - both[1])) / (step * bounds.convex.gradient_norm)

    starts = [
        (Raw(rng, _RECORDS, link), labels_for(rng, link, _RECORDS), rng.permutation(_DEALT))
        for _ in range(_STARTS)
    ]
    raw, y, bins = max(starts, key=lambda start: apart(*start))
    best = apart(raw, y, bins)
    for _ in range(_CLIMBS):
        other, labels, order = copy.deepcopy(raw), y, bins
        for name in ("z", "left", "right", "rows"):
            numbers = getattr(other, name)
            numbers += (
                rng.choice([0.0, 0.1, 1.0])
                * rng.normal(size=numbers.shape)
                * (rng.random(numbers.shape) < 0.3)
            )
        if rng.random() < 0.1:
            labels = labels_for(rng, link, _RECORDS)
        if rng.random() < 0.1:
            order = rng.permutation(bins)
        found = apart(other, labels, order)
        if found > best:
            raw, y, bins, best = other, labels, order, found
    return best


@pytest.mark.parametrize("link", list(LINKS))
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))]
)
def test_no_climb_passes_the_declared_sensitivity(link: Link, seed: int) -> None:
    """And it comes near: a search that stays far below would find nothing whatever was wrong."""
    assert 0.5 < _reached(link, seed) <= 1.0 + 1e-5


@pytest.mark.parametrize("link", [Link.SOFTMAX, Link.HUBER])
def test_control_steps_that_are_too_long_are_found(link: Link) -> None:
    """Beyond 2/β a step pushes neighbours apart, and the same climb sees it."""
    assert max(_reached(link, seed, too_long=8.0) for seed in range(3)) > 1.1
