"""Opens the survivors' secrets from what their holders revealed, although some of them lie, and says
who disagrees with whom.

Of one secret of owner u with threshold t, m holders gave a pad; with u's corrections that makes m
points, which lie on one polynomial f of degree below t if u and all of them are honest, and u's tag
tells f(0). u and holder v *disagree* if v's point is not on f. Pads are derived from a key that only
u and v have, so a disagreement proves that one of the two lied and not which. Let at most c silos
lie.

Theorem.
1. The secret is opened if t points are right and at most (m − t)/2 are wrong; and for whatever number
   of wrong ones while the sets of t holders are few enough to be tried.
2. Two honest silos never disagree. Hence a silo that disagrees with more than c others is a liar.
3. If nothing fits the tag although m ≥ t + 2c, or m ≥ t + c and all sets of t were tried, u is a liar.
Proof. 1: the only polynomial of degree below t that fits all but (m − t)/2 points is f, and decoding
    finds it; a set of t right points gives f, and its tag fits. 2: disagreements are noted only for a
    polynomial g with g(0) = f(0) on which at least t − 1 + c holders agree (one that fits the tag
    alone will not do: two liars can shift f and leave f(0) where it is). At least t − 1 of these are
    honest; if u is honest their points are on f, and with 0 there are t points on both, so g = f, on
    which every honest holder is. 3: at least m − c points are right if u is honest; they determine f
    in the one case by decoding, since c ≤ (m − t)/2, in the other because t of them are a set that was
    tried. ∎

More liars than m − t can keep a secret closed; silos that just stay away can do no less. Work is
bounded: per secret one interpolation and one check if everything is right, two decodings if not, and
a number of sets that is shared by all secrets of the round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb
from typing import Any, final

from sumus.errors import PeerProtocolError, RoundAborted
from sumus.secagg.decoding import (
    Polynomial,
    decode_shares,
    interpolate,
    parity_weights,
    value_at,
    weighted,
)
from sumus.secagg.graph import Topology
from sumus.secagg.schedule import TAG_BYTES, expand, seed_tag
from sumus.secagg.sharing import ELEMENT_BYTES, FIELD_PRIME, recover_shares, shares_of

__all__ = ["Disagreements", "Recovery", "Sealed", "UnopenedError", "pads_by_owner"]

MOST_SETS = 4096
"""Sets of t holders that are tried in one round after decoding failed, for all secrets together."""


@final
@dataclass(frozen=True, kw_only=True)
class Disagreements:
    """Who disagreed with whom in one round.

    Args:
        pairs: (owner, holder): one of the two lied; an owner that disagrees with its own share did.
        liars: owners that are liars by themselves: nothing that was revealed fits their own tag.
        unopened: owners whose secrets stayed closed although nobody is proved to have lied.
    """

    pairs: frozenset[tuple[int, int]] = frozenset()
    liars: frozenset[int] = frozenset()
    unopened: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.pairs or self.liars or self.unopened)

    @property
    def owners(self) -> frozenset[int]:
        """Silos about whose secrets there was a disagreement."""
        return frozenset(owner for owner, _ in self.pairs) | self.liars | self.unopened


class UnopenedError(RoundAborted):
    """A survivor's secrets cannot be opened, so its masks stay on the sum."""

    def __init__(
        self, message: str, disagreements: Disagreements, accusation: Mapping[str, Any]
    ) -> None:
        super().__init__(message)
        self.disagreements, self.accusation = disagreements, accusation


@final
@dataclass(frozen=True, eq=False)
class Sealed:
    """One survivor's salt, corrections and tags, kept until its secrets are opened.

    Args:
        signed: the message they came in, without its vector, as evidence.
    """

    salt: bytes
    corrections: bytes
    tags: bytes
    signed: bytes = b""


def pads_by_owner(
    topology: Topology, counts: Mapping[int, int], silo: int, shares: bytes | memoryview
) -> list[tuple[int, bytes]]:
    """What a silo revealed, owner by owner.

    Args:
        counts: of every survivor, how many of its secrets are opened.
    """
    owners = topology.holders(silo, frozenset(counts))
    if len(shares) != sum(counts[owner] for owner in owners) * ELEMENT_BYTES:
        raise PeerProtocolError(
            f"silo {silo} revealed the wrong number of shares. It runs another plan or release."
        )
    pads, start = [], 0
    for owner in owners:
        end = start + counts[owner] * ELEMENT_BYTES
        pads.append((owner, bytes(shares[start:end])))
        start = end
    return pads


