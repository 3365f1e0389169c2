"""The ideal that Heikkilä 2025 assumes: everybody hands the plain vector to somebody who adds up and
forgets.

Offered for comparison and for simulations; whoever runs the server sees every silo's vector.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sumus.errors import RoundAborted
from sumus.randomness import RandomSource
from sumus.secagg import (
    Drop,
    Terms,
    Traffic,
    Words,
    as_words,
    pack,
    reduce_words,
    unpack,
    vanished,
    word_type,
)

__all__ = ["trusted_sum"]


def trusted_sum(
    vectors: Sequence[npt.ArrayLike], terms: Terms, *, drop: Drop, random: RandomSource
) -> tuple[Words, frozenset[int], Traffic]:
    """Σ of the vectors that arrived; one message per silo, and nothing random in it."""
    traffic = Traffic()
    total: Words = np.zeros(terms.length, dtype=word_type(terms.modulus_bits))
    survivors = frozenset(range(terms.silos)) - vanished(drop, "masked")
    if len(survivors) < terms.minimum_survivors:
        raise RoundAborted(
            f"{len(survivors)} inputs arrived, a sum needs {terms.minimum_survivors}. Start a new "
            "round."
        )
    for silo in sorted(survivors):
        message = pack(
            as_words(vectors[silo], modulus_bits=terms.modulus_bits, length=terms.length),
            terms.modulus_bits,
        )
        traffic.up[silo] += len(message)
        np.add(
            total, unpack(message, modulus_bits=terms.modulus_bits, length=terms.length), out=total
        )
    reduce_words(total, terms.modulus_bits)
    return total, survivors, traffic
