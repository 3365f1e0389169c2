"""Shares that are known through noise: the estimate, how far off it may be, and no more digits than
that.

    share = ½ + X/Y,    X = Σ (x_i − ½) + noise,    Y = n + noise,    x_i in [0, 1]

The interval holds all shares p that the two noisy sums do not contradict:

    (X − (p − ½)·Y)² ≤ z²·( Y·p(1 − p) + Var X + (p − ½)²·Var Y )

with the sampling error of n records in the first term and the known noise in the other two. It is
Wilson's interval without noise, and Fieller's without sampling error; where Y cannot be told from 0
it is [0, 1]. For x_i between 0 and 1 it is wider than it need be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

__all__ = ["CONFIDENCE", "Measured", "noisy_ratio", "noisy_share", "number_text", "percent_text"]

CONFIDENCE = "95 %"
_Z = 2.0  # 95.4 % of a normal law


@final
@dataclass(frozen=True)
class Measured:
    """An estimate and its half-width: in 95 of 100 measurements the truth is not further away.

    Args:
        plus_minus: None where the value is exact.
    """

    value: float
    plus_minus: float | None = None


def noisy_share(
    numerator: float, denominator: float, *, numerator_std: float, denominator_std: float
) -> Measured:
    """A share from two noisy sums.

    Args:
        numerator: X, centred.
        denominator: Y, noisy number of records.
        numerator_std: of the noise in X; `denominator_std`: in Y.
    """
    records = max(denominator, 0.0)
    square = denominator**2 + _Z**2 * (records - denominator_std**2)
    cross = numerator * denominator
    rest = numerator**2 - _Z**2 * (records / 4.0 + numerator_std**2)
    inside = cross**2 - square * rest
    if denominator <= 0.0 or square <= 0.0 or inside < 0.0:
        return Measured(0.5, 0.5)
    low = max((cross - math.sqrt(inside)) / square, -0.5)
    high = min((cross + math.sqrt(inside)) / square, 0.5)
    if low > high or (low == -0.5 and high == 0.5):
        return Measured(0.5, 0.5)
    centred = min(max(numerator / denominator, low), high)
    return Measured(0.5 + centred, max(high - centred, centred - low))


def noisy_ratio(
    numerator: float,
    denominator: float,
    *,
    numerator_variance: float,
    denominator_variance: float,
    rounding: float,
    largest: float,
) -> Measured:
    """X/Y of two noisy sums of non-negative numbers, between 0 and `largest`.

    Fieller's interval: all ρ with (X − ρ·Y)² ≤ z²·(Var X + ρ²·Var Y), the whole of [0, largest]
    where Y cannot be told from 0.

    Args:
        numerator_variance: Var X, of noise and of the choice of records; `denominator_variance`:
            Var Y.
        rounding: the most that the grid moves X by, and Y.
    """
    nothing = Measured(largest / 2.0, largest / 2.0)
    square = denominator**2 - _Z**2 * denominator_variance
    cross = numerator * denominator
    inside = cross**2 - square * (numerator**2 - _Z**2 * numerator_variance)
    if denominator <= 0.0 or square <= 0.0 or inside < 0.0:
        return nothing
    slack = rounding * (1.0 + largest) / denominator
    low = max((cross - math.sqrt(inside)) / square - slack, 0.0)
    high = min((cross + math.sqrt(inside)) / square + slack, largest)
    if low > high or (low == 0.0 and high == largest):
        return nothing
    value = min(max(numerator / denominator, low), high)
    return Measured(value, max(high - value, value - low))


def percent_text(value: float, plus_minus: float | None = None) -> str:
    """A share in per cent: one decimal if it is exact, else no more digits than its half-width
    bears.
    """
    if plus_minus is None:
        return f"{value:.1%}"
    shown, width = _rounded(
        100.0 * value, 100.0 * plus_minus, decimals=0 if plus_minus >= 0.095 else 1
    )
    return f"{shown}% ± {width}%"


def number_text(value: float, plus_minus: float) -> str:
    """A number with no more digits than its half-width bears."""
    decimals = 1 if plus_minus >= 0.95 else 2
    if plus_minus >= 95.0:
        decimals = 0
    elif 0.0 < plus_minus < 0.005:
        decimals = min(-math.floor(math.log10(plus_minus)), 12)
    shown, width = _rounded(value, plus_minus, decimals=decimals)
    return f"{shown} ± {width}"


def _rounded(value: float, plus_minus: float, *, decimals: int) -> tuple[str, str]:
    """Both at so many decimals; the half-width is rounded up, and by what rounding moved the
    value.
    """
    shown = round(value, decimals)
    width = math.ceil((plus_minus + abs(shown - value)) * 10.0**decimals - 1e-9) / 10.0**decimals
    return f"{shown:.{decimals}f}", f"{width:.{decimals}f}"
