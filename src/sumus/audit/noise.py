"""`sumus audit noise`: the samplers of a plan against their declared law, on this machine, before
anything depends on them.

Every check has a p-value under the declared law and fails below `FALSE_ALARM`, so a correct machine
fails with probability at most (number of checks) × `FALSE_ALARM`, which the result states. What
each check looks for:

| check        | fails when                                                                        |
|--------------|-----------------------------------------------------------------------------------|
| mean         | draws are not centred                                                             |
| variance     | more or less noise than declared                                                  |
| cells        | the shape differs: χ² over 64 cells of about equal probability                    |
| tail         | too many or too few draws beyond 3, 4 and 5 standard deviations                   |
| neighbours   | successive draws of one source are correlated                                     |
| silos        | draws of different silos are correlated                                           |
| rounds       | draws of one silo in successive rounds are correlated                             |
| sum          | the sum over the counted silos does not have the variance that is accounted       |
| fresh        | two sources, or two runs, start alike                                             |
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.stats import binom, chi2, norm

from sumus.guarantee import NoiseDesign, count_noise
from sumus.noise import Law, noise_law
from sumus.plan import noise_ratios
from sumus.randomness import RandomSource

__all__ = [
    "FALSE_ALARM",
    "NoiseAudit",
    "SamplerCheck",
    "audit_noise",
    "check_law",
    "laws_of",
    "usual_laws",
]

FALSE_ALARM = 1e-9
"""Probability, per check, that a correct sampler fails it."""

_CELLS = 64
_BLOCKS = 1 << 15  # blocks whose masses are added up to a cumulative distribution
_REACH = 9.0  # standard deviations
_SILOS, _ROUNDS = 8, 4

Values = npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class SamplerCheck:
    """One test of one law."""

    law: str
    check: str
    detail: str
    p_value: float

    @property
    def passed(self) -> bool:
        """Whether the law survives."""
        return self.p_value >= FALSE_ALARM


@final
@dataclass(frozen=True)
class NoiseAudit:
    """All checks of one machine."""

    checks: tuple[SamplerCheck, ...]
    draws: int
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return all(check.passed for check in self.checks)

    @property
    def false_alarm_rate(self) -> float:
        """Bound on the probability that a correct machine fails."""
        return len(self.checks) * FALSE_ALARM

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        rows = [asdict(check) | {"passed": check.passed} for check in self.checks]
        return {
            "passed": self.passed,
            "false_alarm_rate": self.false_alarm_rate,
            "draws": self.draws,
            "seconds": self.seconds,
            "checks": rows,
        }


def usual_laws() -> dict[str, Law]:
    """Laws that cover the sampler's regimes, for a self-test without a plan."""
    return {
        "skellam, small": noise_law("skellam", 3.0),
        "skellam, usual": noise_law("skellam", float(1 << 34)),
        "discrete-gaussian, small": noise_law("discrete-gaussian", 3.0),
        "discrete-gaussian, usual": noise_law("discrete-gaussian", float(1 << 34)),
    }


def laws_of(design: NoiseDesign) -> dict[str, Law]:
    """Every law that a silo of this plan draws from, by what it is for; of rounds with noise of
    their own those with the least and the most of it.
    """
    ratios = noise_ratios(design.plan)
    if ratios:
        quietest, loudest = (ratios.index(wanted) for wanted in (min(ratios), max(ratios)))
        return {
            f"{name} of round {number + 1}": law
            for number in dict.fromkeys((quietest, loudest))
            for name, law in laws_of(design.in_round(number)).items()
        }
    laws: dict[str, Law] = {}
    for silo in design.silos:
        law = design.drawn_by(silo)
        if law not in laws.values():
            laws["noise share" if silo.variance_ratio == 1.0 else f"noise share of {silo.name}"] = (
                law
            )
    if design.state_noise is not None:
        laws["state noise"] = design.state_noise
    if design.plan.noise.removable:
        laws |= {
            f"noise component {number}": law
            for number, law in enumerate(design.removable_components)
        }
    if design.plan.evaluation.metrics == "secure":
        laws["metrics"] = count_noise(design.plan)
    return laws


