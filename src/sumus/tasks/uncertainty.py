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

__all__ = [
    "CONFIDENCE",
    "FOLDED_MEAN",
    "FOLDED_STD",
    "NORMAL_95",
    "Measured",
    "Moments",
    "noisy_quotient",
    "noisy_ratio",
    "noisy_share",
    "number_text",
    "percent_text",
    "share_within",
]

CONFIDENCE = "95 %"
NORMAL_95 = 1.96
"""Half-width of an interval that holds 95 % of a normal law, in standard deviations."""
FOLDED_MEAN, FOLDED_STD = math.sqrt(2.0 / math.pi), math.sqrt(1.0 - 2.0 / math.pi)
"""Mean and standard deviation of the size of a normal number of standard deviation 1."""
_Z = NORMAL_95


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


@final
@dataclass(frozen=True)
class Moments:
    """Second moments of the errors of two numbers."""

    xx: float
    xy: float
    yy: float

    @classmethod
    def of_choice(cls, records: float) -> Moments:
        """Of a part of so many records that were chosen at random: n·ρ·(1 − ρ) at the share ρ, as in
        Wilson's interval.
        """
        return cls(0.0, -max(records, 0.0) / 2.0, -max(records, 0.0))

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.xx + other.xx, self.xy + other.xy, self.yy + other.yy)


def noisy_quotient(x: float, y: float, moments: Moments, *, unsure: float = 0.0) -> Measured:
    """x/y between 0 and 1, of two numbers whose errors hang together.

    Fieller's interval: all ρ with (x − ρ·y)² ≤ z²·(xx − 2ρ·xy + ρ²·yy); all of [0, 1] where y
    cannot be told from 0.

    Args:
        unsure: how far the quotient may be off besides.
    """
    square = y**2 - _Z**2 * moments.yy
    cross = x * y - _Z**2 * moments.xy
    inside = cross**2 - square * (x**2 - _Z**2 * moments.xx)
    if y <= 0.0 or square <= 0.0 or not math.isfinite(inside):
        return Measured(0.5, 0.5)
    reach = math.sqrt(max(inside, 0.0))
    found = share_within((cross - reach) / square - unsure, (cross + reach) / square + unsure)
    low, high = found.value - (found.plus_minus or 0.0), found.value + (found.plus_minus or 0.0)
    value = min(max(x / y, low), high)
    return Measured(value, max(high - value, value - low))


def share_within(low: float, high: float) -> Measured:
    """The middle of the part of an interval that lies in [0, 1]; all of it where none does: then
    something else is wrong than noise.
    """
    if not (low <= 1.0 and high >= 0.0):
        return Measured(0.5, 0.5)
    low, high = max(low, 0.0), min(high, 1.0)
    return Measured((low + high) / 2.0, (high - low) / 2.0)


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
