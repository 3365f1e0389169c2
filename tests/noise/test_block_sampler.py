"""The sampler's own proof, checked: the exact law of its tables against oracles, word by word and
ring by ring.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import mpmath as mp
import numpy as np
import numpy.typing as npt
import pytest

from oracles import alias, pmf
from sumus.noise import DiscreteGaussian, Law, Skellam
from sumus.noise.kernel import draw_from_ring
from sumus.noise.sampler import SAMPLER_LOG_RATIO, SAMPLER_TAIL_MASS, block_table, draw_blocks
from sumus.randomness import RandomSource

VARIANCES = [0.25, 1.0, 30.0, 2_000.0, 22_499.0, 22_501.0, 1e6, 1e12, 2.0**46]
LAWS: list[Law] = [Skellam(v) for v in VARIANCES] + [DiscreteGaussian(v) for v in VARIANCES]


def oracle_log_pmf(law: Law, point: int) -> mp.mpf:
    if isinstance(law, Skellam):
        return pmf.skellam_log_pmf(point, law.variance_grid)
    assert isinstance(law, DiscreteGaussian)
    return pmf.discrete_gaussian_log_pmf(point, law.scale2_grid)


@pytest.mark.deep
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_drawn_probabilities_stay_within_the_declared_log_ratio_out_to_the_tail(
    law: Law,
) -> None:
    """Q(k) = block probability / width × acceptance / (overall acceptance), against 60 digits; 25
    blocks from every depth.
    """
    table = block_table(law)
    width = 1 << table.offset_bits
    blocks = alias.block_probabilities(table)
    log_accepted = _log_overall_acceptance(blocks, width)
    for start in (
        sorted(blocks, key=abs)[:: max(1, len(blocks) // 25)] + sorted(blocks, key=abs)[-2:]
    ):
        probability, log_top = blocks[start]
        for point in {start, start + width - 1}:
            log_acceptance = min(0.0, float(law.log_pmf(np.array([point]))[0]) - log_top)
            drawn = _log(probability) - mp.log(width) + log_acceptance - log_accepted
            assert abs(float(drawn - oracle_log_pmf(law, point))) < SAMPLER_LOG_RATIO


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_blocks_tile_an_interval_outside_which_the_law_has_less_than_its_tail_mass(
    law: Law,
) -> None:
    table = block_table(law)
    width = 1 << table.offset_bits
    starts = sorted(alias.block_probabilities(table))
    assert starts == list(range(starts[0], starts[-1] + 1, width))
    outside = 0.0
    for first in (1 - starts[0], starts[-1] + width):
        log_first, log_second = (float(oracle_log_pmf(law, first + i)) for i in (0, 1))
        # log-concave: at most geometric from there on
        outside += math.exp(log_first) / -math.expm1(log_second - log_first)
    assert outside <= SAMPLER_TAIL_MASS
    assert outside >= 1e-6 * SAMPLER_TAIL_MASS  # and not many tables more than needed


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_tables_hold_all_words_and_no_light_entry(law: Law) -> None:
    for ring in block_table(law).rings:
        probabilities = alias.entry_probabilities(ring)
        assert sum(probabilities) == 1
        assert all(p > Fraction(1, 1 << 20) for p in probabilities[: ring.escape])
        assert all(p == 0 for p in probabilities[ring.escape + 2 :])
        assert probabilities[ring.escape + 1] < Fraction(1, 1 << 47)  # the refused rest of 2^64


@pytest.mark.parametrize(
    "law", [Skellam(2.0), Skellam(9_000.0), Skellam(1e7), DiscreteGaussian(2.0**46)], ids=str
)
def test_compiled_loop_does_what_the_definition_says(law: Law) -> None:
    table = block_table(law)
    words = RandomSource.simulation(11).words(4000).reshape(2, -1)
    words[:, :4] = [[0, alias.WORD - 1, 0, alias.WORD - 1], [0, alias.WORD - 1, alias.WORD - 1, 0]]
    for ring in table.rings[:3]:
        # and words exactly at a threshold, just below, and at the end of a cell
        capacity = alias.WORD // len(ring.thresholds)
        for cell in np.flatnonzero((ring.thresholds > 0) & (ring.thresholds < capacity))[
            :8
        ].tolist():
            at = cell * capacity + int(ring.thresholds[cell])
            words[0, 8 + 3 * cell % 1900 : 11 + 3 * cell % 1900] = [
                at,
                at - 1,
                (cell + 1) * capacity - 1,
            ]
        out, positions, slots = (np.empty(2000, dtype=np.int64) for _ in range(3))
        coins = np.empty(2000, dtype=np.uint64)
        found = draw_from_ring(
            words[0], words[1], ring.cell_shift, np.uint64(table.offset_bits), ring.thresholds,
            ring.starts, ring.squeezes, out, positions, slots, coins,
        )  # fmt: skip
        expected = [alias.candidate(ring, int(a), int(b), table.offset_bits) for a, b in words.T]
        assert out.tolist() == [value for value, _ in expected]
        undecided = [
            (position, slot) for position, (_, slot) in enumerate(expected) if slot is not None
        ]
        assert (
            list(zip(positions[:found].tolist(), slots[:found].tolist(), strict=True)) == undecided
        )
        assert coins[:found].tolist() == [
            int(words[1, position]) >> table.offset_bits for position, _ in undecided
        ]


@pytest.mark.parametrize("law", [Skellam(3.0), Skellam(1e7)], ids=str)
def test_squeeze_only_accepts_what_the_exact_comparison_would(law: Law) -> None:
    table = block_table(law)
    width = 1 << table.offset_bits
    for ring in table.rings:
        slots = np.flatnonzero(ring.entries < ring.escape)
        points = ring.starts[slots, None] + np.arange(width)
        acceptance = np.exp(law.log_pmf(points) - ring.log_tops[slots, None])
        squeeze = ring.squeezes[slots].astype(np.float64) * 2.0 ** (table.offset_bits - 64)
        assert (acceptance <= 1.0 + 1e-14).all()
        assert (squeeze <= acceptance.min(axis=1) + 1e-14).all()
        assert (squeeze >= acceptance.min(axis=1) - 1e-14).all()


class ScriptedSource:
    """Hands out the words it is given, then fails."""

    def __init__(self, words: list[int]) -> None:
        self.words = words

    def fill(self, out: npt.NDArray[np.uint64]) -> None:
        out[:] = [self.words.pop(0) for _ in range(out.size)]


def test_every_ring_is_reached_through_its_escapes_and_a_refusal_starts_again_at_the_centre() -> (
    None
):
    law = Skellam(1e7)
    table = block_table(law)
    escapes = [
        _word_for(ring_index, table.rings[ring_index].escape, law)
        for ring_index in range(len(table.rings) - 1)
    ]
    certain = 0  # coin zero: accepted by the squeeze
    for depth, ring in enumerate(table.rings):
        landing = _word_for(depth, ring.escape - 1, law)
        script = [word for escape in escapes[:depth] for word in (escape, certain)] + [
            landing,
            certain,
        ]
        assert draw_blocks(law, 1, ScriptedSource(script)).tolist() == [
            _start(depth, ring.escape - 1, law)
        ]  # type: ignore[arg-type]
        assert not script
    first_refused = [_word_for(0, table.rings[0].escape - 1, law), alias.WORD - 1]
    # last point of the block, coin almost one
    refused = [_word_for(2, table.rings[2].escape - 1, law), alias.WORD - 1]
    centre = [_word_for(0, 0, law), certain]
    script = [*first_refused, escapes[0], certain, escapes[1], certain, *refused, *centre]
    assert draw_blocks(law, 1, ScriptedSource(script)).tolist() == [_start(0, 0, law)]  # type: ignore[arg-type]
    assert not script


def test_draws_depend_on_the_source_alone_and_threads_do_not_mix() -> None:
    law = Skellam(1e8)
    alone = [law.sample(50_000, RandomSource.simulation(seed)) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(
            pool.map(lambda seed: law.sample(50_000, RandomSource.simulation(seed)), range(4))
        )
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))
    assert not np.array_equal(alone[0], alone[1])


def test_draws_of_a_named_simulation_never_change() -> None:
    """A change here changes the noise of every reproducible run: say so under Privacy in the
    changelog.
    """
    assert Skellam(2.5).sample(12, RandomSource.simulation(7)).tolist() == GOLDEN_POINTS
    assert Skellam(1e10).sample(6, RandomSource.simulation(7)).tolist() == GOLDEN_BLOCKS


GOLDEN_POINTS = [3, 1, -1, -3, 0, 0, -1, 0, 0, 2, 1, 0]
GOLDEN_BLOCKS = [174371, -47790, -77987, 199241, 43591, 12055]


def _word_for(ring_index: int, entry: int, law: Law) -> int:
    """An outer word that selects an entry of a ring's table."""
    ring = block_table(law).rings[ring_index]
    capacity = alias.WORD // len(ring.thresholds)
    slot = _slots(ring_index, entry, law)[0]
    return slot // 2 * capacity + (capacity - 1) * (slot % 2)


def _start(ring_index: int, entry: int, law: Law) -> int:
    return int(block_table(law).rings[ring_index].starts[_slots(ring_index, entry, law)[0]])


def _slots(ring_index: int, entry: int, law: Law) -> list[int]:
    """Slots of an entry that some word leads to."""
    ring = block_table(law).rings[ring_index]
    capacity = alias.WORD // len(ring.thresholds)
    reachable = [(t > 0, t < capacity) for t in map(int, ring.thresholds)]
    return [
        slot
        for slot in np.flatnonzero(ring.entries == entry).tolist()
        if reachable[slot // 2][slot % 2]
    ]


def _log(value: Fraction) -> mp.mpf:
    with mp.workdps(60):
        return mp.log(mp.mpf(value.numerator)) - mp.log(mp.mpf(value.denominator))


def _log_overall_acceptance(blocks: dict[int, tuple[Fraction, float]], width: int) -> float:
    """log of the probability that a candidate is accepted: candidates have envelope/total, accepted
    ones add up to 1/total.
    """
    heaviest = max(blocks, key=lambda start: blocks[start][0])
    probability, log_top = blocks[heaviest]
    return float(_log(probability) - math.log(width) - log_top)
