"""Relayed groups, in the style of Turbo-Aggregate.

The silos form groups on a ring. Each silo shares its vector (Shamir over a Galois ring, threshold t
of the group) with the next group; a member of that group adds the shares it received to its share
of the running total, shares the result anew with the group after it, and so on round the ring. The
first group hands its shares of the grand total to the server. Redundant shares stand in for
vanished members where Turbo-Aggregate uses Lagrange-coded ones.

Trade-off: mask-free and N log N in computation, but g vectors of traffic up and g down per silo (g
    silos a group) instead of one, as many exchanges as groups instead of three, and t colluding
    silos of *one* group open every vector of the group before it.

Reference: So, Güler, Avestimehr 2021 (arXiv:2002.04156).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log2
from typing import final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sumus.errors import RoundAborted
from sumus.paper.aggregators.galois import (
    Matrix,
    degree_for,
    evaluation_weights,
    multiply_blocks,
    power_rows,
)
from sumus.randomness import RandomSource
from sumus.secagg import (
    Drop,
    PublicHalf,
    Terms,
    Traffic,
    Words,
    agree,
    as_words,
    expand,
    pack,
    unpack,
    vanished,
    word_type,
)

__all__ = ["turbo_groups", "turbo_sum"]

_KEY_BYTES = 32


def turbo_groups(silos: int) -> list[tuple[int, ...]]:
    """Groups of about 2 log2 N silos, as equal as possible."""
    count = max(1, silos // max(5, 2 * ceil(log2(silos)))) if silos > 1 else 1
    bounds = [silos * place // count for place in range(count + 1)]
    return [tuple(range(low, high)) for low, high in pairwise(bounds)]


@final
@dataclass(frozen=True, eq=False)
class _Ring:
    """Sharing of word vectors among the members of a group."""

    terms: Terms
    degree: int
    random: RandomSource

    def blocks(self, vector: npt.ArrayLike) -> Matrix:
        """A vector as rows of `degree` coordinates."""
        words = as_words(
            vector, modulus_bits=self.terms.modulus_bits, length=self.terms.length
        ).astype(np.uint64)
        padded = np.zeros(-(-words.size // self.degree) * self.degree, dtype=np.uint64)
        padded[: words.size] = words
        return padded.reshape(-1, self.degree)

    def share(self, secret: Matrix, *, members: int, threshold: int) -> list[Matrix]:
        """f(1) … f(members) of a random polynomial with f(0) = secret and degree threshold − 1."""
        coefficients = [
            self.random.words(secret.size).reshape(secret.shape) for _ in range(threshold - 1)
        ]
        shares = []
        for member in range(1, members + 1):
            share = secret.copy()
            powers = power_rows(member, powers=threshold - 1, degree=self.degree)
            for coefficient, power in zip(coefficients, powers, strict=True):
                share += multiply_blocks(coefficient, power)
            shares.append(share)
        return shares

    def encode(self, blocks: Matrix) -> bytes:
        """Blocks on the wire, packed to the modulus."""
        words = blocks.reshape(-1).astype(word_type(self.terms.modulus_bits))
        if self.terms.modulus_bits < 8 * words.itemsize:
            words &= words.dtype.type((1 << self.terms.modulus_bits) - 1)
        return bytes(pack(words, self.terms.modulus_bits))

    def decode(self, data: bytes) -> Matrix:
        """The inverse of `encode` up to the modulus."""
        length = -(-self.terms.length // self.degree) * self.degree
        words = unpack(data, modulus_bits=self.terms.modulus_bits, length=length)
        return words.astype(np.uint64).reshape(-1, self.degree)


@final
class _Relay:
    """Sealed messages between silos, carried by the server."""

    def __init__(
        self, present: frozenset[int], terms: Terms, *, random: RandomSource, traffic: Traffic
    ) -> None:
        self._terms, self._traffic = terms, traffic
        self._keys = {
            silo: X25519PrivateKey.from_private_bytes(random.bytes(_KEY_BYTES)) for silo in present
        }
        self._publics = {
            silo: PublicHalf(silo, key.public_key().public_bytes_raw())
            for silo, key in self._keys.items()
        }
        for silo in present:
            traffic.up[silo] += _KEY_BYTES

    def _cipher(self, silo: int, peer: int, *, sender: int) -> AESGCM:
        root = agree(
            self._keys[silo],
            self._publics[silo],
            self._publics[peer],
            session=self._terms.digest(),
            owner=f"silo {peer}",
        )
        return AESGCM(expand(root, b"relay from" + sender.to_bytes(2, "little")))

    def carry(self, sender: int, receiver: int, message: bytes) -> bytes:
        """Seal, send and open one message; each pair and direction is used once."""
        sealed = self._cipher(sender, receiver, sender=sender).encrypt(bytes(12), message, None)
        self._traffic.up[sender] += len(sealed)
        self._traffic.down[receiver] += len(sealed)
        return self._cipher(receiver, sender, sender=sender).decrypt(bytes(12), sealed, None)


def turbo_sum(
    vectors: Sequence[npt.ArrayLike], terms: Terms, *, drop: Drop, random: RandomSource
) -> tuple[Words, frozenset[int], Traffic]:
    """Σ of the vectors of all silos that were there when their group's turn came."""
    groups = turbo_groups(terms.silos)
    ring = _Ring(terms, degree_for(max(map(len, groups))), random)
    traffic = Traffic()
    relay = _Relay(
        frozenset(range(terms.silos)) - vanished(drop, "keys"),
        terms,
        random=random,
        traffic=traffic,
    )
    survivors = frozenset(range(terms.silos)) - vanished(drop, "masked")
    helpers = survivors - vanished(drop, "unmask")
    if len(survivors) < terms.minimum_survivors:
        raise RoundAborted(
            f"{len(survivors)} inputs arrived, a sum needs {terms.minimum_survivors}. Start a new "
            "round."
        )
    running: dict[int, Matrix] = {}
    for turn, group in enumerate(groups):
        following = groups[(turn + 1) % len(groups)]
        running = _hand_over(
            {silo: ring.blocks(vectors[silo]) for silo in group if silo in survivors},
            running,
            ring=ring,
            relay=relay,
            group=group,
            following=[
                silo
                for silo in following
                if silo in (survivors if turn + 1 < len(groups) else helpers)
            ],
            places={silo: place + 1 for place, silo in enumerate(following)},
        )
    for silo, share in running.items():
        traffic.up[silo] += len(ring.encode(share))
    opened = _open(running, groups[0], ring=ring)
    total = ring.encode(opened)
    padded = unpack(total, modulus_bits=terms.modulus_bits, length=opened.size)
    return padded[: terms.length].copy(), survivors, traffic


