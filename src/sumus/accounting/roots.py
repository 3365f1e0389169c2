"""The root of a function of one variable, in a bracket.

SciPy has the same method; importing `scipy.optimize` takes longer than most accounts.
"""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["root_between"]

_STEPS = 100


def root_between(
    function: Callable[[float], float],
    low: float,
    high: float,
    *,
    tolerance: float,
    relative: float = 4.0 * 2.0**-52,
) -> float:
    """Brent's method: secant or inverse quadratic steps where they help, halves where they do not.

    Guarantee: |function| changes its sign within tolerance + relative·|x| of the returned x.
        Iterates are those of `scipy.optimize.brentq`, bit for bit.

    Reference: Brent 1973, Algorithms for Minimization without Derivatives, chapter 4.

    Args:
        function: continuous, with different signs at `low` and `high`.
        tolerance: absolute, of the root.
        relative: to the root.
    """
    before, here = low, high
    value_before, value_here = function(before), function(here)
    if value_before == 0.0:
        return before
    if value_here == 0.0:
        return here
    if not (value_before < 0.0 < value_here or value_here < 0.0 < value_before):
        raise ValueError(f"no change of sign between {low!r} and {high!r}")
    across, value_across = before, value_before  # beyond the root, seen from `here`
    step_before = step = here - before
    for _ in range(_STEPS):
        if value_before != 0.0 and (value_before < 0.0) != (value_here < 0.0):
            across, value_across = before, value_before
            step_before = step = here - before
        if abs(value_across) < abs(value_here):
            before, here, across = here, across, here
            value_before, value_here, value_across = value_here, value_across, value_here
        if math.isnan(value_here):
            raise ArithmeticError(f"the function is not a number at {here!r}")
        least = (tolerance + relative * abs(here)) / 2.0
        half = (across - here) / 2.0
        if value_here == 0.0 or abs(half) < least:
            return here
        trial = math.inf
        if abs(step_before) > least and abs(value_here) < abs(value_before):
            trial = _interpolated(before, here, across, value_before, value_here, value_across)
        if 2.0 * abs(trial) < min(abs(step_before), 3.0 * abs(half) - least):
            step_before, step = step, trial
        else:
            step_before = step = half
        before, value_before = here, value_here
        here += step if abs(step) > least else (least if half > 0.0 else -least)
        value_here = function(here)
    raise ArithmeticError(f"no root found between {low!r} and {high!r} in {_STEPS} steps")


def _interpolated(
    before: float,
    here: float,
    across: float,
    value_before: float,
    value_here: float,
    value_across: float,
) -> float:
    """The step to the root of the line, or of the inverse parabola, through the last points."""
    if before == across:
        return -value_here * (here - before) / (value_here - value_before)
    slope_before = (value_before - value_here) / (before - here)
    slope_across = (value_across - value_here) / (across - here)
    return (
        -value_here
        * (value_across * slope_across - value_before * slope_before)
        / (slope_across * slope_before * (value_across - value_before))
    )
