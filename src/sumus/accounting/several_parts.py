"""A unit of several parts, each with a coin of its own: a person with rows in h silos.

j parts join with probability p_j = Binomial(h, q)(j), and the query moves by at most j times what
one part moves it by. For any shares w_1 + … + w_h = 1 with w_j ≥ p_j the mixture is

    p_0·P_0 + Σ_j p_j·P_j = Σ_j w_j·[(1 − a_j)·P_0 + a_j·P_j],   a_j = p_j/w_j

so it is as if j were drawn with probability w_j, told in both worlds alike, and then all j parts
joined together with probability a_j. Only pairs (P_0, P_j) enter, which is what integer noise is
known by: a Gaussian dominates each pair, but not three laws at once (docs/mathematics.md, theorem
10). Every choice of shares is a valid bound; `TILTS` names those that are tried. With a_j ∝ 1/√(e^{t·(j/σ)²} − 1)
and t = 1 the second moments of the privacy loss, Σ_j p_j·a_j·(e^{(j/σ)²} − 1), are least.
"""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["TILTS", "told_parts"]

TILTS = (1.0, 2.0)
_LARGEST_EXPONENT = 600.0
_ROUNDING = 1e-12  # relative; logarithms and exponentials of a few hundred


@lru_cache(maxsize=256)
def told_parts(
    sampling_rate: float, parts: int, gaussian_multiplier: float, tilt: float
) -> tuple[tuple[int, float, float], ...]:
    """(j, w_j, a_j) for j = 1 … h; of a single part (1, 1, q).

    Guarantee: w_j·a_j = p_j and the w_j sum to 1, up to the rounding of doubles, for which every
        a_j is rounded up; every a_j is a probability.

    Args:
        sampling_rate: q < 1, of every part.
        parts: h.
        gaussian_multiplier: σ of one part.
        tilt: t.
    """
    if parts == 1:
        return ((1, 1.0, sampling_rate),)
    chances, roots = {}, {}
    for number in range(1, parts + 1):
        chances[number] = math.exp(
            math.log(math.comb(parts, number))
            + number * math.log(sampling_rate)
            + (parts - number) * math.log1p(-sampling_rate)
        )
        loss = min(tilt * (number / gaussian_multiplier) ** 2, _LARGEST_EXPONENT)
        roots[number] = math.sqrt(math.expm1(loss))
    nobody = math.exp(parts * math.log1p(-sampling_rate))
    certain: set[int] = set()  # numbers that join whenever they are told
    scale = 0.0
    while rest := [number for number in chances if number not in certain]:
        # what the certain ones leave of 1, as a sum: a difference would cancel
        room = nobody + math.fsum(chances[number] for number in rest) if certain else 1.0
        moved = math.fsum(chances[number] * roots[number] for number in rest)
        scale = moved / room if room > 0.0 else math.inf
        more = {number for number in rest if scale >= roots[number]}
        if not more:
            break
        certain |= more
    joins = {number: 1.0 if number in certain else scale / roots[number] for number in chances}
    return tuple(
        (number, chances[number] / joins[number], min(1.0, joins[number] * (1.0 + _ROUNDING)))
        for number in chances
        if chances[number] > 0.0
    )
