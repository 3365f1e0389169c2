"""The public numbers of a secure sum: what every silo agreed to before the first message.

A server proposes none of them. Each side builds the same `Terms` from its own plan; their digest is
part of every key and every signature, so two parties with different terms cannot even read each
other's messages.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Literal

from sumus.errors import PlanError

__all__ = ["SECURITY_BITS", "SPARSE_FROM", "Graph", "Terms"]

Graph = Literal["auto", "complete", "sparse"]

SPARSE_FROM = 150
"""Number of silos from which `graph = "auto"` masks along a sparse random graph."""

SECURITY_BITS = 40
"""A random sparse graph is insecure with probability at most 2^−this, which guarantees add to δ
(sumus.guarantee.exactness).
"""

_GRAPHS: tuple[Graph, ...] = ("auto", "complete", "sparse")
_MOST_SILOS = 0xFFFE
_MOST_WORDS = 1 << 40


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Everything public that a round of secure aggregation depends on.

    Threshold t = silos − dropouts: so many shares open a secret, so many signatures fix a survivor
    set.

    Guarantee: 2t > silos + colluding (equivalently silos > 2·dropouts + colluding), so no server
        can have two different survivor sets signed, however it splits the silos. A round ends only
        if at least max(t, noise_contributors + colluding) silos are in the sum.

    Args:
        plan_hash: 32 bytes that bind the application's plan.
        silos: N, the length of the roster.
        length: d, words in a vector.
        modulus_bits: the ring is Z_(2^modulus_bits).
        dropouts: silos that may vanish in a round, at any stage.
        colluding: c, silos that may share everything they know with the server.
        noise_contributors: honest silos whose noise the application counts on; fewer survivors are
            refused.
        removable: secret seeds per silo that are opened from the end when fewer silos drop than
            tolerated.
        graph: who masks with whom: "complete", "sparse" (Bell et al. 2020) or "auto".
        security_bits: σ, a random sparse graph is insecure with probability at most 2^−σ.
        correctness_bits: η, tolerated random drop-outs stop a sparse round with probability at most
            2^−η.
    """

    plan_hash: bytes
    silos: int
    length: int
    modulus_bits: int = 32
    dropouts: int = 0
    colluding: int = 0
    noise_contributors: int = 1
    removable: int = 0
    graph: Graph = "auto"
    security_bits: int = SECURITY_BITS
    correctness_bits: int = 30

    def __post_init__(self) -> None:
        if len(self.plan_hash) != 32:
            raise PlanError(
                "plan_hash",
                len(self.plan_hash),
                "must have 32 bytes",
                "Use SHA-256 of the canonical plan.",
            )
        _require_range("silos", self.silos, low=1, high=_MOST_SILOS)
        _require_range("length", self.length, low=1, high=_MOST_WORDS)
        _require_range("modulus_bits", self.modulus_bits, low=1, high=64)
        _require_range("dropouts", self.dropouts, low=0, high=self.silos - 1)
        _require_range("colluding", self.colluding, low=0, high=self.silos - 1)
        _require_range("noise_contributors", self.noise_contributors, low=1, high=self.silos)
        _require_range("removable", self.removable, low=0, high=self.dropouts)
        _require_range("security_bits", self.security_bits, low=1, high=256)
        _require_range("correctness_bits", self.correctness_bits, low=1, high=256)
        if self.graph not in _GRAPHS:
            raise PlanError(
                "graph", self.graph, f"must be one of {', '.join(_GRAPHS)}", 'Use "auto".'
            )
        if self.silos <= 2 * self.dropouts + self.colluding:
            raise PlanError(
                "dropouts",
                self.dropouts,
                f"must satisfy silos > 2·dropouts + colluding (silos = {self.silos}, colluding = "
                f"{self.colluding})",
                f"With these, at most {max((self.silos - self.colluding - 1) // 2, 0)} drop-outs "
                "can be tolerated.",
            )
        if self.silos - self.dropouts < self.noise_contributors + self.colluding:
            raise PlanError(
                "noise_contributors",
                self.noise_contributors,
                "must not exceed silos − dropouts − colluding",
                f"Count on {self.silos - self.dropouts - self.colluding} at most, or tolerate "
                "fewer drop-outs.",
            )

    @property
    def threshold(self) -> int:
        """t on the complete graph: shares that open a secret and signatures that fix a set."""
        return self.silos - self.dropouts

    @property
    def minimum_survivors(self) -> int:
        """The least number of inputs that a sum may consist of."""
        return max(self.threshold, self.noise_contributors + self.colluding)

    @property
    def sparse(self) -> bool:
        """Whether silos mask only with neighbours on a random graph."""
        return self.graph == "sparse" or (self.graph == "auto" and self.silos >= SPARSE_FROM)

    def digest(self) -> bytes:
        """SHA-256 of a canonical encoding of all fields."""
        numbers = struct.pack(
            "<11Q",
            self.silos,
            self.length,
            self.modulus_bits,
            self.dropouts,
            self.colluding,
            self.noise_contributors,
            self.removable,
            _GRAPHS.index(self.graph),
            self.security_bits,
            self.correctness_bits,
            self.threshold,
        )
        return hashlib.sha256(b"sumus terms 1" + self.plan_hash + numbers).digest()


def _require_range(field: str, value: int, *, low: int, high: int) -> None:
    """Refuse an integer outside [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise PlanError(
            field,
            value,
            f"must be an integer from {low} to {high}",
            f"Choose a {field} in that range.",
        )
