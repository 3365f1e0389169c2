"""How a server opens a round, from docs/protocol.md ("Byte by byte") alone: plain integers, not a
line of the package. It believes every signature.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Any

from oracles.plain_bytes import Fields, P, mask, u


def unpack(packed: bytes, length: int, bits: int) -> list[int]:
    whole = int.from_bytes(packed, "little")
    return [whole >> bits * place & (1 << bits) - 1 for place in range(length)]


def at_zero(shares: Mapping[int, int]) -> int:
    """f(0) of the polynomial through these points."""
    total = 0
    for i, share in shares.items():
        over, under = 1, 1
        for j in shares:
            if j != i:
                over, under = over * j % P, under * (j - i) % P
        total += share * over * pow(under, -1, P)
    return total % P


def open_round(
    inputs: Mapping[int, bytes],
    revealed: Mapping[int, bytes],
    people: Sequence[int],
    terms: Mapping[str, Any],
) -> tuple[list[int], dict[int, dict[int, bytes]]]:
    """The sum of the survivors, and the removable seeds that were not needed, from the bytes of
    MaskedInput and RevealedShares of every silo that sent one.
    """
    silos, length, bits = terms["silos"], terms["length"], terms["modulus_bits"]
    t, survivors = silos - terms["dropouts"], sorted(inputs)
    dropped = [silo for silo in people if silo not in inputs]
    total = [0] * length
    removed: dict[int, dict[int, bytes]] = {silo: {} for silo in survivors}
    parts = {}
    for silo, message in inputs.items():
        fields = Fields(message[72:-64])
        fields.take(32 + 8)
        parts[silo] = fields.sized(), fields.sized()
        vector = unpack(fields.sized(), length, bits)
        total = [a + b for a, b in zip(total, vector, strict=True)]
    pads: dict[tuple[int, int], dict[int, int]] = {}
    kinds: dict[tuple[int, int], tuple[str, int]] = {}
    for holder, message in revealed.items():
        fields = Fields(message[72:-64])
        fields.take(32)
        shares = Fields(fields.sized())
        for owner in survivors:
            partners = [silo for silo in people if silo != owner]
            opened = [("self", 0, 0)]
            opened += [("pair", 1 + p, v) for p, v in enumerate(partners) if v in dropped]
            first, missing = len(people), silos - len(survivors)
            opened += [("noise", first + j, j) for j in range(missing, terms["removable"])]
            for kind, place, which in opened:
                kinds[owner, place] = kind, which
                pad = int.from_bytes(shares.take(32), "little")
                pads.setdefault((owner, place), {})[people.index(holder) + 1] = pad
        assert shares.at == len(shares.data)
    for (owner, place), given in pads.items():
        kind, which = kinds[owner, place]
        fixed, tags = parts[owner]
        size = len(people) - t + 1
        points = {}
        for point in sorted(given)[:t]:
            at = 32 * (place * size + point - t)
            correction = fixed[at : at + 32] if point >= t else b""
            points[point] = given[point] + int.from_bytes(correction, "little")
        secret = u(at_zero(points), 32)
        tag = hmac.digest(secret, b"sumus seed tag", "sha256")[:16]
        assert tag == tags[16 * place : 16 * place + 16]
        if kind == "noise":
            removed[owner][which] = secret
            continue
        sign = -1 if kind == "self" or owner < which else 1
        words = mask(secret, length, bits)
        total = [a + sign * b for a, b in zip(total, words, strict=True)]
    return [word % (1 << bits) for word in total], removed
