"""What an algorithm says about its vectors: the grid they lie on, and what one silo adds to the sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

__all__ = ["Layout", "SiloDesign"]


@final
@dataclass(frozen=True, kw_only=True)
class Layout:
    """What all silos of a round have in common.

    Args:
        unit: real units that the plan's resolution stands for, in the released sum.
        step_weights: fixed-point integer weights of the local steps in the release (all 1 without
            momentum or a schedule).
        update_scale: decoded sum × this = the averaged model update.
    """

    unit: float
    step_weights: tuple[int, ...]
    update_scale: float


@final
@dataclass(frozen=True, kw_only=True)
class SiloDesign:
    """What one silo does in a round, in the units of the common grid.

    Args:
        name: the silo.
        learning_rate: γ_i.
        clip_norm: C_i, gradient units (convex-pass: the natural gradient bound; silo: the bound on
            the whole update).
        resolution: grid steps that its clip norm stands for; at most the plan's.
        l2_grid: Δ₂, what one record can do to one noisy query of this silo.
        sampling_rate: q_i.
        local_steps: S_i.
        records: public upper bound on its training records.
        variance_ratio: its noise variance over that of an equal share.
        overfull_rate: probability per round that a record's bin overflows and its influence at most
            doubles (convex-pass).
    """

    name: str
    learning_rate: float
    clip_norm: float
    resolution: int
    l2_grid: float
    sampling_rate: float
    local_steps: int
    records: int
    variance_ratio: float
    overfull_rate: float
