"""One sampler for every symmetric, log-concave integer law, exact up to the rounding of its
probabilities.

The integers are cut into blocks of equal width w = 2^s, mirrored about zero. Inside a block the law
is monotone, so its largest probability `top` sits at the end nearer zero and its smallest,
`bottom`, at the other. The blocks' envelopes w·top need no integral and no normalisation. A draw:

1. picks a block with probability proportional to its envelope (alias table, one 64-bit word);
2. picks a uniform point of the block and tosses one coin (a second word): below bottom/top the
   point is accepted at once (about 99 % of draws); otherwise it is accepted below
   P[X = point]/top, computed. A refused draw starts again.

Blocks are arranged in rings around zero. A ring's table holds its blocks and one *escape* entry
that carries the envelope of everything further out and leads to the next ring, so that the far tail
keeps a small relative error too: no entry of any table is light. At small variance w = 1: every
point is a block, nothing is refused and one word a draw suffices.

Guarantee: let P be the declared law and Q the law of a drawn value, given ideal random words. Then
    |log Q(k)/P(k)| ≤ SAMPLER_LOG_RATIO for every k inside the last ring, and P, Q put at most
    SAMPLER_TAIL_MASS outside it.
Proof: Q(k) ∝ (escape probabilities on the way to the ring) × M/2^64 × a(k), with M the integer mass
    of the block and a(k) its acceptance. (i) Alias tables are built in integers from masses that
    add up to 2^64, so step 1 is exact for the masses. A mass is the integer nearest to 2^64 times a
    double, and what is left of 2^64 is an entry that is always refused, so each table on the way
    costs a relative error of at most 3/(2·min M) + 2^-50; `block_table` adds these up and refuses a
    table whose sum exceeds 1e-13. (ii) The coin has at least 48 bits and a(k) ≥ ½ (checked
    likewise): at most 2^-46. (iii) Declared log-probabilities are good to 1e-13 inside the last
    ring (tested in 50 digits). Doubled, because Q is normalised by a sum with the same relative
    errors: 2·(1e-13 + 2^-46 + 1e-13) < 5e-13.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sumus.randomness import RandomSource

__all__ = [
    "SAMPLER_LOG_RATIO",
    "SAMPLER_TAIL_MASS",
    "BlockTable",
    "LogConcaveNoise",
    "Ring",
    "block_table",
    "draw_blocks",
]

SAMPLER_LOG_RATIO = 5e-13
SAMPLER_TAIL_MASS = 2.0**-100

_WORD = 1 << 64
# with the escape and the refused entry: 1024 cells, which stay close to the L1 cache
_BLOCKS_PER_RING = 1022
_ESCAPE_TARGET = 2.0**-10
_LIGHTEST_ESCAPE = 2.0**-16
_TABLE_ERROR = 1e-13
_OUTSIDE_TARGET = SAMPLER_TAIL_MASS / 2.0
# draws per call of the compiled loop: its words and its table fit into the L2 cache
_CHUNK = 1 << 14


class LogConcaveNoise(Protocol):
    """A symmetric log-concave law on the integers, as much of it as drawing and accounting need."""

    @property
    def variance_grid(self) -> float: ...

    def __hash__(self) -> int: ...

    def log_pmf(self, points: npt.NDArray[np.int64], /) -> npt.NDArray[np.float64]: ...


@dataclass(frozen=True)
class Ring:
    """Alias table of one ring. Entries are its blocks, then `escape`, then the one that is always
    refused.

    Slots 2i and 2i + 1 describe the entry of cell i below its threshold and its alias. Both are
    written out, so that the compiled loop computes a slot instead of branching on a coin that no
    processor can predict.
    """

    cell_shift: np.uint64
    thresholds: npt.NDArray[np.uint64]  # per cell
    entries: npt.NDArray[np.int64]  # per slot, like the rest
    starts: npt.NDArray[np.int64]
    squeezes: npt.NDArray[np.uint64]
    log_tops: npt.NDArray[np.float64]
    escape: int


@dataclass(frozen=True)
class BlockTable:
    """All rings of a law from the centre outwards. `log_ratio` is the certified sum of the rounding
    errors of the masses.
    """

    offset_bits: int
    rings: tuple[Ring, ...]
    log_ratio: float
    outside_mass: float


@dataclass(frozen=True)
class _Blocks:
    """Every block {jw, …, (j+1)w − 1} and its mirror {−(j+1)w, …, −jw − 1} up to a reach, likeliest
    first.
    """

    starts: npt.NDArray[np.int64]
    log_tops: npt.NDArray[np.float64]
    log_bottoms: npt.NDArray[np.float64]
    envelopes: npt.NDArray[np.float64]
    beyond: float  # bound on the mass outside all blocks

    def __getitem__(self, part: slice) -> _Blocks:
        return _Blocks(
            self.starts[part],
            self.log_tops[part],
            self.log_bottoms[part],
            self.envelopes[part],
            self.beyond,
        )


def draw_blocks(law: LogConcaveNoise, count: int, source: RandomSource) -> npt.NDArray[np.int64]:
    """`count` independent draws of the law."""
    if count == 0:
        return np.empty(0, dtype=np.int64)
    table = block_table(law)
    out, refused, escaped = _try_ring(law, table, ring_index=0, count=count, source=source)
    pending = [(1, escaped), (0, refused)]
    while pending:
        ring_index, positions = pending.pop()
        if positions.size:
            values, refused, escaped = _try_ring(
                law, table, ring_index=ring_index, count=positions.size, source=source
            )
            out[positions] = values
            pending += [(ring_index + 1, positions[escaped]), (0, positions[refused])]
    return out


def _try_ring(
    law: LogConcaveNoise, table: BlockTable, *, ring_index: int, count: int, source: RandomSource
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """One candidate per position; also the positions that were refused and those that escaped to
    the next ring.
    """
    # numba takes half a second to import; accounting never needs it
    from sumus.noise.kernel import draw_from_ring

    ring = table.rings[ring_index]
    offset_bits = np.uint64(table.offset_bits)
    chunk = min(count, _CHUNK)
    out = np.empty(count, dtype=np.int64)
    # one word suffices where a block is a point: its coin cannot refuse
    words_per_draw = 2 if table.offset_bits else 1
    buffer = np.empty(words_per_draw * chunk, dtype=np.uint64)
    positions, slots = np.empty(chunk, dtype=np.int64), np.empty(chunk, dtype=np.int64)
    coins = np.empty(chunk, dtype=np.uint64)
    undecided: list[
        tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint64]]
    ] = []
    for start in range(0, count, _CHUNK):
        size = min(_CHUNK, count - start)
        words = buffer[: words_per_draw * size]
        source.fill(words)
        open_count = draw_from_ring(
            words[:size], words[-size:], ring.cell_shift, offset_bits, ring.thresholds,
            ring.starts, ring.squeezes, out[start : start + size], positions, slots, coins,
        )  # fmt: skip
        undecided.append(
            (
                positions[:open_count] + start,
                slots[:open_count].copy(),
                coins[:open_count].copy(),
            )
        )
    position, slot, coin = (np.concatenate(column) for column in zip(*undecided, strict=True))
    escaped = ring.entries[slot] == ring.escape
    uniform = (coin.astype(np.float64) + 0.5) * 2.0 ** (table.offset_bits - 64)
    accepted = uniform < np.exp(law.log_pmf(out[position]) - ring.log_tops[slot])
    return out, position[~accepted & ~escaped], position[escaped]


@lru_cache(maxsize=64)
def block_table(law: LogConcaveNoise) -> BlockTable:
    """The sampler's tables for a law: a few milliseconds, kept for the 64 laws used last."""
    std = math.sqrt(law.variance_grid)
    # ring 0 then holds about ±3.3 standard deviations
    offset_bits = max(0, math.ceil(math.log2(std / 150.0)))
    blocks = _cut_into_blocks(law, width=1 << offset_bits, reach=14.0 * std + 64.0)
    outside = np.cumsum(blocks.envelopes[::-1])[::-1] + blocks.beyond
    end = int(np.argmax(outside <= _OUTSIDE_TARGET))
    outside_mass, blocks = float(outside[end]), blocks[:end]
    if outside_mass > _OUTSIDE_TARGET or (blocks.log_bottoms - blocks.log_tops).min() < math.log(
        0.5
    ):
        raise ArithmeticError(f"the law {law!r} is not smooth enough for the block sampler")
    remaining = np.append(np.cumsum(blocks.envelopes[::-1])[::-1], 0.0)
    rings: list[Ring] = []
    log_ratio, begin = 0.0, 0
    while begin < end:
        light = np.flatnonzero(remaining[begin + 1 : end] <= _ESCAPE_TARGET * remaining[begin])
        stop = min(begin + 1 + int(light[0]) if light.size else end, begin + _BLOCKS_PER_RING)
        escape = float(remaining[stop] / remaining[begin])
        # a light escape is passed in several steps, each through the same blocks, so that no entry
        # of a table is light
        steps = max(1, math.ceil(math.log(escape) / math.log(_LIGHTEST_ESCAPE))) if escape else 1
        ring, error = _ring(
            blocks[begin:stop], escape=escape ** (1.0 / steps), offset_bits=offset_bits
        )
        rings += [ring] * steps
        log_ratio += steps * error
        begin = stop
    if log_ratio > _TABLE_ERROR:
        raise ArithmeticError(
            f"the rounded table of {law!r} has log-ratio {log_ratio:.2e}, above {_TABLE_ERROR}"
        )
    return BlockTable(offset_bits, tuple(rings), log_ratio, outside_mass)