def audit_noise(
    laws: dict[str, Law],
    *,
    accounted: tuple[Law, int, float] | None = None,
    draws: int = 1_000_000,
    new_source: Callable[[], RandomSource] = RandomSource,
) -> NoiseAudit:
    """Check every law.

    Args:
        accounted: (share, number of counted silos, variance in grid steps² that is accounted for
            their sum).
        draws: per law.
        new_source: one call gives the random bits of one silo.
    """
    began = time.perf_counter()
    checks = [
        check for name, law in laws.items() for check in check_law(name, law, draws, new_source)
    ]
    if accounted is not None:
        checks.append(_check_sum(*accounted, draws // 4, new_source))
    checks += _check_fresh(new_source)
    return NoiseAudit(tuple(checks), draws * len(laws), time.perf_counter() - began)


def check_law(
    name: str, law: Law, draws: int, new_source: Callable[[], RandomSource]
) -> list[SamplerCheck]:
    """Moments, shape, tails and independence of one law."""
    values = law.sample(draws, new_source()).astype(np.float64)
    std = math.sqrt(law.variance_grid)
    distribution = _Distribution.of(law)
    mean_z = float(values.mean()) / (std / math.sqrt(draws))
    squares = np.square(values - 0.0)
    spread = math.sqrt((distribution.fourth - law.variance_grid**2) / draws)
    variance_z = (float(squares.mean()) - law.variance_grid) / spread
    ratio = float(squares.mean()) / law.variance_grid
    checks = [
        SamplerCheck(name, "mean", f"{mean_z:+.2f} standard errors", _two_sided(mean_z)),
        SamplerCheck(name, "variance", f"{ratio:.5f} of the declared", _two_sided(variance_z)),
        _check_cells(name, values, distribution),
        *_check_tails(name, values, distribution, std),
    ]
    lag = float(np.dot(values[:-1], values[1:])) / (law.variance_grid * math.sqrt(draws - 1))
    checks.append(
        SamplerCheck(
            name, "neighbours", f"correlation {lag / math.sqrt(draws):+.1e}", _two_sided(lag)
        )
    )
    return checks + _check_independence(name, law, draws // 32, new_source)


@final
@dataclass(frozen=True)
class _Distribution:
    """Cumulative masses of a law on a grid of block edges: P[X < edge]."""

    edges: Values
    below: Values
    fourth: float

    @classmethod
    def of(cls, law: Law) -> _Distribution:
        """Blocks of one point where the law is narrow; else the mass of a block is its width times
        the middle (off by 1e-7 of it).
        """
        std = math.sqrt(law.variance_grid)
        reach = math.ceil(_REACH * std) + 40
        width = max(1, -(-2 * reach // _BLOCKS))
        width += 1 - width % 2  # odd: the middle of a block is an integer
        starts = np.arange(-reach, reach + 1, width, dtype=np.int64)
        middles = starts + (width - 1) // 2
        if law.discrete:
            masses = width * np.exp(law.log_pmf(middles))
        else:
            ends = np.append(starts, starts[-1] + width) - 0.5
            masses = np.diff(norm.cdf(ends, scale=law.std_grid))
        fourth = float(np.sum(masses * middles.astype(np.float64) ** 4))
        edges = np.append(starts, starts[-1] + width) - 0.5
        return cls(edges, np.concatenate([[0.0], np.cumsum(masses)]), fourth)

    def mass_between(self, low: int, high: int) -> float:
        """Mass between two positions in `edges`."""
        return float(self.below[high] - self.below[low])


def _check_cells(name: str, values: Values, distribution: _Distribution) -> SamplerCheck:
    wanted = np.linspace(0.0, 1.0, _CELLS + 1)[1:-1]
    positions = np.unique(np.searchsorted(distribution.below, wanted))
    cuts = distribution.edges[positions]
    ends = np.concatenate([[0.0], distribution.below[positions], [1.0]])
    expected = np.diff(ends) * len(values)
    observed = np.bincount(np.searchsorted(cuts, values), minlength=len(expected))
    kept = expected > 5.0
    statistic = float((np.square(observed[kept] - expected[kept]) / expected[kept]).sum())
    freedom = int(kept.sum()) - 1
    return SamplerCheck(
        name,
        "cells",
        f"χ² {statistic:.1f} for {freedom} degrees of freedom",
        float(chi2.sf(statistic, freedom)),
    )


def _check_tails(
    name: str, values: Values, distribution: _Distribution, std: float
) -> list[SamplerCheck]:
    checks = []
    for reach in (3.0, 4.0, 5.0):
        low, high = np.searchsorted(distribution.edges, [-reach * std, reach * std])
        mass = 1.0 - distribution.mass_between(int(low), int(high))
        outside = int(
            np.count_nonzero(
                (values < distribution.edges[low]) | (values > distribution.edges[high])
            )
        )
        if mass * len(values) < 1e-3:
            continue
        p_value = 2.0 * min(
            binom.sf(outside - 1, len(values), mass), binom.cdf(outside, len(values), mass)
        )
        detail = (
            f"{outside} draws beyond {reach:g} standard deviations, {mass * len(values):.1f} "
            "expected"
        )
        checks.append(SamplerCheck(name, "tail", detail, min(1.0, float(p_value))))
    return checks


def _check_independence(
    name: str, law: Law, length: int, new_source: Callable[[], RandomSource]
) -> list[SamplerCheck]:
    """Correlations between silos, each with its own source, and between the rounds of one silo."""
    sources = [new_source() for _ in range(_SILOS)]
    drawn = np.stack(
        [[law.sample(length, source) for _ in range(_ROUNDS)] for source in sources]
    ).astype(np.float64)
    drawn /= math.sqrt(law.variance_grid * length)
    silos = np.einsum("itx,jtx->ij", drawn, drawn)[np.triu_indices(_SILOS, 1)] / math.sqrt(_ROUNDS)
    rounds = np.einsum("itx,iux->tu", drawn, drawn)[np.triu_indices(_ROUNDS, 1)] / math.sqrt(_SILOS)
    return [
        SamplerCheck(
            name,
            check,
            f"largest correlation {np.abs(found).max():.1e}",
            _largest(found * math.sqrt(length)),
        )
        for check, found in (("silos", silos), ("rounds", rounds))
    ]


def _check_sum(
    share: Law, silos: int, variance_grid: float, draws: int, new_source: Callable[[], RandomSource]
) -> SamplerCheck:
    draws = max(10_000, draws // silos)
    total = np.zeros(draws)
    for _ in range(silos):
        total += share.sample(draws, new_source())
    fourth = _Distribution.of(share).fourth
    # fourth moment of a sum of k independent centred draws: k·m₄ + 3k(k − 1)·v²
    summed_fourth = silos * fourth + 3.0 * silos * (silos - 1) * share.variance_grid**2
    spread = math.sqrt((summed_fourth - (silos * share.variance_grid) ** 2) / draws)
    measured = float(np.square(total).mean())
    z = (measured - variance_grid) / spread
    return SamplerCheck(
        f"sum of {silos} silos",
        "sum",
        f"{measured / variance_grid:.4f} of the accounted variance",
        _two_sided(z),
    )


def _check_fresh(new_source: Callable[[], RandomSource]) -> list[SamplerCheck]:
    heads = [new_source().bytes(32) for _ in range(64)]
    alike = len(heads) - len(set(heads))
    secure = all(new_source().secure for _ in range(4))
    return [
        SamplerCheck(
            "random bits",
            "fresh",
            f"{alike} of {len(heads)} sources start alike",
            0.0 if alike else 1.0,
        ),
        SamplerCheck(
            "random bits",
            "secret",
            "keys come from the operating system" if secure else "a public seed",
            1.0 if secure else 0.0,
        ),
    ]


def _two_sided(z: float) -> float:
    return float(2.0 * norm.sf(abs(z)))


def _largest(z: Values) -> float:
    """p-value of the largest of several standard normal values, by the union bound."""
    return min(1.0, float(2.0 * norm.sf(np.abs(z).max()) * z.size))
