"""`secure_sum`: a whole secure aggregation in one call, with drop-outs at will."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, final

import numpy as np
import numpy.typing as npt

from sumus.errors import PlanError
from sumus.randomness import RandomSource
from sumus.secagg.in_process import Drop, InProcessFederation, Traffic, check_drop, vanished
from sumus.secagg.masking import Words
from sumus.secagg.terms import SPARSE_FROM, Graph, Terms

__all__ = ["SecureSum", "default_threshold", "secure_sum", "terms_of"]


@final
@dataclass(frozen=True, eq=False)
class SecureSum:
    """The sum and nothing else.

    Args:
        total: Σ of the survivors' vectors mod 2^modulus_bits, in the smallest unsigned word that
            holds it.
        survivors: indices of the vectors that are in it.
        bytes_up: by silo, what it sent, key set-up included.
        bytes_down: by silo, what was sent to it, key set-up included.
    """

    total: Words
    survivors: frozenset[int]
    bytes_up: Mapping[int, int]
    bytes_down: Mapping[int, int]

    @classmethod
    def of(cls, total: Words, survivors: frozenset[int], traffic: Traffic, *, silos: int) -> Self:
        """A sum with what was sent for it."""
        return cls(
            total,
            survivors,
            bytes_up={silo: traffic.up[silo] for silo in range(silos)},
            bytes_down={silo: traffic.down[silo] for silo in range(silos)},
        )


def default_threshold(silos: int, *, colluding: int = 0) -> int:
    """The threshold that tolerates most: a bare majority up to 149 silos, nine tenths from there on
    (sparse graph).
    """
    majority = (silos + colluding) // 2 + 1
    return majority if silos < SPARSE_FROM else max(majority, silos - silos // 10)


def terms_of(
    vectors: Sequence[npt.ArrayLike],
    *,
    modulus_bits: int = 32,
    threshold: int | None = None,
    colluding: int = 0,
    noise_contributors: int = 1,
    graph: Graph = "auto",
) -> Terms:
    """The terms of a sum that stands alone; arguments as in `secure_sum`."""
    silos = len(vectors)
    if silos == 0:
        raise PlanError(
            "vectors", silos, "must hold at least one vector", "Pass one integer vector per silo."
        )
    if threshold is None:
        threshold = default_threshold(silos, colluding=colluding)
    return Terms(
        plan_hash=hashlib.sha256(b"sumus secure_sum").digest(),
        silos=silos,
        length=np.size(vectors[0]),
        modulus_bits=modulus_bits,
        dropouts=silos - threshold,
        colluding=colluding,
        noise_contributors=noise_contributors,
        graph=graph,
    )


def secure_sum(
    vectors: Sequence[npt.ArrayLike],
    *,
    modulus_bits: int = 32,
    threshold: int | None = None,
    drop: Drop | None = None,
    colluding: int = 0,
    noise_contributors: int = 1,
    graph: Graph = "auto",
    random: RandomSource | None = None,
) -> SecureSum:
    """Add integer vectors mod 2^modulus_bits with the protocol of this package, all parties in this
    process.

    Guarantee: `total` is exactly the modular sum over `survivors`, or a `ProtocolError` is raised;
        with at most len(vectors) − threshold silos vanishing in all, at whatever stages, it is the
        sum (complete graph).

    Args:
        vectors: one integer vector per silo, all of the same length.
        modulus_bits: the ring is Z_(2^modulus_bits), 1 to 64.
        threshold: t with 2t > silos + colluding; by default the one that tolerates most drop-outs.
        drop: by stage ("keys", "shares", "masked", "consistency", "unmask"), the silos that vanish
            before sending at it.
        colluding: silos that may share what they know with the server.
        noise_contributors: honest survivors below which the round is refused.
        graph: "complete", "sparse" or "auto".
        random: source of all keys; by default the operating system.
    """
    terms = terms_of(
        vectors,
        modulus_bits=modulus_bits,
        threshold=threshold,
        colluding=colluding,
        noise_contributors=noise_contributors,
        graph=graph,
    )
    gone, source = drop or {}, random or RandomSource()
    check_drop(gone, terms.silos)
    federation = InProcessFederation(terms, random=source, absent=vanished(gone, "keys"))
    outcome = federation.run_round(source.bytes(32), lambda silo, _: vectors[silo], drop=gone)
    return SecureSum.of(outcome.total, outcome.survivors, federation.traffic, silos=terms.silos)
