"""The exact law of a block sampler's tables, in rationals, and a plain-Python reading of its inner
loop.
"""

from __future__ import annotations

from fractions import Fraction

from sumus.noise.sampler import BlockTable, Ring

WORD = 1 << 64


def entry_probabilities(ring: Ring) -> list[Fraction]:
    """Probability of every entry of one table if the outer word is uniform on 2^64 values: count
    the words.
    """
    cells = len(ring.thresholds)
    capacity = WORD // cells
    masses = [0] * cells
    for cell in range(cells):
        masses[int(ring.entries[2 * cell])] += int(ring.thresholds[cell])
        masses[int(ring.entries[2 * cell + 1])] += capacity - int(ring.thresholds[cell])
    return [Fraction(mass, WORD) for mass in masses]


def block_probabilities(table: BlockTable) -> dict[int, tuple[Fraction, float]]:
    """Start of every block → (probability of becoming the candidate block before any refusal, its
    declared log-top).
    """
    blocks: dict[int, tuple[Fraction, float]] = {}
    reached = Fraction(1)
    for ring in table.rings:
        probabilities = entry_probabilities(ring)
        for entry in range(ring.escape):
            slot = ring.entries.tolist().index(entry)
            start = int(ring.starts[slot])
            before = blocks.get(start, (Fraction(0), 0.0))[0]
            blocks[start] = (before + reached * probabilities[entry], float(ring.log_tops[slot]))
        reached *= probabilities[ring.escape]
    return blocks


def candidate(ring: Ring, outer: int, inner: int, offset_bits: int) -> tuple[int, int | None]:
    """Value of one pair of words and, if the squeeze cannot decide, the slot it came from."""
    cell, coin = divmod(outer, WORD // len(ring.thresholds))
    slot = 2 * cell if coin < int(ring.thresholds[cell]) else 2 * cell + 1
    value = int(ring.starts[slot]) + inner % (1 << offset_bits)
    undecided = inner >> offset_bits >= int(ring.squeezes[slot])
    return value, slot if undecided else None
