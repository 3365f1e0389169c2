"""The compiled inner loop of the block sampler. Apart from its caller so that only drawing pays for
importing numba.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sumus.files import compiled

__all__ = ["draw_from_ring"]


def _draw_from_ring(
    outer_words: npt.NDArray[np.uint64],
    inner_words: npt.NDArray[np.uint64],
    cell_shift: np.uint64,
    offset_bits: np.uint64,
    thresholds: npt.NDArray[np.uint64],
    starts: npt.NDArray[np.int64],
    squeezes: npt.NDArray[np.uint64],
    out: npt.NDArray[np.int64],
    undecided: npt.NDArray[np.int64],
    undecided_slot: npt.NDArray[np.int64],
    undecided_coin: npt.NDArray[np.uint64],
) -> int:
    """One candidate per pair of words; returns how many the squeeze left undecided (listed by
    position, slot and coin).
    """
    coin_mask = (np.uint64(1) << cell_shift) - np.uint64(1)
    offset_mask = (np.uint64(1) << offset_bits) - np.uint64(1)
    count = 0
    for position in range(outer_words.size):
        word = outer_words[position]
        cell = word >> cell_shift
        slot = (cell << np.uint64(1)) + np.uint64((word & coin_mask) >= thresholds[cell])
        inner = inner_words[position]
        out[position] = starts[slot] + np.int64(inner & offset_mask)
        coin = inner >> offset_bits
        if coin >= squeezes[slot]:
            undecided[count] = position
            undecided_slot[count] = np.int64(slot)
            undecided_coin[count] = coin
            count += 1
    return count


draw_from_ring = compiled(_draw_from_ring)
