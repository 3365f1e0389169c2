"""Drawn numbers against the declared law.

False alarms: every statistic below is compared with a threshold that a correct sampler exceeds with
    probability at most 1e-7 for a
fresh seed; the seeds are fixed, so a correct sampler never fails. Half a million to four million
draws each make a variance that is wrong by 1 %, a missing or doubled edge of a block, or a wrong
sign exceed the threshold with near certainty (`test_mutated_samplers_are_caught` shows it).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy import special, stats

from sumus.noise import DiscreteGaussian, Law, Skellam
from sumus.randomness import RandomSource

FALSE_ALARM = 1e-7
DRAWS = 1 << 21
VARIANCES = [
    0.25,
    0.7,
    3.0,
    40.0,
    1_000.0,
    22_000.0,
    23_000.0,
    1e5,
    1e6,
    1e8,
    1e10,
    1e12,
    1e13,
    2.0**46,
]
LAWS: list[Law] = [
    *[Skellam(v) for v in VARIANCES],
    *[DiscreteGaussian(v) for v in (0.25, 3.0, 23_000.0, 1e8, 2.0**46)],
    DiscreteGaussian(0.4, 10),
    DiscreteGaussian(5e5, 10),
]
Draws = npt.NDArray[np.int64]


def declared_cdf(law: Law, edges: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """P[X < edge], from scipy's Bessel functions or plain sums where short, else from the normal
    law with its first correction.
    """
    if law.variance_grid <= 1e4:
        reach = int(14 * math.sqrt(law.variance_grid)) + 60
        points = np.arange(-reach, reach + 1)
        if isinstance(law, Skellam):
            probabilities = special.ive(np.abs(points), law.variance_grid)
        else:
            assert isinstance(law, DiscreteGaussian)
            single = np.exp(-np.square(points) / (2.0 * law.scale2_grid))
            probabilities = single / single.sum()
            for _ in range(law.count - 1):
                probabilities = np.convolve(probabilities, single / single.sum())[
                    reach : 3 * reach + 1
                ]
        return np.concatenate([[0.0], np.cumsum(probabilities)])[
            np.clip(edges + reach, 0, points.size)
        ]
    z = (edges - 0.5) / math.sqrt(law.variance_grid)
    excess_kurtosis = 1.0 / law.variance_grid if isinstance(law, Skellam) else 0.0
    # Edgeworth with the lattice correction −z/(24v): the error is of order v^-2 < 1e-8
    correction = excess_kurtosis / 24.0 * (z**3 - 3.0 * z) - z / (24.0 * law.variance_grid)
    return stats.norm.cdf(z) - correction * stats.norm.pdf(z)


def chi_square_p_value(
    observed: npt.NDArray[np.float64], probabilities: npt.NDArray[np.float64]
) -> float:
    """p-value of Pearson's statistic after merging cells from the right until each expects at least
    30 draws.
    """
    expected = probabilities * observed.sum()
    cells: list[list[float]] = [[0.0, 0.0]]
    for seen, hoped in zip(observed, expected, strict=True):
        if cells[-1][1] >= 30.0:
            cells.append([0.0, 0.0])
        cells[-1][0] += seen
        cells[-1][1] += hoped
    if cells[-1][1] < 30.0 and len(cells) > 1:
        last = cells.pop()
        cells[-1] = [cells[-1][0] + last[0], cells[-1][1] + last[1]]
    seen_all, hoped_all = np.array(cells).T
    return float(stats.chi2.sf((np.square(seen_all - hoped_all) / hoped_all).sum(), len(cells) - 1))


def edges_of(law: Law) -> npt.NDArray[np.int64]:
    """Single points while there are at most some ten thousand, else 1,501 edges that are not
    aligned with any block.
    """
    std = math.sqrt(law.variance_grid)
    reach = int(5.5 * std) + 8
    return (
        np.arange(-reach, reach + 1)
        if reach <= 600
        else np.linspace(-reach, reach, 1501).astype(np.int64)
    )


def mean_is_zero(draws: Draws, law: Law) -> float:
    z = draws.mean() / math.sqrt(law.variance_grid / draws.size)
    return float(2.0 * stats.norm.sf(abs(z)))


def variance_is_declared(draws: Draws, law: Law) -> float:
    squares = np.square(draws.astype(np.float64))
    z = (squares.mean() - law.variance_grid) / math.sqrt(_variance_of_square(law) / draws.size)
    return float(2.0 * stats.norm.sf(abs(z)))


def probabilities_are_declared(draws: Draws, law: Law) -> float:
    edges = edges_of(law)
    cells = np.concatenate([[0.0], declared_cdf(law, edges), [1.0]])
    observed = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=edges.size + 1)
    return chi_square_p_value(observed.astype(np.float64), np.diff(cells))


def tail_mass_is_declared(draws: Draws, law: Law) -> float:
    """Exact binomial tests of the number of draws at or beyond 3, 4 and 4.75 standard deviations,
    both sides apart.
    """
    p_values = []
    for deviations in (3.0, 4.0, 4.75):
        edge = math.ceil(deviations * math.sqrt(law.variance_grid))
        probability = 1.0 - float(declared_cdf(law, np.array([edge]))[0])
        for seen in (int((draws >= edge).sum()), int((draws <= -edge).sum())):
            p_values.append(
                float(stats.binomtest(seen, draws.size, max(probability, 1e-300)).pvalue)
            )
    return min(1.0, 6.0 * min(p_values))


def low_bits_are_uniform(draws: Draws, law: Law) -> float:
    """Where a block is wider than a point, every position inside it is equally likely once both
    signs are pooled.
    """
    std = math.sqrt(law.variance_grid)
    if std < 600:
        return 1.0
    bits = int(math.log2(std / 75.0))  # the width of a block, or half of it
    positions = (draws + 3) & ((1 << bits) - 1)
    cells = np.bincount(positions >> max(0, bits - 8))
    return float(stats.chisquare(cells).pvalue)


def neighbours_are_independent(draws: Draws, law: Law) -> float:
    """Quartile of a draw against quartile of its successor at lags 1 and 2, and the correlation of
    magnitudes.
    """
    p_values = []
    quartile = np.searchsorted(np.quantile(draws, (0.25, 0.5, 0.75)), draws, side="right")
    for lag in (1, 2):
        table = np.bincount(4 * quartile[: -lag or None] + quartile[lag:], minlength=16).reshape(
            4, 4
        )
        table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
        p_values.append(float(stats.chi2_contingency(table).pvalue))
    magnitude = np.abs(draws).astype(np.float64)
    magnitude -= magnitude.mean()
    z = (magnitude[:-1] * magnitude[1:]).mean() / magnitude.var() * math.sqrt(draws.size)
    p_values.append(float(2.0 * stats.norm.sf(abs(z))))
    return min(1.0, 3.0 * min(p_values))


CHECKS: list[Callable[[Draws, Law], float]] = [
    mean_is_zero,
    variance_is_declared,
    probabilities_are_declared,
    tail_mass_is_declared,
    low_bits_are_uniform,
    neighbours_are_independent,
]


def failures(draws: Draws, law: Law) -> list[str]:
    return [check.__name__ for check in CHECKS if check(draws, law) < FALSE_ALARM]


@pytest.mark.deep
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws_have_the_declared_law(law: Law) -> None:
    assert failures(law.sample(DRAWS, RandomSource.simulation(2026, str(law))), law) == []


@pytest.mark.deep
@pytest.mark.parametrize("law", [Skellam(1e6), Skellam(2.0**46), DiscreteGaussian(1e9)], ids=str)
def test_variance_is_right_to_two_parts_in_a_thousand(law: Law) -> None:
    """Sixteen million draws: a sampler that keeps its refused candidates has a variance 0.3 % too
    large.
    """
    source = RandomSource.simulation(12, str(law))
    draws = np.concatenate([law.sample(1 << 22, source) for _ in range(4)])
    assert variance_is_declared(draws, law) > FALSE_ALARM
    assert 5.4 * math.sqrt(2.0 / draws.size) < 0.002


@pytest.mark.parametrize("variance", [6.0, 400.0, 2e6, 2.0**46])
def test_sum_of_all_shares_has_the_law_of_the_total(variance: float) -> None:
    for total in (Skellam(variance), DiscreteGaussian(variance)):
        share = total.share(8)
        draws = share.sample((DRAWS // 4, 8), RandomSource.simulation(8, str(total))).sum(axis=1)
        assert failures(draws, share.sum_of(8)) == []


def test_every_point_near_a_block_edge_is_drawn_as_often_as_declared() -> None:
    """Variance 1e6: blocks of eight points; one chi-square over all 7,000 points within 3.5
    standard deviations.
    """
    law = Skellam(1e6)
    draws = law.sample(1 << 22, RandomSource.simulation(3))
    points = np.arange(-3500, 3501)
    observed = np.bincount(np.clip(draws, -3501, 3501) + 3501)[1:-1]
    inside = special.ive(np.abs(points), 1e6)
    observed = np.append(observed, draws.size - observed.sum()).astype(np.float64)
    assert chi_square_p_value(observed, np.append(inside, 1.0 - inside.sum())) > FALSE_ALARM


def test_successive_calls_continue_the_stream() -> None:
    source = RandomSource.simulation(9)
    first, second = Skellam(1e7).sample(20_000, source), Skellam(1e7).sample(20_000, source)
    assert not np.array_equal(first, second)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5.4 / math.sqrt(20_000)  # false alarm 7e-8


MUTATIONS: dict[str, tuple[float, Callable[[Draws], Draws]]] = {
    "variance one per cent too small": (
        1e12,
        lambda x: np.rint(x * math.sqrt(0.99)).astype(np.int64),
    ),
    "variance one per cent too large": (
        1e12,
        lambda x: np.rint(x * math.sqrt(1.01)).astype(np.int64),
    ),
    "negative half not mirrored": (1e4, lambda x: np.where(x < 0, x + 1, x)),
    "one sign in a hundred flipped": (
        1e12,
        lambda x: np.where((x < 0) & (np.arange(x.size) % 100 == 0), -x, x),
    ),
    "last point of every block missing": (1e6, lambda x: x - ((x & 7) == 7)),
    "upper half of every block missing": (1e12, lambda x: x & ~np.int64(0x1000)),
    "tail cut at four deviations": (1e12, lambda x: np.where(np.abs(x) > 4_000_000, 0, x)),
    "every draw used twice": (1e12, lambda x: np.repeat(x[: x.size // 2], 2)),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", list(MUTATIONS))
def test_mutated_samplers_are_caught(name: str) -> None:
    variance, mutate = MUTATIONS[name]
    law = Skellam(variance)
    assert failures(mutate(law.sample(DRAWS, RandomSource.simulation(4, name))), law) != []


def _variance_of_square(law: Law) -> float:
    """E X⁴ − v²: 2v² + v for Skellam; for the (sums of) discrete Gaussians from their sums where v
    is small.
    """
    v = law.variance_grid
    if isinstance(law, Skellam):
        return 2.0 * v**2 + v
    if v > 100:
        return 2.0 * v**2
    points = np.arange(-200, 200)
    probabilities = np.diff(declared_cdf(law, np.append(points, 200)))
    return float((points.astype(np.float64) ** 4 * probabilities).sum() - v**2)
