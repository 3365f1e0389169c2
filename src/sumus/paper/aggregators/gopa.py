"""Pairwise-cancelling noise without a server's help, in the style of GOPA.

Neighbours u < v on a public ring of degree O(log N) agree on a seed; u adds its expansion over the
whole ring, v subtracts it. Whoever listens adds the published vectors up and the noise cancels;
there is no threshold, no share, no signature and no self mask. If v vanishes, its neighbours *roll
back*: they publish the seeds they had in common with v.

Trade-off: one exchange without drop-outs and two with them, and fewer masks; but a listener that
    merely pretends that v vanished gets every seed of v and sees v's vector with nothing but v's
    own noise on it. So it protects against an honest-but-curious listener; against a lying one only
    the silo's own noise counts (`local` analysis). A neighbour that vanishes before rolling back
    ends the round.

Reference: Sabater, Bellet, Ramon 2022 (arXiv:2006.07218), algorithm 1; here with noise uniform on
    the ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from sumus.errors import RoundAborted
from sumus.randomness import RandomSource
from sumus.secagg import (
    Drop,
    PublicHalf,
    Terms,
    Traffic,
    Words,
    add_masks,
    agree,
    as_words,
    pack,
    pair_sign,
    reduce_words,
    unpack,
    vanished,
    word_type,
)

__all__ = ["gopa_neighbours", "gopa_sum"]

_SEED_BYTES = 32
_KEY_BYTES = 32


def gopa_neighbours(silos: int) -> list[list[int]]:
    """A ring on which everybody cancels with ⌈log2 N⌉ silos on either side."""
    reach = min(ceil(log2(silos)), silos // 2) if silos > 1 else 0
    offsets = [offset for step in range(1, reach + 1) for offset in (-step, step)]
    return [
        sorted({(silo + offset) % silos for offset in offsets} - {silo}) for silo in range(silos)
    ]


def gopa_sum(
    vectors: Sequence[npt.ArrayLike], terms: Terms, *, drop: Drop, random: RandomSource
) -> tuple[Words, frozenset[int], Traffic]:
    """Σ of the published vectors after rolling back the noise that vanished silos left behind."""
    traffic = Traffic()
    present = frozenset(range(terms.silos)) - vanished(drop, "keys")
    survivors = present - vanished(drop, "masked")
    if len(survivors) < terms.minimum_survivors:
        raise RoundAborted(
            f"{len(survivors)} inputs arrived, a sum needs {terms.minimum_survivors}. Start a new "
            "round."
        )
    keys = {silo: X25519PrivateKey.from_private_bytes(random.bytes(_KEY_BYTES)) for silo in present}
    publics = {
        silo: PublicHalf(silo, key.public_key().public_bytes_raw()) for silo, key in keys.items()
    }
    partners = {
        silo: [v for v in all_ if v in present]
        for silo, all_ in enumerate(gopa_neighbours(terms.silos))
        if silo in present
    }
    total: Words = np.zeros(terms.length, dtype=word_type(terms.modulus_bits))
    for silo in sorted(present):
        traffic.up[silo] += _KEY_BYTES
        traffic.down[silo] += _KEY_BYTES * len(partners[silo])
    for silo in sorted(survivors):
        words = as_words(vectors[silo], modulus_bits=terms.modulus_bits, length=terms.length)
        seeds = (
            agree(
                keys[silo],
                publics[silo],
                publics[partner],
                session=terms.digest(),
                owner=f"silo {partner}",
            )
            for partner in partners[silo]
        )
        signs = (pair_sign(silo, partner) for partner in partners[silo])
        add_masks(words, list(zip(seeds, signs, strict=True)))
        reduce_words(words, terms.modulus_bits)
        message = pack(words, terms.modulus_bits)
        traffic.up[silo] += len(message)
        np.add(
            total, unpack(message, modulus_bits=terms.modulus_bits, length=terms.length), out=total
        )
    silent = vanished(drop, "unmask")
    for silo in sorted(survivors):
        for gone in (partner for partner in partners[silo] if partner not in survivors):
            if silo in silent:
                raise RoundAborted(
                    f"silo {silo} vanished before it rolled back its noise with silo {gone}. Start "
                    "a new round."
                )
            traffic.up[silo] += _SEED_BYTES
            seed = agree(
                keys[silo],
                publics[silo],
                publics[gone],
                session=terms.digest(),
                owner=f"silo {gone}",
            )
            add_masks(total, [(seed, -pair_sign(silo, gone))])
    reduce_words(total, terms.modulus_bits)
    return total, survivors, traffic
