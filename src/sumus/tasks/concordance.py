"""Harrell's c-index of people whose times are known to an interval: who has the event first has the
higher risk.

    c = Σ_j Σ_{i: event in j} Σ_{k: survived j} ([r_i > r_k] + ½·[r_i = r_k])  /  number of such pairs

A pair is compared where the intervals tell who came first. A *code* says both at once: 2j + 1 is an
event in interval j, 2b is somebody who was followed through b intervals without one.

From a noisy histogram H[code, bin of risk] the same sums follow cell by cell. With A the numerator
and D the number of pairs, c = A/D is off by about (A − cD)/D, whose variance is

    ( Σ_cells (H + σ²)·g² + σ⁴·Σ_pairs of cells q² ) / D²,    g = ∂(A − cD)/∂H, q = [b' < b] + ½[b' = b] − c

the choice of records (Poisson) and the noise in the first term, noise times noise in the second.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sumus.tasks.uncertainty import Measured

__all__ = ["concordance", "noisy_concordance"]

_Z = 2.0  # 95.4 % of a normal law
_UNKNOWN = Measured(0.5, 0.5)

Floats = npt.NDArray[np.float64]


def concordance(
    risks: Floats, codes: npt.NDArray[np.int64], weights: Floats | None = None
) -> float:
    """c; ½ where no two people can be compared.

    Args:
        risks: higher means earlier.
        codes: event and interval of each person.
        weights: of each person; None: all the same.
    """
    counted = np.ones(len(risks)) if weights is None else weights
    survived, event = codes // 2, codes % 2 == 1
    right, pairs = 0.0, 0.0
    for interval in np.unique(survived[event]):
        cases = event & (survived == interval)
        later = survived > interval
        order = np.argsort(risks[later], kind="stable")
        sorted_risks = risks[later][order]
        below = np.concatenate([[0.0], np.cumsum(counted[later][order])])
        lower = below[np.searchsorted(sorted_risks, risks[cases], side="left")]
        upper = below[np.searchsorted(sorted_risks, risks[cases], side="right")]
        right += float(counted[cases] @ (lower + upper)) / 2.0
        pairs += float(counted[cases].sum() * below[-1])
    return right / pairs if pairs > 0.0 else 0.5


def noisy_concordance(histogram: Floats, *, noise_std: float) -> Measured:
    """c from a noisy histogram of risks, ties within a bin counted half.

    The ± has room for what bins hide, whatever the model: the pairs of one bin may all be right, or
    all be wrong.

    Args:
        histogram: (codes, bins), the lowest risks first.
        noise_std: of each cell.
    """
    codes, bins = histogram.shape
    intervals = codes // 2
    slope_right, slope_pairs = np.zeros_like(histogram), np.zeros_like(histogram)
    right, pairs, tied = 0.0, 0.0, 0.0
    for interval in range(intervals):
        cases, later = histogram[2 * interval + 1], histogram[2 * interval + 2 :].sum(axis=0)
        lower = np.cumsum(later) - later / 2.0  # of each bin: below it, and half of it
        above = cases.sum() - (np.cumsum(cases) - cases / 2.0)
        right += float(cases @ lower)
        pairs += float(cases.sum() * later.sum())
        tied += float(cases @ later)
        slope_right[2 * interval + 1] += lower
        slope_right[2 * interval + 2 :] += above
        slope_pairs[2 * interval + 1] += later.sum()
        slope_pairs[2 * interval + 2 :] += cases.sum()
    cell_pairs = sum(2 * (intervals - interval) - 1 for interval in range(intervals))
    variance = noise_std**2
    pairs_std = math.sqrt(
        variance * float(np.square(slope_pairs).sum()) + variance**2 * cell_pairs * bins**2
    )
    least = pairs - _Z * pairs_std
    if least <= 0.0:
        return _UNKNOWN
    c = min(max(right / pairs, 0.0), 1.0)
    influence = np.square(slope_right - c * slope_pairs)
    twice = cell_pairs * (bins * (bins - 1) / 2.0 * ((1.0 - c) ** 2 + c**2) + bins * (0.5 - c) ** 2)
    spread = float(((np.maximum(histogram, 0.0) + variance) * influence).sum())
    spread += variance**2 * twice
    hidden = min(max(tied / pairs, 0.0), 1.0) / 2.0
    half = _Z * math.sqrt(spread) / least + hidden
    return _UNKNOWN if half >= 0.5 else Measured(c, half)