@final
class Recovery:
    """The secrets of one round.

    Args:
        threshold: t.
        liars: c, silos that may lie; at least 1, since a plan that counts on none may still meet one.
        sets: sets of t holders that may be tried in all.
    """

    def __init__(self, *, threshold: int, liars: int, sets: int = MOST_SETS) -> None:
        self._threshold, self._most_liars, self._sets = threshold, max(1, liars), sets
        self._pairs: set[tuple[int, int]] = set()
        self._liars: set[int] = set()
        self._unopened: set[int] = set()
        self._weights: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._key = b""

    @property
    def disagreements(self) -> Disagreements:
        """All that was noticed so far."""
        return Disagreements(
            pairs=frozenset(self._pairs),
            liars=frozenset(self._liars),
            unopened=frozenset(self._unopened),
        )

    def bind(self, revealed: Iterable[bytes]) -> None:
        """Derive the random parity checks from everything that was revealed, so that no holder could
        know them beforehand.
        """
        digest = hashlib.sha256(b"sumus parity checks")
        for part in revealed:
            digest.update(part)
        self._key, self._weights = digest.digest(), {}

    def open(
        self,
        owner: int,
        holders: Sequence[int],
        pads: Mapping[int, bytes],
        *,
        sealed: Sealed,
        opened: Sequence[int],
    ) -> dict[int, bytes] | None:
        """The opened seeds of a survivor by index, each fitting its tag; None if one of them stays
        closed.

        Args:
            owner: the survivor.
            holders: of its shares, in order; position + 1 is the share's point.
            pads: what each of at least t holders revealed, 32 bytes per opened secret.
            sealed: what came with the owner's input.
            opened: indices of the secrets, in the order of the pads.
        """
        points = {holder: place + 1 for place, holder in enumerate(holders)}
        size = (len(holders) - self._threshold + 1) * ELEMENT_BYTES
        seeds: dict[int, bytes] = {}
        for place, index in enumerate(opened):
            part = slice(place * ELEMENT_BYTES, (place + 1) * ELEMENT_BYTES)
            helpers = self._least_suspect_first(owner, pads)
            shares = shares_of(
                {points[helper]: pads[helper][part] for helper in helpers},
                sealed.corrections[index * size : (index + 1) * size],
                threshold=self._threshold,
            )
            tag = sealed.tags[index * TAG_BYTES : (index + 1) * TAG_BYTES]
            seed = self._secret(owner, shares, tag, dict(zip(shares, helpers, strict=True)))
            if seed is None:
                return None
            seeds[index] = seed
        return seeds

    def _least_suspect_first(self, owner: int, pads: Mapping[int, bytes]) -> list[int]:
        """Helpers in the order in which they are believed; those that disagreed with this owner
        already are left out where enough others are there.
        """
        known = [helper for helper in pads if (owner, helper) in self._pairs]
        doubted = {holder for _, holder in self._pairs}
        others = sorted(set(pads) - set(known), key=lambda helper: (helper in doubted, helper))
        enough = len(others) >= self._threshold + self._most_liars
        return others if enough else [*others, *sorted(known)]

    def _secret(
        self, owner: int, shares: Mapping[int, int], tag: bytes, holder_at: Mapping[int, int]
    ) -> bytes | None:
        points, values = tuple(shares), tuple(shares.values())
        first = recover_shares(points[: self._threshold], values)
        if seed_tag(first) == tag and self._all_on_one(points, values):
            return first
        fitting = (
            points[: self._threshold]
            if seed_tag(first) == tag
            else self._search(shares, tag, owner)
        )
        if fitting is None:
            return None
        self._note(owner, shares, self._agreed(shares, fitting), holder_at)
        return recover_shares(fitting, [shares[point] for point in fitting])

    def _all_on_one(self, points: tuple[int, ...], values: tuple[int, ...]) -> bool:
        """Whether all values are on one polynomial of degree below t, but for probability 1/p."""
        spare = len(points) - self._threshold
        if spare == 0:
            return True
        if points not in self._weights:
            # any two checks have coefficients of their own
            label = b",".join(b"%d" % point for point in points)
            coefficients = [
                int.from_bytes(expand(self._key, b"%d:" % place + label), "little")
                for place in range(spare)
            ]
            self._weights[points] = parity_weights(points, coefficients)
        return weighted(self._weights[points], values) == 0

    def _search(self, shares: Mapping[int, int], tag: bytes, owner: int) -> tuple[int, ...] | None:
        """t points that fit the tag; None if there are none, or too many sets to try them."""
        points, spare = tuple(shares), len(shares) - self._threshold
        decoded = decode_shares(points, list(shares.values()), threshold=self._threshold)
        if decoded is not None and seed_tag(_as_bytes(value_at(decoded, 0))) == tag:
            on_it = [point for point in points if value_at(decoded, point) == shares[point]]
            return tuple(on_it[: self._threshold])
        every = comb(len(points), self._threshold)
        whole = every <= self._sets
        for chosen in islice(combinations(points, self._threshold), self._sets):
            self._sets -= 1
            if seed_tag(recover_shares(chosen, [shares[point] for point in chosen])) == tag:
                return chosen
        proved = spare >= 2 * self._most_liars or (whole and spare >= self._most_liars)
        (self._liars if proved else self._unopened).add(owner)
        return None

    def _agreed(self, shares: Mapping[int, int], fitting: Sequence[int]) -> Polynomial | None:
        """The polynomial through the secret on which so many holders agree that an honest owner's
        is no other.
        """
        through = interpolate(fitting, [shares[point] for point in fitting])
        if self._is_agreed(through, shares):
            return through
        secret = value_at(through, 0)
        decoded = decode_shares([0, *shares], [secret, *shares.values()], threshold=self._threshold)
        right = decoded is not None and value_at(decoded, 0) == secret
        return decoded if right and self._is_agreed(decoded or (), shares) else None

    def _is_agreed(self, polynomial: Polynomial, shares: Mapping[int, int]) -> bool:
        agreeing = sum(value_at(polynomial, point) == value for point, value in shares.items())
        return agreeing >= self._threshold - 1 + self._most_liars

    def _note(
        self,
        owner: int,
        shares: Mapping[int, int],
        agreed: Polynomial | None,
        holder_at: Mapping[int, int],
    ) -> None:
        if agreed is None:
            return
        self._pairs.update(
            (owner, holder_at[point])
            for point, value in shares.items()
            if value_at(agreed, point) != value
        )


def _as_bytes(element: int) -> bytes:
    return (element % FIELD_PRIME).to_bytes(ELEMENT_BYTES, "little")
