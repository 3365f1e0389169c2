"""Description of a release, independent of the accountant (compare `DpEvent` of dp_accounting).

Rules for every description in this file:

1. It completely states its mechanism: whoever reads it needs no plan, no record and no accountant
   to know the most that one record can change, and whatever it leaves out is None, never a value
   that nobody should read.
2. It is never removed, and it never changes its meaning: ledgers and journals are composed from
   descriptions years later. What means something else gets another name.
3. It says nothing of how ε is computed. An accountant that cannot account for it says so
   (`Accountant.supports`) and refuses; none leaves a part of it out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

from sumus.accounting.dominating import gaussian_multiplier
from sumus.accounting.fused_steps import joining_rate
from sumus.accounting.renyi import doubling_curve, gaussian_curve, minimum
from sumus.errors import GuaranteeError, PlanError
from sumus.noise import Law, RenyiCurve

__all__ = ["Queries", "Release", "noisy_queries"]

# keeps every exponent of the accountants far from overflow; protects nobody anyway
_SMALLEST_MULTIPLIER = 1e-9


@final
@dataclass(frozen=True)
class Queries:
    """`count` adaptive repetitions of one Poisson-subsampled query.

    Args:
        gaussian_multiplier: standard deviation over L2 sensitivity of a Gaussian mechanism that
            dominates the query; None if the Rényi curve is all that is known of it.
        sampling_rate: q, probability that a record joins the query; 1 means always.
        count: repetitions.
        curve: Rényi curve of the query before subsampling; by default that of the dominating
            Gaussian.
        doubling_rate: probability in (0, 1), independent in every repetition and known to the
            adversary, that the sensitivity doubles.
        parts: h, parts that a unit is made of, each with this sensitivity and sampled by a coin of
            its own: j of them join with probability Binomial(h, q)(j) and move the query by at most
            j times as much.
    """

    gaussian_multiplier: float | None
    sampling_rate: float = 1.0
    count: int = 1
    curve: RenyiCurve | None = None
    doubling_rate: float = 0.0
    parts: int = 1

    def __post_init__(self) -> None:
        known = self.gaussian_multiplier is not None or self.curve is not None
        multiplier = 1.0 if self.gaussian_multiplier is None else self.gaussian_multiplier
        if not (known and _SMALLEST_MULTIPLIER <= multiplier < math.inf):  # NaN fails too
            raise PlanError(
                "noise_multiplier",
                self.gaussian_multiplier,
                "must be a finite number of at least 1e-9",
                "Add noise.",
            )
        if not 0.0 < self.sampling_rate <= 1.0:
            raise PlanError(
                "sampling_rate",
                self.sampling_rate,
                "must be a number in (0, 1]",
                "Give a probability.",
            )
        if not (isinstance(self.count, int) and self.count >= 1):
            raise PlanError(
                "steps", self.count, "must be a whole number at least 1", "Count every noisy query."
            )
        if not (isinstance(self.parts, int) and self.parts >= 1):
            raise PlanError(
                "parts", self.parts, "must be a whole number at least 1", "Count every silo."
            )
        if self.parts > 1 and (
            self.sampling_rate == 1.0 or self.gaussian_multiplier is None or self.curve is not None
        ):
            raise PlanError(
                "parts",
                self.parts,
                "must be 1 for a query that is not subsampled, or that is more than its Gaussian",
                "Multiply the sensitivity instead.",
            )
        if not 0.0 <= self.doubling_rate < 1.0:
            raise PlanError(
                "doubling_rate",
                self.doubling_rate,
                "must be a number in [0, 1)",
                "Double the sensitivity instead.",
            )
        if self.doubling_rate > 0.0 and (
            self.sampling_rate < 1.0 or self.gaussian_multiplier is None
        ):
            raise PlanError(
                "doubling_rate",
                self.doubling_rate,
                "must be 0 for a subsampled query and for one without a dominating Gaussian",
                "Double the sensitivity instead.",
            )

    @property
    def renyi(self) -> RenyiCurve:
        """The Rényi curve of one unsubsampled query; of one part, where a unit has several."""
        if self.doubling_rate > 0.0:
            return doubling_curve(self.dominating_multiplier, self.doubling_rate)
        return self.curve if self.curve is not None else gaussian_curve(self.dominating_multiplier)

    @property
    def dominating_multiplier(self) -> float:
        """`gaussian_multiplier`, refused where it is not known."""
        if self.gaussian_multiplier is None:
            raise GuaranteeError(
                "a query without a dominating Gaussian has its Rényi curve alone. Use accountant = "
                '"renyi".'
            )
        return self.gaussian_multiplier

    def to_dp_event(self) -> Any:
        """The queries as a `DpEvent` of dp_accounting, each as the Gaussian that dominates it.

        Guarantee: the event's ε is an upper bound for the queries. What dp_accounting has no event
            for (a revealed doubling, a bare Rényi curve, a unit of several parts) is an
            `UnsupportedDpEvent`, which its accountants refuse.
        """
        from dp_accounting import dp_event

        if self.gaussian_multiplier is None or self.doubling_rate > 0.0 or self.parts > 1:
            return dp_event.UnsupportedDpEvent()
        one: Any = dp_event.GaussianDpEvent(self.gaussian_multiplier)
        if self.sampling_rate < 1.0:
            one = dp_event.PoissonSampledDpEvent(self.sampling_rate, one)
        return dp_event.SelfComposedDpEvent(one, self.count)


@final
@dataclass(frozen=True)
class Release:
    """Queries that are composed adaptively: the adversary sees every answer and may choose each
    query after the last answer.
    """

    queries: tuple[Queries, ...]

    def __iter__(self) -> Iterator[Queries]:
        return iter(self.queries)

    def to_dp_event(self) -> Any:
        """The release as a `DpEvent`, so that its ε can be checked with dp_accounting.

        PLDAccountant().compose(release.to_dp_event()).get_epsilon(delta)
        """
        from dp_accounting import dp_event

        return dp_event.ComposedDpEvent([queries.to_dp_event() for queries in self.queries])


def noisy_queries(
    noise: Law,
    *,
    l2_grid: float,
    dimension: int,
    sampling_rate: float = 1.0,
    count: int = 1,
    doubling_rate: float = 0.0,
    parts: int = 1,
) -> Queries:
    """Queries of L2 sensitivity `l2_grid` (in the units of the noise) whose noise is drawn from
    `noise`; of so much for each of a unit's `parts`.

    Guarantee: their Gaussian and their Rényi curve are both upper bounds on the privacy loss of the
        drawn law, for every integer query of `dimension` coordinates with that sensitivity
        (docs/mathematics.md, "integer noise as a Gaussian"; of several parts theorem 10).
    """
    if parts > 1 and sampling_rate < 1.0:
        multiplier = (
            gaussian_multiplier(noise, l2_grid) if noise.discrete else noise.std_grid / l2_grid
        )
        return Queries(multiplier, sampling_rate, count, None, doubling_rate, parts)
    if parts > 1:
        l2_grid, doubling_rate = parts * l2_grid, joining_rate(doubling_rate, parts)
        if doubling_rate > 0.5:  # rare is that none of them doubles: count it always
            l2_grid, doubling_rate = 2.0 * l2_grid, 0.0
    if not noise.discrete:
        return Queries(noise.std_grid / l2_grid, sampling_rate, count, None, doubling_rate)
    multiplier = gaussian_multiplier(noise, l2_grid)
    published = noise.renyi(l2_grid, dimension)
    curve = None if published is None else minimum(gaussian_curve(multiplier), published)
    return Queries(multiplier, sampling_rate, count, curve, doubling_rate)
