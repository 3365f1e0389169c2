"""The bias feature that every record of bounded norm carries; known to the server, without torch."""

from __future__ import annotations

import numpy as np

__all__ = ["BIAS_SHARE", "bias_feature"]

BIAS_SHARE = 0.25
"""The bias feature over the bound of a record's norm."""


def bias_feature(bound: float) -> float:
    """b, the last number of every record that `bounded` returns, as it is stored."""
    return float(np.float32(bound * (1.0 - 2.0**-20) * BIAS_SHARE))
