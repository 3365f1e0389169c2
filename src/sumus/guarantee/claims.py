"""What can be claimed about a release: the numbers it rests on, and what is composed.

A `Statement` is one analysis: a name, what it composes for a `Setting`, and its words. Every
algorithm of `guarantee/algorithms/` has its own; here are the compositions that they share. Proofs
are in docs/guarantees.md and docs/mathematics.md; the paper is Heikkilä 2025.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, final

from sumus.accounting import Queries, Release, even_groups, joining_rate, noisy_queries
from sumus.errors import GuaranteeError, PlanError
from sumus.noise import Law, noise_law

__all__ = [
    "LOCAL_STEPS_ALONE",
    "ONE_DRAW_ALONE",
    "PER_STEP",
    "Analysis",
    "Claim",
    "Setting",
    "Statement",
    "but_the_last",
    "each_alone",
    "equal_share",
    "noisy",
    "one_draw_per_round",
]


def equal_share(
    mechanism: str, noise_multiplier: float, *, resolution: int, contributors: int
) -> Law:
    """The law that a silo with an equal share draws at every noisy query: the one that is accounted
    and the one that is drawn.

    Args:
        noise_multiplier: σ, total, in clip norms.
        resolution: r, grid steps per clip norm.
        contributors: k, silos whose noise is counted.
    """
    return noise_law(mechanism, (noise_multiplier * resolution) ** 2).share(contributors)


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
        overfull_rate: probability per round, revealed, that Δ₂ doubles (a record in an overfull bin of
            a convex pass).
        own_share: this silo's noise variance over an equal share; of removable noise, what it
            always keeps.
        other_shares: the same, summed over the k − 1 other silos that are counted.
        silos_per_unit: h, silos that hold rows of one person: each moves by at most Δ₂, and draws
            its own coins.
        noise_ratios: ρ_t, round t's noise over σ, one for each of T rounds; empty: all are 1.
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
    overfull_rate: float = 0.0
    own_share: float = 1.0
    other_shares: float | None = None
    silos_per_unit: int = 1
    noise_ratios: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.contributors < 1:
            rule = "must leave at least one silo whose noise counts"
            raise PlanError(
                "noise_contributors", self.contributors, rule, "Lower dropouts or colluding."
            )
        if self.noise_ratios and len(self.noise_ratios) != self.rounds:
            rule = f"must hold one ratio for each of {self.rounds} rounds"
            raise PlanError("noise_ratios", len(self.noise_ratios), rule, "Name every round.")

    def of_equal_rounds(self) -> tuple[Setting, ...]:
        """Settings in each of which all rounds have the same noise; composed, they are this one."""
        if not self.noise_ratios:
            return (self,)
        return tuple(
            replace(
                self, rounds=count, noise_multiplier=self.noise_multiplier * ratio, noise_ratios=()
            )
            for ratio, count in sorted(Counter(self.noise_ratios).items())
        )

    @property
    def share(self) -> Law:
        """The law that one silo with an equal share draws at every noisy query."""
        if self.noise_ratios:  # a law that no round draws
            raise GuaranteeError("rounds with noise of their own are composed one by one.")
        return equal_share(
            self.mechanism,
            self.noise_multiplier,
            resolution=self.resolution,
            contributors=self.contributors,
        )

    @property
    def own(self) -> Law:
        """The law that this silo draws."""
        return _scaled(self.share, self.own_share)

    @property
    def total(self) -> Law:
        """The law of the summed noise that is counted for a record of this silo."""
        if self.other_shares is None:
            return self.share.sum_of(self.contributors)
        return _scaled(self.share, self.own_share + self.other_shares)


def _scaled(law: Law, factor: float) -> Law:
    if factor == 1.0:
        return law
    if not law.divisible:
        rule = (
            f"must be skellam where silos have different noise shares ({law.name} draws of "
            "unequal scale do not add up)"
        )
        raise PlanError("noise.mechanism", law.name, rule, 'Use "skellam".')
    return noise_law(law.name, law.variance_grid * factor)


@final
@dataclass(frozen=True, kw_only=True)
class Statement:
    """One analysis of one algorithm, before any numbers.

    Args:
        name: as accounts, policies and plots call it.
        compose: what it composes for a setting whose rounds are all alike; `release` is for any.
        text: what it says.
        brief: what it says in a comparison with the headline.
        counts: whose noise it composes: that of all counted silos, the silo's own, or both.
        remark: what it needs, where algorithms are compared; omitted: it is not compared.
        proved_for: in words, where it is proved only for some settings.
        noise_in: the unit of the noise multiplier, in words.
    """

    name: str
    compose: Callable[[Setting], Release]
    text: str
    brief: str
    counts: Literal["all", "own", "both"] = "all"
    remark: str | None = None
    proved_for: str | None = None
    noise_in: str = "clip norms"

    def release(self, setting: Setting) -> Release:
        """What is composed for a setting: its rounds are releases one after the other, so those of
        one noise are composed with those of another.
        """
        return Release(
            tuple(queries for each in setting.of_equal_rounds() for queries in self.compose(each))
        )


@final
@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement about one setting.

    Args:
        name: of the statement.
        release: makes what is composed; asked for only where ε is wanted, because it takes time.
        proved: whether the statement is proved for the setting.
        statement: in words.
    """

    name: str
    release: Callable[[], Release]
    proved: bool
    statement: str


