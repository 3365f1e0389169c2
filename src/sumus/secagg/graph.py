"""Who masks with whom, who holds whose shares, and how many of them it takes.

Complete graph: every silo masks with every other and holds its shares; t = silos − dropouts.

Sparse graph (from 150 silos up, after Bell et al. 2020): the silos stand on a ring in a random
order and each masks with the k/2 silos to its left and right, who also hold its shares. The
survivor set is signed by a random committee.

Theorem. Let every window of k/2 consecutive silos contain at most m corrupt ones and let t ≥ k/2 +
    m + 2. Then whatever set a server declares dropped, it learns the sum of all honest survivors or
    nothing about any of them.
Proof. The opened self masks are those of which t holders gave a share. Suppose an honest survivor u
    has no honest survivor among the k/2 silos to its right. Shares of b_u can then come from u
    itself, from k/2 silos on its left and from at most m corrupt ones on its right: fewer than t,
    so b_u stays closed and u's input uniform. Otherwise u shares a mask with the next honest
    survivor to its right, and that mask seed is opened for no pair of survivors. So if all honest
    survivors are opened they form one cycle of masks, and only their total is free of them; if some
    are not, every opened one is tied through the cycle to a closed one, whose uniform self mask
    hides them all. ∎

The order is random in the eyes of whoever chose the corrupt silos: it is scrypt of the roster and
    the terms. Somebody who writes
rosters or plans can try many; each trial costs scrypt's 0.1 s and 32 MB, and 2^32 trials are added
to the security parameter.

A plan that declares few colluders gets a graph for more all the same: where the terms leave the
graph to Sumus ("auto"), it counts on 2 % of the silos and on a committee of 21 at least, since
neighbours that are one and signers that are two would be broken by a single undeclared colluder.

Reference: Bell, Bonawitz, Gascón, Lepoint, Raykova 2020 (eprint 2020/704), sections 3 and 4.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import comb
from typing import final

from sumus.errors import PlanError
from sumus.randomness import RandomSource
from sumus.secagg.terms import Terms

__all__ = [
    "GRINDING_BITS",
    "LEAST_COMMITTEE",
    "SparseNumbers",
    "Topology",
    "least_colluding",
    "sparse_numbers",
    "tail",
    "topology_of",
]

GRINDING_BITS = 32
LEAST_COMMITTEE = 21
"""The smallest committee of a graph that the terms leave to Sumus."""
_SILOS_PER_COLLUDER = 50


def least_colluding(silos: int) -> int:
    """The fewest colluders that a graph which the terms leave to Sumus counts on: 2 % of the silos,
    rounded up.
    """
    return -(-silos // _SILOS_PER_COLLUDER)


def tail(population: int, marked: int, drawn: int, more_than: int) -> Fraction:
    """P[more than `more_than` marked ones among `drawn` out of `population`], exactly
    (hypergeometric).
    """
    top = min(marked, drawn)
    ways = sum(
        comb(marked, hit) * comb(population - marked, drawn - hit)
        for hit in range(more_than + 1, top + 1)
    )
    return Fraction(ways, comb(population, drawn))


@final
@dataclass(frozen=True, kw_only=True)
class SparseNumbers:
    """Degree and thresholds of a sparse graph.

    Args:
        degree: k, neighbours of a silo, even.
        threshold: t of the k + 1 holders of a secret (its owner included) open it.
        committee: silos whose signatures fix the survivor set.
        quorum: signatures that are needed.
    """

    degree: int
    threshold: int
    committee: int
    quorum: int


def _bound(population: int, marked: int, drawn: int, *, limit: Fraction) -> int:
    """The least m for which more than m marked ones are drawn with probability at most `limit`."""
    return next(m for m in range(drawn + 1) if tail(population, marked, drawn, m) <= limit)


@lru_cache(maxsize=64)
def sparse_numbers(
    silos: int,
    *,
    dropouts: int,
    colluding: int,
    security_bits: int = 40,
    correctness_bits: int = 30,
    least_committee: int = 1,
) -> SparseNumbers | None:
    """The smallest degree and committee that meet both security parameters, or None if only the
    complete graph does.

    Privacy fails with probability at most 2^−σ over the order (union over all windows, 2^32 trials
    of a grinding adversary); `dropouts` random drop-outs stop a round with probability at most
    2^−η.
    """
    insecure = Fraction(1, 1 << (security_bits + GRINDING_BITS + 1))
    stopped = Fraction(1, 1 << (correctness_bits + 1))
    committee = next(
        (
            (size, quorum)
            for size in range(least_committee, silos + 1)
            if (quorum := (size + _bound(silos, colluding, size, limit=insecure)) // 2 + 1) <= size
            and tail(silos, dropouts, size, size - quorum) <= stopped
        ),
        None,
    )
    for degree in range(2, silos - 1, 2):
        corrupt = _bound(silos, colluding, degree // 2, limit=insecure / silos)
        threshold = degree // 2 + corrupt + 2
        if (
            threshold <= degree + 1
            and tail(silos, dropouts, degree + 1, degree + 1 - threshold) <= stopped / silos
        ):
            if committee is None:
                return None
            return SparseNumbers(
                degree=degree, threshold=threshold, committee=committee[0], quorum=committee[1]
            )
    return None


@lru_cache(maxsize=16)
def _ring_order(seed: bytes, silos: int) -> tuple[int, ...]:
    """A random order of the silos that is slow to recompute for another seed."""
    key = hashlib.scrypt(
        seed, salt=b"sumus ring order", n=1 << 15, r=8, p=1, maxmem=1 << 26, dklen=32
    )
    return tuple(int(silo) for silo in RandomSource.from_key(key).permutation(silos))


@final
@dataclass(frozen=True)
class Topology:
    """Neighbours, holders, thresholds and committee of one session; every silo computes it for
    itself.

    Guarantee: a public function of terms and roster. A server has no say in it.
    """

    silos: int
    threshold: int
    quorum: int
    committee: frozenset[int]
    ring: tuple[int, ...] | None
    degree: int

    def circle(self, silo: int) -> frozenset[int]:
        """The silo and those it masks with: together they hold the shares of its secrets."""
        return self._circles[silo]

    def holders(self, silo: int, participants: frozenset[int]) -> tuple[int, ...]:
        """The participants that hold shares of this silo's secrets, itself included, in order."""
        return tuple(sorted(self._circles[silo] & participants))

    @cached_property
    def _circles(self) -> tuple[frozenset[int], ...]:
        if self.ring is None:
            return (frozenset(range(self.silos)),) * self.silos
        places = {silo: place for place, silo in enumerate(self.ring)}
        reach = range(-(self.degree // 2), self.degree // 2 + 1)
        return tuple(
            frozenset(self.ring[(places[silo] + offset) % self.silos] for offset in reach)
            for silo in range(self.silos)
        )


@lru_cache(maxsize=16)
def topology_of(terms: Terms, session: bytes) -> Topology:
    """The topology that the terms ask for.

    Args:
        terms: the public numbers.
        session: hash of terms and roster, the seed of the random order.
    """
    everyone = frozenset(range(terms.silos))
    if terms.sparse:
        floored = terms.graph == "auto"
        numbers = sparse_numbers(
            terms.silos,
            dropouts=terms.dropouts,
            colluding=max(terms.colluding, least_colluding(terms.silos) if floored else 0),
            security_bits=terms.security_bits,
            correctness_bits=terms.correctness_bits,
            least_committee=LEAST_COMMITTEE if floored else 1,
        )
        if numbers is not None:
            ring = _ring_order(session, terms.silos)
            committee = frozenset(ring[: numbers.committee])
            return Topology(
                terms.silos, numbers.threshold, numbers.quorum, committee, ring, numbers.degree
            )
        if terms.graph == "sparse":
            raise PlanError(
                "graph",
                terms.graph,
                f"cannot be secure for {terms.silos} silos, {terms.dropouts} drop-outs and "
                f"{terms.colluding} colluders",
                'Use graph = "auto".',
            )
    return Topology(terms.silos, terms.threshold, terms.threshold, everyone, None, terms.silos - 1)
