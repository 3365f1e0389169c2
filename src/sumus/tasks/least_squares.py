"""Probabilities of classes from outputs that were fitted by least squares.

    p_k = z_k − mean(z) + 1/K            targets are 1 − 1/K for the class and −1/K for the others
    share_k = f(p_k) / Σ_j f(p_j)        f: straight lines through `KNOTS`, constant beyond them

Least squares approximates the probabilities themselves, which a softmax would draw together. f is
the identity but at the ends, where a line leaves [0, 1]: it stays above 0, so that losses are
finite, and keeps rising, so that records are ranked as by their outputs. As f(1 − p) = 1 − f(p), two
classes need no division, and the share of one is a function of z_1 − z_0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["KNOTS", "SLOPE", "shares_of_squares"]

KNOTS: Final = ((-1.0, 0.001), (0.01, 0.01), (0.99, 0.99), (2.0, 0.999))
"""(p, f(p)), in rising order."""
SLOPE: Final = (KNOTS[1][1] - KNOTS[0][1]) / (KNOTS[1][0] - KNOTS[0][0])
"""Of the lines at both ends."""


def shares_of_squares(outputs: Tensor) -> Tensor:
    """The probability of every class, (records, classes); NaN where an output is not finite."""
    (lowest, _), (low, _), (high, _), (highest, _) = KNOTS
    p = outputs - outputs.mean(dim=1, keepdim=True) + 1.0 / outputs.shape[1]
    below, above = p.clamp(lowest, low) - low, p.clamp(high, highest) - high
    bent = p.clamp(low, high) + SLOPE * (below + above)
    return bent / bent.sum(dim=1, keepdim=True)