@final
@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One analysis of one plan: its ε, whether it is proved for what runs, and what it says."""

    name: str
    epsilon: float
    delta: float
    proved: bool
    statement: str


# -- what is composed


def noisy(s: Setting, noise: Law, count: int) -> Queries:
    """`count` subsampled sums of clipped gradients over all silos."""
    return noisy_queries(
        noise,
        l2_grid=s.l2_grid,
        dimension=s.dimension,
        sampling_rate=s.sampling_rate,
        count=count,
        parts=s.silos_per_unit,
    )


def each_alone(s: Setting, noise: Law, count: int) -> Queries:
    """`count` subsampled sums of every silo that holds rows of the unit, each seen by itself."""
    return noisy(replace(s, silos_per_unit=1), noise, count * s.silos_per_unit)


def one_draw_per_round(s: Setting, noise: Law) -> Release:
    """A whole update a round, noised once."""
    queries = noisy_queries(
        noise,
        l2_grid=s.l2_grid,
        dimension=s.dimension,
        count=s.rounds,
        doubling_rate=s.overfull_rate,
        parts=s.silos_per_unit,
    )
    return Release((queries,))


def but_the_last(s: Setting, earlier: Callable[[int], Queries]) -> Release:
    """All steps of all rounds but the last of each as `earlier` says, the last ones with the noise
    of all counted silos.

    Guarantee: holds if a silo's state is a function of the round's public start and of what
        `earlier` shows: then the last sums are queries at known states, and no state is used after
        them.
    """
    before_the_last, last = s.rounds * (s.local_steps - 1), noisy(s, s.total, s.rounds)
    return Release((earlier(before_the_last), last) if before_the_last else (last,))


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
                parts=s.silos_per_unit,
            )
            for fused in sorted(set(sizes))
        )
    )


# -- statements about several algorithms

_ALONE = "the silo's own noise alone protects its records, whatever the others do"

LOCAL_STEPS_ALONE = Statement(
    name="local",
    compose=lambda s: Release((each_alone(s, s.own, s.rounds * s.local_steps),)),
    text=_ALONE,
    brief="local noise alone",
    counts="own",
    remark="any model, counts on no other silo",
)
ONE_DRAW_ALONE = Statement(
    name="local",
    compose=lambda s: one_draw_per_round(s, s.own),
    text=_ALONE,
    brief="local noise alone",
    counts="own",
)
PER_STEP = Statement(
    name="per-step",
    compose=_per_step,
    text="the paper's theorem 4.5: every local step counted with the noise of all silos",
    brief="every step counted with the noise of all silos",
    remark="paper's theorem 4.5",
    proved_for="one local step",
)
