"""Fair coins, centred: the binomial mechanism of Dwork et al. 2006 and Agarwal et al. 2018.

2n fair coins minus n have variance n/2. A Skellam part makes up for what whole coins miss, so that
every variance can be asked for.

    log P[C = k] = −n·(2t·atanh(t) + log(1 − t²)) + ½ log(n / π(n² − k²)) + s(2n) − s(n + k) − s(n − k)

with t = k/n and s Stirling's remainder: every term is small or has one sign, so nothing cancels.

References: Dwork, Kenthapadi, McSherry, Mironov, Naor 2006 (Our data, ourselves); Agarwal, Suresh,
    Yu, Kumar, McMahan 2018 (arXiv:1805.10559).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, logsumexp

from sumus.noise.laws import Law, check_count, check_variance
from sumus.noise.skellam import Skellam, skellam_log_pmf

__all__ = ["CentredBinomial"]

_SMALLEST_REST = 0.25  # the least variance whose Skellam probabilities are proved accurate
# n from which ±14 standard deviations lie within the coins' own range
_MANY_PAIRS = 256
_POINTS_AT_ONCE = 1 << 12


@final
@dataclass(frozen=True)
class CentredBinomial(Law):
    """2n fair coins minus n, plus a Skellam variable of variance v − n/2.

    Log-concave, because both parts are. Not divisible: `share(k).sum_of(k)` has the same variance as
    one draw of the total and fewer coins. Account for the sum.

    Args:
        pairs: n, half the number of coins.
        rest_grid: variance of the Skellam part, grid steps squared, at least 0.25.
        variance_grid: n/2 plus that, computed.
    """

    name: ClassVar[str] = "centred-binomial"
    discrete: ClassVar[bool] = True
    divisible: ClassVar[bool] = False

    pairs: int
    rest_grid: float
    variance_grid: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        check_variance("rest_grid", self.rest_grid)
        object.__setattr__(self, "variance_grid", self.pairs / 2.0 + self.rest_grid)
        check_variance("variance_grid", self.variance_grid)

    @classmethod
    def of_variance(cls, variance_grid: float) -> CentredBinomial:
        check_variance("variance_grid", variance_grid)
        pairs = math.floor(2.0 * (variance_grid - _SMALLEST_REST))
        return cls(pairs, variance_grid - pairs / 2.0)

    def share(self, contributors: int) -> CentredBinomial:
        return self.of_variance(self.variance_grid / check_count("contributors", contributors))

    def sum_of(self, count: int) -> CentredBinomial:
        check_count("count", count)
        return CentredBinomial(self.pairs * count, self.rest_grid * count)

    def log_pmf(self, points: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        magnitudes = np.abs(np.asarray(points))
        if self.pairs == 0:
            return skellam_log_pmf(magnitudes, self.rest_grid)
        flat = magnitudes.ravel()
        parts = [
            self._convolved(flat[start : start + _POINTS_AT_ONCE])
            for start in range(0, flat.size, _POINTS_AT_ONCE)
        ]
        return np.concatenate(parts or [np.empty(0)]).reshape(magnitudes.shape)

    def _convolved(self, magnitudes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Σ over the part with fewer values: all coins, or the Skellam part within 14 standard
        deviations.
        """
        few = self.pairs < _MANY_PAIRS
        reach = self.pairs if few else math.ceil(14.0 * math.sqrt(self.rest_grid)) + 40
        steps = np.arange(-reach, reach + 1)
        coins, rest = magnitudes[:, None] - steps, np.broadcast_to(steps, (1, steps.size))
        if few:
            coins, rest = rest, coins
        terms = _coins_log_pmf(coins, self.pairs) + skellam_log_pmf(rest, self.rest_grid)
        return np.asarray(logsumexp(terms, axis=1))

    def log_mgf_bound(self, rate: float) -> float:
        """2n·log cosh(rate/2) + (v − n/2)(cosh(rate) − 1), exact."""
        half = abs(rate) / 2.0
        log_cosh = half + math.log1p(math.exp(-2.0 * half)) - math.log(2.0)
        return 2.0 * self.pairs * log_cosh + Skellam(self.rest_grid).log_mgf_bound(rate)

    def log_tail_bound(self, threshold_grid: float, draws: int = 1) -> float:
        """Skellam's bound at the same variance: 4·log cosh(rate/2) ≤ rate²/2 ≤ cosh(rate) − 1."""
        return Skellam(self.variance_grid).log_tail_bound(threshold_grid, draws)


def _coins_log_pmf(points: npt.NDArray[np.int64], pairs: int) -> npt.NDArray[np.float64]:
    """log P[2n coins show n + k heads], −∞ beyond n."""
    magnitudes = np.abs(points).astype(np.float64)
    inside = magnitudes < pairs
    log_pmf = np.where(magnitudes == pairs, -2.0 * pairs * math.log(2.0), -np.inf)
    k, n = magnitudes[inside], float(pairs)
    t = k / n
    log_pmf[inside] = (
        -n * (2.0 * t * np.arctanh(t) + np.log1p(-np.square(t)))
        + 0.5 * np.log(n / (np.pi * (n - k) * (n + k)))
        + (_stirling_remainder(np.array(2.0 * n)) - _stirling_remainder(n + k))
        - _stirling_remainder(n - k)
    )
    return np.asarray(log_pmf)


def _stirling_remainder(n: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """log n! − (n + ½) log n + n − ½ log 2π: four terms from n = 64 on, below it directly."""
    inverse2 = np.square(1.0 / n)
    series = (1 / 12 - inverse2 * (1 / 360 - inverse2 * (1 / 1260 - inverse2 / 1680))) / n
    direct = gammaln(n + 1.0) - (n + 0.5) * np.log(n) + n - 0.5 * math.log(2.0 * math.pi)
    return np.where(n >= 64.0, series, direct)
