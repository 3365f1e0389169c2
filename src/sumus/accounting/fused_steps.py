"""Consecutive local steps of one silo, fused into slots so that silos of unequal step counts line up.

In a slot of f steps one record moves the silo's contribution by at most f times its influence on a
step, joins with probability at most 1 − (1 − q)^f, and the noise of one step is counted.
"""

from __future__ import annotations

import math

__all__ = ["even_groups", "joining_rate"]


def even_groups(steps: int, slots: int) -> tuple[int, ...]:
    """`steps` steps fused into `slots` groups as evenly as possible, larger groups first."""
    small, larger = divmod(steps, slots)
    return (small + 1,) * larger + (small,) * (slots - larger)


def joining_rate(sampling_rate: float, fused: int) -> float:
    """1 − (1 − q)^f: probability that a record joins at least one of f fused steps."""
    if fused == 1 or sampling_rate == 1.0:
        return sampling_rate
    return min(1.0, -math.expm1(fused * math.log1p(-sampling_rate)))