def _cut_into_blocks(law: LogConcaveNoise, *, width: int, reach: float) -> _Blocks:
    near = np.arange(math.ceil(reach / width) + 1, dtype=np.int64) * width
    starts = np.concatenate([near, -near - width])
    log_tops = np.concatenate([law.log_pmf(near), law.log_pmf(near + 1)])
    log_bottoms = np.concatenate([law.log_pmf(near + width - 1), law.log_pmf(near + width)])
    # log-concave: beyond the last block the probabilities fall at least as fast as between the last
    # two
    before_last, last = np.exp(log_tops[near.size - 2 : near.size])
    beyond = 2.0 * width * last * last / (before_last - last) if last else 0.0
    order = np.argsort(-log_tops, kind="stable")
    return _Blocks(
        starts[order],
        log_tops[order],
        log_bottoms[order],
        width * np.exp(log_tops[order]),
        float(beyond),
    )


def _ring(blocks: _Blocks, *, escape: float, offset_bits: int) -> tuple[Ring, float]:
    """The table of these blocks and an escape of the given probability, and the relative error of
    its masses.
    """
    fractions = np.append(blocks.envelopes * ((1.0 - escape) / blocks.envelopes.sum()), escape)
    masses = [round(math.ldexp(float(fraction), 64)) for fraction in fractions * (1.0 - 2.0**-48)]
    lightest = min(mass for mass in masses if mass)
    masses.append(_WORD - sum(masses))
    thresholds, aliases = _alias_table(masses)
    ratios = np.exp(blocks.log_bottoms - blocks.log_tops)
    squeezes = [min(int(math.ldexp(float(ratio), 64 - offset_bits)), _WORD - 1) for ratio in ratios]
    # escape, refused and empty cells: never accepted by a coin
    others = len(thresholds) - len(squeezes)
    entries = np.stack([np.arange(len(thresholds)), np.array(aliases)], axis=1).ravel()
    ring = Ring(
        cell_shift=np.uint64(65 - len(thresholds).bit_length()),
        thresholds=np.array(thresholds, dtype=np.uint64),
        entries=entries,
        starts=np.append(blocks.starts, np.zeros(others, dtype=np.int64))[entries],
        squeezes=np.array(squeezes + [0] * others, dtype=np.uint64)[entries],
        log_tops=np.append(blocks.log_tops, np.full(others, np.inf))[entries],
        escape=len(squeezes),
    )
    return ring, 1.5 / lightest + 2.0**-50


def _alias_table(masses: list[int]) -> tuple[list[int], list[int]]:
    """Walker's alias table in exact integers (Vose's order): cell i keeps entry i below its
    threshold, else its alias.
    """
    cells = 1 << max(1, (len(masses) - 1).bit_length())
    capacity = _WORD // cells
    left = masses + [0] * (cells - len(masses))
    thresholds = [capacity] * cells
    aliases = list(range(cells))
    under = [cell for cell in range(cells) if left[cell] < capacity]
    over = [cell for cell in range(cells) if left[cell] > capacity]
    while under:
        light, heavy = under.pop(), over[-1]
        thresholds[light], aliases[light] = left[light], heavy
        left[heavy] -= capacity - left[light]
        if left[heavy] <= capacity:
            over.pop()
            if left[heavy] < capacity:
                under.append(heavy)
    return thresholds, aliases
