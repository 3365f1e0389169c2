"""Several coins of one unit: of consecutive local steps that count as one, or of several silos.

Steps of one silo are fused into slots so that silos of unequal step counts line up: in a slot of f
steps one record moves the silo's contribution by at most f times its influence on a step, joins with
probability at most 1 − (1 − q)^f, and the noise of one step is counted. A person with rows in h silos
has a coin in each of them.
"""

from __future__ import annotations

import math

__all__ = ["even_groups", "joining_parts", "joining_rate"]


def even_groups(steps: int, slots: int) -> tuple[int, ...]:
    """`steps` steps fused into `slots` groups as evenly as possible, larger groups first."""
    small, larger = divmod(steps, slots)
    return (small + 1,) * larger + (small,) * (slots - larger)


def joining_rate(sampling_rate: float, fused: int) -> float:
    """1 − (1 − q)^f: probability that a record joins at least one of f fused steps."""
    if fused == 1 or sampling_rate == 1.0:
        return sampling_rate
    return min(1.0, -math.expm1(fused * math.log1p(-sampling_rate)))


def joining_parts(sampling_rate: float, parts: int) -> tuple[float, tuple[float, ...]]:
    """(1 − (1 − q)^h, (b_1, …, b_h)): the probability that at least one of h parts joins, and how
    many do whenever one does, b_j = C(h, j)·q^j·(1 − q)^(h−j) over the first.
    """
    joins = joining_rate(sampling_rate, parts)
    if parts == 1:
        return joins, (1.0,)
    shares = tuple(
        math.exp(
            math.lgamma(parts + 1)
            - math.lgamma(number + 1)
            - math.lgamma(parts - number + 1)
            + number * math.log(sampling_rate)
            + (parts - number) * math.log1p(-sampling_rate)
        )
        / joins
        for number in range(1, parts + 1)
    )
    return joins, shares
