"""Everything random that a silo of a plan does, against its declared law: noise, and also who joins
a step and how coins are tossed.

| check | fails when                                                                                                         |
|-------|--------------------------------------------------------------------------------------------------------------------|
| rate  | records join a step more or less often than the sampling rate that amplification counts on                         |
| runs  | whether a record joins depends on the record before it                                                             |
| bins  | records of a convex pass prefer some bins: χ² over all bins                                                        |
| coins | the tosses of the Poisson-binomial mechanism are not Binomial(trials, ½ + θx/c), at x = 0 and at both ends: χ²      |
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.stats import binom, chi2, norm

from sumus.audit.noise import NoiseAudit, SamplerCheck, audit_noise, laws_of
from sumus.errors import GuaranteeError
from sumus.guarantee import NoiseDesign
from sumus.noise import Law, PoissonBinomial
from sumus.randomness import RandomSource
from sumus.training import poisson_batch

__all__ = ["audit_samplers", "described"]

NewSource = Callable[[], RandomSource]

# expected draws per cell; with fewer, the χ² tail is not accurate
_LEAST_EXPECTED = 50.0


def audit_samplers(
    design: NoiseDesign, *, draws: int = 1_000_000, new_source: NewSource = RandomSource
) -> NoiseAudit:
    """Check every sampler of a calibrated design.

    Args:
        draws: per law.
        new_source: one call gives the random bits of one silo.
    """
    plan = design.plan
    if not plan.rules.private:
        raise GuaranteeError(
            f"{plan.training.algorithm} draws no noise; there is nothing to check. Choose an "
            "algorithm with a guarantee."
        )
    began = time.perf_counter()
    if design.coins is not None:
        audit = audit_noise({}, draws=draws, new_source=new_source)
        checks = _check_tosses(design.coins, draws, new_source())
    else:
        first = design.in_round(0)
        variance = (first.noise_multiplier * first.grid.resolution) ** 2
        accounted = (first.share, plan.noise_contributors, variance)
        audit = audit_noise(
            laws_of(design), accounted=accounted, draws=draws, new_source=new_source
        )
        checks = []
    if plan.rules.steps == "bins":
        checks.append(
            _check_bins(max(silo.local_steps for silo in design.silos), draws, new_source())
        )
    else:
        for rate in sorted(
            {silo.sampling_rate for silo in design.silos if silo.sampling_rate < 1.0}
        ):
            checks += _check_batches(rate, draws, new_source())
    return NoiseAudit(
        (*audit.checks, *checks),
        audit.draws + draws * len({check.law for check in checks}),
        time.perf_counter() - began,
    )


def described(design: NoiseDesign) -> list[str]:
    """The laws of a plan in words, by what they are for."""
    if design.coins is not None:
        return [
            f"coins: {design.coins.trials} per coordinate, leaning by at most "
            f"{design.coins.theta:.4g}"
        ]
    return [
        f"{name}: {_in_words(law, design.grid.resolution)}" for name, law in laws_of(design).items()
    ]


def _in_words(law: Law, resolution: int) -> str:
    std = math.sqrt(law.variance_grid)
    return (
        f"{type(law).__name__}, standard deviation {std:.6g} grid steps ({std / resolution:.4g} of "
        "one record's reach)"
    )


def _check_batches(rate: float, draws: int, source: RandomSource) -> list[SamplerCheck]:
    """The Poisson sample of a step with `draws` records."""
    joined = np.zeros(draws, dtype=np.bool_)
    joined[poisson_batch(draws, rate, source)] = True
    count = int(joined.sum())
    p_value = min(
        1.0,
        2.0 * min(float(binom.sf(count - 1, draws, rate)), float(binom.cdf(count, draws, rate))),
    )
    centred = joined - rate
    lag = float(np.dot(centred[:-1], centred[1:])) / (rate * (1.0 - rate) * math.sqrt(draws - 1))
    name = f"sampling rate {rate:.4g}"
    return [
        SamplerCheck(name, "rate", f"{count / draws / rate:.5f} of the declared", p_value),
        SamplerCheck(
            name,
            "runs",
            f"correlation {lag / math.sqrt(draws):+.1e}",
            float(2.0 * norm.sf(abs(lag))),
        ),
    ]


def _check_bins(bins: int, draws: int, source: RandomSource) -> SamplerCheck:
    """The bins of a pass, drawn as `convex_pass` draws them."""
    counted = np.bincount(source.below(bins, draws), minlength=bins)
    return _chi_square(f"{bins} bins", "bins", counted, np.full(bins, draws / bins))


def _check_tosses(coins: PoissonBinomial, draws: int, source: RandomSource) -> list[SamplerCheck]:
    checks = []
    for place, value in (
        ("zero", 0.0),
        ("largest", coins.coordinate_clip),
        ("smallest", -coins.coordinate_clip),
    ):
        tossed = coins.encode(np.full(draws // 4, value), source)
        lean = coins.theta * value / coins.coordinate_clip
        expected = binom.pmf(np.arange(coins.trials + 1), coins.trials, 0.5 + lean) * len(tossed)
        checks.append(
            _chi_square(
                f"coins, {place} value",
                "coins",
                np.bincount(tossed, minlength=coins.trials + 1),
                expected,
            )
        )
    return checks


def _chi_square(
    law: str, check: str, counted: npt.NDArray[np.int64], expected: npt.NDArray[np.float64]
) -> SamplerCheck:
    """Cells that expect too little are taken together."""
    rare = expected < _LEAST_EXPECTED
    cells = np.append(counted[~rare], counted[rare].sum()).astype(np.float64)
    wanted = np.append(expected[~rare], expected[rare].sum())
    cells, wanted = (cells, wanted) if wanted[-1] >= _LEAST_EXPECTED else (cells[:-1], wanted[:-1])
    statistic, freedom = float((np.square(cells - wanted) / wanted).sum()), max(len(cells) - 1, 1)
    return SamplerCheck(
        law,
        check,
        f"χ² {statistic:.1f} for {freedom} degrees of freedom",
        float(chi2.sf(statistic, freedom)),
    )
