"""What a noisy histogram of two classes' scores tells, and how sure it is.

P_b cases and N_b controls in score bin b, of P and N in all:

    AUROC = Σ_b P_b·(N_{<b} + N_b/2) / (P·N)       off by at most ½·Σ_b P_b·N_b/(P·N), from binning
    average precision = Σ_b P_b/P · (mean precision while the cases of bin b are passed)
    calibration error = Σ_g |P_g − Σ_{b in g} p_b·(P_b + N_b)| / n

Every ± holds the noise, which is known, the choice of test records, as for independent counts, and
the most that binning can hide.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sumus.tasks.score_bins import GROUPS, HALF_WIDTHS, MIDDLES, SCORE_BINS
from sumus.tasks.score_tree import NoisyCells
from sumus.tasks.uncertainty import (
    FOLDED_MEAN,
    FOLDED_STD,
    NORMAL_95,
    Measured,
    Moments,
    noisy_quotient,
    share_within,
)

__all__ = [
    "binned_auroc",
    "binned_average_precision",
    "calibration_gap",
    "curve",
    "noisy_auroc",
    "noisy_average_precision",
    "noisy_calibration",
    "noisy_part",
    "reliability",
]

Floats = npt.NDArray[np.float64]
_NOTHING = Measured(0.5, 0.5)
_STEPS = (np.arange(8) + 0.5) / 8.0  # places within a bin at which precision is taken
_KNOWN = 3.0  # standard deviations that a number of records must have to be divided by


def noisy_part(noisy: NoisyCells, part: Floats, whole: Floats) -> Measured:
    """One number of records over another that holds it.

    Args:
        part: 1 in the cells that count, 0 elsewhere; `whole`: of those in the denominator.
    """
    x, y = float((noisy.cells * part).sum()), float((noisy.cells * whole).sum())
    noise = Moments(
        noisy.noise_of(part, part), noisy.noise_of(part, whole), noisy.noise_of(whole, whole)
    )
    return noisy_quotient(x, y, noise + Moments.of_choice(y))


def binned_auroc(cells: Floats) -> tuple[float, float] | None:
    """AUROC of a histogram without noise, with what binning can hide; None without cases or
    controls.
    """
    controls, cases = cells
    pairs = float(cases.sum() * controls.sum())
    if not pairs > 0.0:
        return None
    won = float(cases @ (np.cumsum(controls) - controls / 2.0))
    return won / pairs, float(cases @ controls) / (2.0 * pairs)


def noisy_auroc(noisy: NoisyCells, kept: Floats) -> Measured:
    """AUROC: a quotient of two products of noisy numbers, each without the bias that the noise
    brings. Slopes are taken at the noisy numbers, so the squares of the noise are in the errors too:
    twice, where they belong there once.
    """
    controls, cases = noisy.cells
    covariance = noisy.covariance
    won, pairs, tied = _kernels()
    flat = noisy.cells.ravel()

    def unbiased(kernel: Floats) -> float:
        return float(flat @ kernel @ flat) - float((kernel * covariance).sum())

    x, y = unbiased(won), unbiased(pairs)
    slopes = [((kernel + kernel.T) @ flat).reshape(2, SCORE_BINS) for kernel in (won, pairs)]
    hidden = max(unbiased(tied), 0.0) / (2.0 * y) if y > 0.0 else 1.0
    for one in (cases, controls):  # a product of two numbers near 0 may look large
        where = np.zeros_like(noisy.cells)
        where[1 if one is cases else 0] = 1.0
        if one.sum() < _KNOWN * math.sqrt(noisy.noise_of(where, where)):
            return _NOTHING
    moments = _moments(noisy, kept, *slopes)
    return noisy_quotient(x, y, moments, unsure=hidden)


def binned_average_precision(cells: Floats) -> tuple[float, float]:
    """Average precision of a histogram without noise where each bin is passed evenly, and how far
    the order within bins can move it.
    """
    return tuple(  # type: ignore[return-value]
        float(each) for each in _average_precision(cells[None])[:, 0]
    )


def noisy_average_precision(noisy: NoisyCells, kept: Floats) -> Measured:
    """Average precision at plausible numbers of records, with errors of the first order."""
    where = np.zeros_like(kept)
    where[1] = 1.0
    cases = float(noisy.cells[1].sum())
    if cases < max(_KNOWN * math.sqrt(noisy.noise_of(where, where)), 1.0):
        return _NOTHING
    value, hidden = binned_average_precision(kept)
    slope = _slope(lambda cells: _average_precision(cells)[0], kept)
    spread = math.sqrt(noisy.noise_of(slope, slope) + float((kept * slope**2).sum()))
    return share_within(value - NORMAL_95 * spread - hidden, value + NORMAL_95 * spread + hidden)


def calibration_gap(cells: Floats) -> Floats:
    """Σ (y − p_b) of each group, from records by class and bin."""
    controls, cases = cells
    gap: Floats = (cases * (1.0 - MIDDLES) - controls * MIDDLES).reshape(GROUPS, -1).sum(axis=1)
    return gap


def noisy_calibration(noisy: NoisyCells, kept: Floats) -> Measured:
    """Noise makes a mean distance larger, never smaller: what it adds at most is taken off."""
    records = float(noisy.cells.sum())
    everything = np.ones_like(kept)
    if records < max(_KNOWN * math.sqrt(noisy.noise_of(everything, everything)), 1.0):
        return _NOTHING
    raw = float(np.abs(calibration_gap(noisy.cells)).sum()) / records
    stds = np.array([_gap_std(noisy, kept, group) for group in range(GROUPS)]) / records
    hidden = float((kept * HALF_WIDTHS).sum()) / records
    less = FOLDED_MEAN * stds.sum() + NORMAL_95 * FOLDED_STD * math.sqrt(stds @ stds)
    more = NORMAL_95 * math.sqrt(stds @ stds)
    return share_within(raw - less - hidden, raw + more + hidden)


def curve(kept: Floats) -> dict[str, tuple[float, ...]]:
    """False and true positive rates at every edge of a bin, from the highest."""
    controls, cases = (np.append(0.0, np.cumsum(row[::-1])) for row in kept)
    rates = [row / row[-1] if row[-1] > 0.0 else row for row in (controls, cases)]
    _, places = np.unique(np.stack(rates).round(6), axis=1, return_index=True)
    chosen = np.sort(places)
    return {
        "false_positive_rate": tuple(rates[0][chosen].round(6).tolist()),
        "true_positive_rate": tuple(rates[1][chosen].round(6).tolist()),
    }


def reliability(noisy: NoisyCells, kept: Floats) -> dict[str, tuple[float, ...]]:
    """By group of scores: the mean prediction, the share of cases with its ±, and the share of all
    records; groups of which nothing can be told are left out.
    """
    table: dict[str, list[float]] = {
        name: [] for name in ("predicted", "observed", "plus_minus", "share")
    }
    everything = float(kept.sum())
    for group in range(GROUPS):
        bins = _bins_of(group)
        weights = kept[:, bins].sum(axis=0)
        cases, records = np.zeros_like(kept), np.zeros_like(kept)
        cases[1, bins], records[:, bins] = 1.0, 1.0
        observed = noisy_part(noisy, cases, records)
        if weights.sum() <= 0.0 or (observed.plus_minus or 0.0) >= 0.5:
            continue
        table["predicted"].append(round(float(np.average(MIDDLES[bins], weights=weights)), 6))
        table["observed"].append(round(observed.value, 6))
        table["plus_minus"].append(round(observed.plus_minus or 0.0, 6))
        table["share"].append(round(float(weights.sum()) / everything, 6))
    return {name: tuple(column) for name, column in table.items()}


def _bins_of(group: int) -> slice:
    per_group = SCORE_BINS // GROUPS
    return slice(group * per_group, (group + 1) * per_group)


def _gap_std(noisy: NoisyCells, kept: Floats, group: int) -> float:
    slope = np.zeros_like(kept)
    bins = _bins_of(group)
    slope[1, bins], slope[0, bins] = 1.0 - MIDDLES[bins], -MIDDLES[bins]
    return math.sqrt(noisy.noise_of(slope, slope) + float((kept * slope**2).sum()))


def _moments(noisy: NoisyCells, kept: Floats, x: Floats, y: Floats) -> Moments:
    """Of two linear functions of the cells: the noise, and the choice of records."""

    def of(first: Floats, second: Floats) -> float:
        return noisy.noise_of(first, second) + float((kept * first * second).sum())

    return Moments(of(x, x), of(x, y), of(y, y))


def _average_precision(cells: Floats) -> Floats:
    """Of many histograms (…, 2, bins) at once: the value, and how far bins can move it."""
    controls, cases = cells[:, 0, ::-1], cells[:, 1, ::-1]
    found = cases.sum(axis=1)
    before, alarms = np.cumsum(cases, axis=1) - cases, np.cumsum(controls, axis=1) - controls
    tiny = np.finfo(np.float64).tiny

    def mean_precision(first: Floats, passed: Floats) -> Floats:
        hits = before[..., None] + cases[..., None] * _STEPS
        precision: Floats = hits / np.maximum(hits + first[..., None] + passed, tiny)
        mean: Floats = precision.mean(axis=2)
        return mean

    even = mean_precision(alarms, controls[..., None] * _STEPS)
    least = mean_precision(alarms + controls, np.zeros(len(_STEPS)))
    most = mean_precision(alarms, np.zeros(len(_STEPS)))
    safe = np.maximum(found, tiny)
    value, low, high = ((cases * each).sum(axis=1) / safe for each in (even, least, most))
    return np.stack([value, np.maximum(high - value, value - low)])


def _slope(function: Callable[[Floats], Floats], cells: Floats) -> Floats:
    """The gradient by one-sided differences of one record, away from negative numbers."""
    step = 1.0
    moved = cells + step * np.eye(cells.size).reshape(cells.size, *cells.shape)
    at = function(cells[None])[0]
    slope: Floats = ((function(moved) - at) / step).reshape(cells.shape)
    return slope


def _kernels() -> tuple[Floats, Floats, Floats]:
    """Matrices K with cᵀ·K·c = pairs that are won, all pairs, and pairs in one bin."""
    size, bins = 2 * SCORE_BINS, np.arange(SCORE_BINS)
    won, pairs, tied = (np.zeros((size, size)) for _ in range(3))
    case, control = slice(SCORE_BINS, size), slice(0, SCORE_BINS)
    won[case, control] = (bins[:, None] > bins) + 0.5 * (bins[:, None] == bins)
    pairs[case, control] = 1.0
    tied[case, control] = np.eye(SCORE_BINS)
    return won, pairs, tied
