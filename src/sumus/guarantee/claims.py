"""The analyses: what each algorithm releases, and whether that is proved.

| name          | what is composed                                         | proved                        |
|---------------|----------------------------------------------------------|-------------------------------|
| `single-step` | T × subsampled(noise of all counted silos)               | S = 1                         |
| `last-step`   | T·(S−1) × subsampled(the silo's own noise alone)         | always                        |
|               |   ∘ T × subsampled(noise of all counted silos)           |                               |
| `local`       | T·S × subsampled(the silo's own noise alone)             | always                        |
| `per-step`    | T·S × subsampled(noise of all counted silos)             | S = 1 only (paper, theorem 4.5) |
| `split-noise` | T·(S−1) × subsampled(σ_eff)                              | always, with unsent state noise |
|               |   ∘ T × subsampled(noise of all counted silos)           |   in all steps but the last     |
| `convex-pass` | T × one draw per round, sensitivity P·γC/b               | convex smooth losses          |
| `silo`        | T × noise of all counted silos, unit one silo            | always                        |

Statements and proofs: docs/guarantees.md and docs/mathematics.md. For S > 1 the paper's per-step
    accounting is reported for comparison,
never as a guarantee: the state at which a later gradient is taken carries only the silo's own
    noise. After the last step of a round no
gradient is taken at the state any more, so that step may count with everybody's noise
(docs/mathematics.md, theorem 7).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from sumus.accounting import Queries, Release, even_groups, joining_rate, noisy_queries, unit_shift
from sumus.errors import PlanError
from sumus.noise import Law, noise_law

__all__ = ["ANALYSES", "Analysis", "Setting", "applicable", "calibrated_analysis", "release_of"]


@final
@dataclass(frozen=True, kw_only=True)
class Setting:
    """The public numbers a guarantee rests on, as seen from a record of one silo.

    Args:
        algorithm: the plan's algorithm.
        mechanism: the noise law.
        rounds: T.
        local_steps: S of this silo.
        sampling_rate: q of this silo, per local step.
        noise_multiplier: σ, total, in units of the plan's clip norm (r grid steps).
        contributors: k, silos whose noise is counted.
        resolution: r, grid steps per clip norm.
        l2_grid: Δ₂, the most one record of this silo moves one noisy query (all passes of a convex
            pass), grid steps.
        dimension: d.
        state_noise: κ, split-noise only.
        slots: the fewest steps any silo takes: with unequal steps per-step accounting fuses every
            silo's steps into this many.
        surge_rate: probability per round, revealed, that Δ₂ doubles (a record in an overfull bin of
            a convex pass).
        own_share: this silo's noise variance over an equal share; of removable noise, what it
            always keeps.
        other_shares: the same, summed over the k − 1 other silos that are counted.
    """

    algorithm: str
    mechanism: str
    rounds: int
    local_steps: int
    sampling_rate: float
    noise_multiplier: float
    contributors: int
    resolution: int
    l2_grid: float
    dimension: int
    state_noise: float = 0.0
    slots: int | None = None
    surge_rate: float = 0.0
    own_share: float = 1.0
    other_shares: float | None = None

    def __post_init__(self) -> None:
        if self.contributors < 1:
            rule = "must leave at least one silo whose noise counts"
            raise PlanError(
                "noise_contributors", self.contributors, rule, "Lower dropouts or colluding."
            )

    @property
    def share(self) -> Law:
        """The law that one silo with an equal share draws at every noisy query."""
        return noise_law(self.mechanism, (self.noise_multiplier * self.resolution) ** 2).share(
            self.contributors
        )

    @property
    def own(self) -> Law:
        """The law that this silo draws."""
        return _scaled(self.share, self.mechanism, self.own_share)

    @property
    def total(self) -> Law:
        """The law of the summed noise that is counted for a record of this silo."""
        if self.other_shares is None:
            return self.share.sum_of(self.contributors)
        return _scaled(self.share, self.mechanism, self.own_share + self.other_shares)


def _scaled(law: Law, mechanism: str, factor: float) -> Law:
    if factor == 1.0:
        return law
    if mechanism == "discrete-gaussian":
        rule = (
            "must be skellam where silos have different noise shares (discrete Gaussians of "
            "unequal scale do not add up)"
        )
        raise PlanError("noise.mechanism", mechanism, rule, 'Use "skellam".')
    return noise_law(mechanism, law.variance_grid * factor)


@final
@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One analysis of one plan: its ε, whether it is proved for what runs, and what it says."""

    name: str
    epsilon: float
    delta: float
    proved: bool
    statement: str


