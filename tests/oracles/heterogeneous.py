"""Silos that differ: learning rates, clip norms, noise levels, step counts and sampling rates of
their own (Heikkilä 2025, appendix A.3).

Write γ_i = γ₁/l_i. One step contributes −γ₁ Σ_i (g_i + ξ_i)/l_i with ‖g_i‖ ≤ C_i per record and ξ_i
of standard deviation C_i·σ_i, so

    sensitivity of the sum     C* = max_i C_i / l_i
    variance of the sum        Σ_i (C_i·σ_i / l_i)²
    accounted variance         Σ_i (C_i·σ_i / (l_i·C*))²

Heikkilä's last formula leaves l_i out of the sum (`Σ (C_i σ_i / C*)²`), which counts noise that a
small learning rate has scaled away; the factor is needed. A record of silo i moves the sum by
C_i/l_i only, so every silo has a noise multiplier, and an ε, of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from sumus.accounting import Queries, Release, epsilon_of, even_groups, joining_rate
from sumus.errors import PlanError


@final
@dataclass(frozen=True, kw_only=True)
class SiloSetting:
    """What one silo does: γ_i relative to the plan's, C_i, σ_i (local, in its own clip norms), q_i,
    S_i.
    """

    learning_rate: float = 1.0
    clip_norm: float = 1.0
    local_noise_multiplier: float = 1.0
    sampling_rate: float = 1.0
    local_steps: int = 1

    @property
    def sensitivity(self) -> float:
        """γ_i·C_i: how far one record moves this silo's contribution."""
        return self.learning_rate * self.clip_norm

    @property
    def noise_std(self) -> float:
        """γ_i·C_i·σ_i: standard deviation of the noise this silo contributes."""
        return self.sensitivity * self.local_noise_multiplier


def counted_variance(silos: Sequence[SiloSetting], *, victim: int, not_counted: int = 0) -> float:
    """Variance of the sum's noise that protects a record of `victim`: its own, and the others' less
    the `not_counted` largest.
    """
    others = sorted(silo.noise_std**2 for index, silo in enumerate(silos) if index != victim)
    if not_counted > len(others):
        raise PlanError(
            "federation.colluding",
            not_counted,
            f"must be at most {len(others)}",
            "Lower dropouts or colluding.",
        )
    return silos[victim].noise_std ** 2 + math.fsum(others[: len(others) - not_counted])


def common_noise_multiplier(silos: Sequence[SiloSetting], *, not_counted: int = 0) -> float:
    """√(Σ (C_iσ_i/(l_iC*))²): one multiplier that is valid for the records of every silo."""
    largest = max(silo.sensitivity for silo in silos)
    return (
        min(
            math.sqrt(counted_variance(silos, victim=v, not_counted=not_counted))
            for v in range(len(silos))
        )
        / largest
    )


def silo_noise_multiplier(
    silos: Sequence[SiloSetting], victim: int, *, not_counted: int = 0
) -> float:
    """√(counted variance)/(γ_i·C_i): the multiplier for records of one silo, never below the common
    one.
    """
    return (
        math.sqrt(counted_variance(silos, victim=victim, not_counted=not_counted))
        / silos[victim].sensitivity
    )


@final
@dataclass(frozen=True, kw_only=True)
class FusedSteps:
    """Unequal step counts seen as a common number of slots; each slot holds one or more consecutive
    steps of a silo.

    `sizes[i][s]` steps of silo i are fused in slot s. In a slot of f steps one record moves the
    silo's contribution by at most f·γ_i·C_i, joins it with probability at most 1 − (1−q_i)^f, and
    only the noise of one of the f steps is counted.
    """

    slots: int
    sizes: tuple[tuple[int, ...], ...]
    epsilon: float
    epsilon_per_silo: tuple[float, ...]


def best_fusing(
    silos: Sequence[SiloSetting],
    *,
    rounds: int,
    delta: float,
    accountant: str = "renyi",
    not_counted: int = 0,
) -> FusedSteps:
    """The number of slots, between one and the smallest step count, that gives the smallest
    worst-silo ε per Heikkilä's theorem 4.5.

    Steps are fused as evenly as possible, larger groups in the earlier slots of every silo alike.
    This is per-step accounting: proved only where a single slot of single steps remains (every S_i
    = 1).
    """
    best: FusedSteps | None = None
    for slots in range(1, min(silo.local_steps for silo in silos) + 1):
        sizes = tuple(even_groups(silo.local_steps, slots) for silo in silos)
        epsilons = tuple(
            epsilon_of(
                _fused_release(silos, sizes, victim, rounds, not_counted),
                delta=delta,
                accountant=accountant,
            )
            for victim in range(len(silos))
        )
        if best is None or max(epsilons) < best.epsilon:
            best = FusedSteps(
                slots=slots, sizes=sizes, epsilon=max(epsilons), epsilon_per_silo=epsilons
            )
    if best is None:
        raise PlanError("silos", silos, "must hold at least one silo", "Add a silo.")
    return best


def _fused_release(
    silos: Sequence[SiloSetting],
    sizes: tuple[tuple[int, ...], ...],
    victim: int,
    rounds: int,
    not_counted: int,
) -> Release:
    silo = silos[victim]
    std = math.sqrt(counted_variance(silos, victim=victim, not_counted=not_counted))
    steps = []
    for fused in sorted(set(sizes[victim])):
        count = rounds * sizes[victim].count(fused)
        steps.append(
            Queries(
                std / (fused * silo.sensitivity), joining_rate(silo.sampling_rate, fused), count
            )
        )
    return Release(tuple(steps))