def _hand_over(
    inputs: Mapping[int, Matrix],
    running: Mapping[int, Matrix],
    *,
    ring: _Ring,
    relay: _Relay,
    group: tuple[int, ...],
    following: Sequence[int],
    places: Mapping[int, int],
) -> dict[int, Matrix]:
    """Give the next group its shares of the running total plus this group's vectors."""
    threshold = len(places) // 2 + 1
    received = (
        {silo: np.zeros(next(iter(inputs.values())).shape, dtype=np.uint64) for silo in following}
        if inputs
        else {}
    )
    weights = _weights(running, group, degree=ring.degree)
    for silo, blocks in inputs.items():
        secret = (
            blocks
            if silo not in weights
            else blocks + multiply_blocks(running[silo], weights[silo])
        )
        shares = ring.share(secret, members=len(places), threshold=threshold)
        for receiver in following:
            message = relay.carry(silo, receiver, ring.encode(shares[places[receiver] - 1]))
            received[receiver] += ring.decode(message)
    if len(received) < threshold:
        raise RoundAborted(
            f"{len(received)} silos of a group of {len(places)} are left, {threshold} must be. "
            "Start a new round."
        )
    return received


def _weights(
    running: Mapping[int, Matrix], group: tuple[int, ...], *, degree: int
) -> dict[int, Matrix]:
    """By silo, the weight with which its share enters the running total; whoever has none is
    redundant.
    """
    if not running:
        return {}
    chosen = sorted(running)[: len(group) // 2 + 1]
    points = tuple(group.index(silo) + 1 for silo in chosen)
    return dict(zip(chosen, evaluation_weights(points, degree), strict=True))


def _open(running: Mapping[int, Matrix], group: tuple[int, ...], *, ring: _Ring) -> Matrix:
    """The grand total from the shares of the first group."""
    weights = _weights(running, group, degree=ring.degree)
    if len(weights) < len(group) // 2 + 1:
        raise RoundAborted(
            f"{len(weights)} silos of the first group are left, {len(group) // 2 + 1} must be. "
            "Start a new round."
        )
    total = np.zeros_like(next(iter(running.values())))
    for silo, weight in weights.items():
        total += multiply_blocks(running[silo], weight)
    return total
