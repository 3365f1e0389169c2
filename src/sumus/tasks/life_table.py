"""Kaplan–Meier's curve of people whose times are known to an interval (a life table).

    S(c_j) = Π_{i ≤ j} (1 − d_i/n_i),    d_i events in interval i, n_i people at risk in it

Counts are those of codes: 2j + 1 is an event in interval j, 2b is somebody who was followed through b
intervals without one. A person is one code, so counts of codes cost one cell a person; numbers at
risk are sums of them.

With noise of variance v in each count, Var(d/n) = (h(1 − h)·n + v·(1 − 2h + h²·m))/n², h = d/n and m
the codes that n is the sum of; Greenwood's formula adds the relative variances up.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sumus.tasks.uncertainty import Measured

__all__ = ["kaplan_meier"]

_Z = 2.0


def kaplan_meier(counts: npt.NDArray[np.float64], *, noise_variance: float) -> tuple[Measured, ...]:
    """Survival at every cut point, each with its half-width.

    Args:
        counts: people of each code.
        noise_variance: of each count.
    """
    kept, relative = 1.0, 0.0
    points = []
    for interval in range(len(counts) // 2):
        held = counts[2 * interval + 1 :]
        events, at_risk = float(held[0]), float(held.sum())
        if at_risk <= _Z * math.sqrt(noise_variance * len(held)) or kept <= 0.0:
            points.append(Measured(kept, 1.0))  # nobody is left to tell from
            relative = math.inf
            continue
        hazard = min(max(events / at_risk, 0.0), 1.0)
        noisy = noise_variance * (1.0 - 2.0 * hazard + hazard**2 * len(held))
        variance = (hazard * (1.0 - hazard) * at_risk + noisy) / at_risk**2
        relative += variance / max(1.0 - hazard, 1e-9) ** 2
        kept *= 1.0 - hazard
        half = min(_Z * kept * math.sqrt(relative), 1.0) if relative < math.inf else 1.0
        points.append(Measured(kept, half))
    return tuple(points)
