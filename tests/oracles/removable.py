"""What removable noise keeps and saves, as exact fractions."""

from __future__ import annotations

from fractions import Fraction

from sumus.errors import PlanError
from sumus.noise import component_shares


def kept_share(*, silos: int, dropouts: int, missing: int, colluding: int = 0) -> Fraction:
    """What one silo keeps when `missing` silos are not in the sum, as a fraction of V: 1 / (N − c −
    missing).

    Guarantee: raises when more are missing than were provided for, because the noise would then be
        below its target.
    """
    if not 0 <= missing <= dropouts:
        raise PlanError(
            "missing",
            missing,
            f"must lie between 0 and the {dropouts} tolerated drop-outs",
            "Abort the round.",
        )
    return sum(
        component_shares(silos=silos, dropouts=dropouts, colluding=colluding)[: missing + 1],
        Fraction(0),
    )


def overprovision_saved(*, silos: int, dropouts: int, missing: int, colluding: int = 0) -> Fraction:
    """By what factor add-then-remove lowers the noise variance of the sum against shares sized for
    the worst case.

    Fixed shares leave (N − missing) / (N − c − D) of V in the sum, removable ones (N − missing) /
    (N − c − missing).
    """
    kept = kept_share(silos=silos, dropouts=dropouts, missing=missing, colluding=colluding)
    return kept_share(silos=silos, dropouts=dropouts, missing=dropouts, colluding=colluding) / kept