def _single_step(s: Setting) -> Release:
    return Release((_noisy(s, s.total, s.rounds),))


def _local(s: Setting) -> Release:
    if s.algorithm in ("convex-pass", "silo"):
        return _one_draw_per_round(s, s.own)
    return Release((_noisy(s, s.own, s.rounds * s.local_steps),))


def _per_step(s: Setting) -> Release:
    sizes = even_groups(s.local_steps, s.slots or s.local_steps)
    return Release(
        tuple(
            noisy_queries(
                s.total,
                l2_grid=fused * s.l2_grid,
                dimension=s.dimension,
                sampling_rate=joining_rate(s.sampling_rate, fused),
                count=s.rounds * sizes.count(fused),
            )
            for fused in sorted(set(sizes))
        )
    )


def _last_step(s: Setting) -> Release:
    return _but_the_last(s, lambda count: _noisy(s, s.own, count))


def _split_noise(s: Setting) -> Release:
    if s.slots not in (None, s.local_steps) or s.own_share != 1.0 or s.other_shares is not None:
        rule = (
            "needs equal steps and equal noise shares in all silos (its steps are composed side by "
            "side)"
        )
        raise PlanError("training.algorithm", "split-noise", rule, "Use dp-sgd.")
    multiplier = split_noise_multiplier(s)
    return _but_the_last(s, lambda count: Queries(multiplier, s.sampling_rate, count))


def _but_the_last(s: Setting, earlier: Callable[[int], Queries]) -> Release:
    """All steps of all rounds but the last of each as `earlier` says, the last ones with the noise
    of all counted silos.

    Guarantee: holds if a silo's state is a function of the round's public start and of what
        `earlier` shows: then the last sums are queries at known states, and no state is used after
        them.
    """
    before_the_last, last = s.rounds * (s.local_steps - 1), _noisy(s, s.total, s.rounds)
    return Release((earlier(before_the_last), last) if before_the_last else (last,))


def _noisy(s: Setting, noise: Law, count: int) -> Queries:
    return noisy_queries(
        noise, l2_grid=s.l2_grid, dimension=s.dimension, sampling_rate=s.sampling_rate, count=count
    )


def _whole_update(s: Setting) -> Release:
    return _one_draw_per_round(s, s.total)


def _one_draw_per_round(s: Setting, noise: Law) -> Release:
    step = noisy_queries(
        noise, l2_grid=s.l2_grid, dimension=s.dimension, count=s.rounds, doubling_rate=s.surge_rate
    )
    return Release((step,))


