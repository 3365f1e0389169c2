"""Whether the vectors of all silos fit into this machine's memory, before anything is drawn."""

from __future__ import annotations

import os

from sumus.errors import PlanError
from sumus.guarantee import NoiseDesign

__all__ = ["require_room"]

_AT_WORK = 6  # vectors that one silo's arithmetic, noise and masks hold beside what it sends


def require_room(design: NoiseDesign) -> None:
    """Refuse a sum of moments that one process cannot hold for all silos of the plan: it grows with
    the square of the columns. Models were built by whoever trains them, and so fit.
    """
    resolved = design.resolved
    if resolved.rules.sums not in ("moments", "curvature"):
        return
    needed = 8 * resolved.coordinates * (resolved.invited + _AT_WORK)
    memory = _memory()
    if needed > memory:
        rule = (
            f"needs {needed / 1e9:.1f} GB for sums of {resolved.coordinates:,} numbers of "
            f"{resolved.invited} silos in one process, this machine has {memory / 1e9:.1f} GB"
        )
        fix = 'Use "convex-pass", fewer columns, or a process a silo (sumus federation).'
        raise PlanError("training.algorithm", resolved.rules.name, rule, fix)


def _memory() -> float:
    """Bytes of this machine's memory; infinite where the system does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return float("inf")
