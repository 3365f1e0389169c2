"""A silo that answers with wrong shares, or sends corrections and tags that fit nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from oracles.secagg_federation import Federation, read
from sumus.secagg.messages import MaskedInput, RevealedShares
from sumus.secagg.sharing import ELEMENT_BYTES, FIELD_PRIME


def with_wrong_shares(
    world: Federation, silo: int, reply: bytes, *, about: Collection[int], by: int = 1
) -> bytes:
    """The silo's revealed shares, each of those about some owners moved by `by`; everybody survived,
    so there is one per owner.
    """
    honest = read(reply, RevealedShares)
    owners = world.server.topology.holders(silo, frozenset(range(world.terms.silos)))
    shares = bytearray(honest.shares)
    for place, owner in enumerate(owners):
        if owner in about:
            part = slice(place * ELEMENT_BYTES, (place + 1) * ELEMENT_BYTES)
            moved = int.from_bytes(shares[part], "little") + by
            shares[part] = (moved % FIELD_PRIME).to_bytes(ELEMENT_BYTES, "little")
    return replace(honest, shares=bytes(shares)).encode(world.identities[silo])


def with_wrong_tags(world: Federation, silo: int, message: bytes) -> bytes:
    """The silo's input with tags that none of its secrets fits."""
    honest = read(message, MaskedInput)
    return replace(honest, tags=bytes(byte ^ 1 for byte in honest.tags)).encode(
        world.identities[silo]
    )


def with_wrong_corrections(
    world: Federation, silo: int, message: bytes, *, against: Collection[int]
) -> bytes:
    """The silo's input with corrections that make the right pads of some holders wrong; only holders
    from the threshold on have one.
    """
    honest = read(message, MaskedInput)
    threshold, holders = world.server.topology.threshold, world.terms.silos
    per_secret = holders - threshold + 1
    changed = bytearray(honest.corrections)
    for holder in against:
        place = holder + 1 - threshold
        for secret in range(len(changed) // (per_secret * ELEMENT_BYTES)):
            changed[(secret * per_secret + place) * ELEMENT_BYTES] ^= 1
    return replace(honest, corrections=bytes(changed)).encode(world.identities[silo])