def split_noise_multiplier(s: Setting) -> float:
    """Noise multiplier of one step of split noise but the last: 1/√cost, where a record's shift g
    is carried by all silos' noises together.

    Shift ξ₁ by a, ζ₁ by g − a, every other ξ_j by b_j and ζ_j by −b_j, with a + Σ b_j = g: then
    every state noise ξ_j + ζ_j of the other silos keeps its value, silo 1's moves by g, and the sum
    moves by g. With u = (k−1)m_ξ²/(k(m_ξ² + m_ζ²)) the share that leaves ξ₁,

        cost = m_ξ²·[((1−u)Δ + √d/2)² + B] + m_ζ²·[(uΔ + √d/2)² + B],   B = (uΔ + √d/2)²/(k−1) + d(k−1)/4

    which tends to (k+κ)/(k(1+κ)) per unit share, i.e. σ_eff² = σ²(1+κ)/(k+κ). Rounding: a is the
    nearest integer vector to (1−u)g; the b_j are equal up to one grid step in every coordinate and
    sum to g − a, so their squares exceed those of equal real parts by at most (k−1)/4 per
    coordinate, without a cross term.

    Guarantee: upper bound on the privacy loss of seeing every silo's state noise and the sum, every
        step; valid for any model.
    """
    if s.state_noise == 0.0 or s.contributors == 1:
        return 1.0 / (_shift(s.own) * s.l2_grid)
    m_sent = _shift(s.share)
    m_state = _shift(noise_law(s.mechanism, s.share.variance_grid * s.state_noise))
    k, delta2, slack = (
        s.contributors,
        s.l2_grid,
        math.sqrt(s.dimension) / 2.0 if s.mechanism != "gaussian" else 0.0,
    )
    moved = (k - 1) * m_sent**2 / (k * (m_sent**2 + m_state**2))
    others = (moved * delta2 + slack) ** 2 / (k - 1) + slack**2 * (k - 1)
    cost = m_sent**2 * (((1.0 - moved) * delta2 + slack) ** 2 + others) + m_state**2 * (
        (moved * delta2 + slack) ** 2 + others
    )
    return 1.0 / min(math.sqrt(cost), m_sent * delta2)


def _shift(noise: Law) -> float:
    return unit_shift(noise) if noise.discrete else 1.0 / noise.std_grid


ANALYSES: dict[str, tuple[Callable[[Setting], Release], str]] = {
    "single-step": (
        _single_step,
        "one noisy sum per round; the noise of all counted silos protects every record",
    ),
    "last-step": (
        _last_step,
        "the last step of a round with the noise of all counted silos, the steps before it with "
        "the silo's own",
    ),
    "local": (_local, "the silo's own noise alone protects its records, whatever the others do"),
    "per-step": (
        _per_step,
        "the paper's theorem 4.5: every local step counted with the noise of all silos",
    ),
    "split-noise": (
        _split_noise,
        "local states carry extra noise that is never sent; the last step counts with the noise of "
        "all silos",
    ),
    "convex-pass": (
        _whole_update,
        "noiseless non-expansive local pass, one draw of noise per round",
    ),
    "silo": (
        _whole_update,
        "the whole update of a silo is clipped; the noise of all counted silos protects it",
    ),
}


def applicable(setting: Setting) -> dict[str, bool]:
    """The analyses that say something about this setting, with whether each is proved for it."""
    algorithm, one_step = setting.algorithm, setting.local_steps == 1
    if algorithm in ("convex-pass", "silo"):
        return {algorithm: True, "local": True}
    if algorithm == "split-noise":
        return {"split-noise": True, "local": True, "per-step": one_step}
    if algorithm in ("dp-sgd", "single-step"):
        # with nobody else's noise it is `local`
        shared = {"last-step": True} if setting.contributors > 1 else {}
        first = {"single-step": True} if one_step else shared
        return first | {"local": True, "per-step": one_step}
    raise PlanError(
        "training.algorithm",
        algorithm,
        "has no privacy analysis",
        'Use "convex-pass", "split-noise" or "dp-sgd".',
    )


def calibrated_analysis(calibrate_to: str, setting: Setting) -> str:
    """The analysis that a plan's target is compared with: `privacy.calibrate_to` where it applies,
    else the first that is proved.
    """
    analyses = applicable(setting)
    return (
        calibrate_to
        if calibrate_to in analyses
        else next(name for name, proved in analyses.items() if proved)
    )


def release_of(name: str, setting: Setting) -> Release:
    """What the named analysis composes for this setting."""
    return ANALYSES[name][0](setting)
