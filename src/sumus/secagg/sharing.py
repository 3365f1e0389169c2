"""Shamir's secret sharing with shares that need not be sent.

The first t − 1 shares of a Shamir polynomial may be chosen freely. Here owner and holder both
derive a *pad* σ_i from their pair key; f is the polynomial of degree t − 1 with

    f(0) = secret,   f(i) = σ_i   for holders i = 1 … t − 1,

and for the other holders i = t … h the owner publishes the *correction* c_i = f(i) − σ_i. Holder i
helps by revealing σ_i; with c_i that is the share f(i), and any t shares determine the secret.

Guarantee: if the pads are uniform and independent, all corrections and any t − 1 pads together are
    independent of the secret: t − 1 shares of a random polynomial say nothing about f(0), and a
    correction whose pad is unknown is uniform. With derived pads that holds up to the security of
    HKDF and AES. Nothing has to reach a holder before it can help, so no server can withhold a
    share, and a holder needs no memory of the round.

The corrections extrapolate f from the consecutive points 0 … t − 1, which takes only additions
(Newton's differences).

Reference: Shamir 1979; field GF(p) with p = 2^256 − 189, the largest prime below 2^256.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from operator import mul

import numpy as np
import numpy.typing as npt

from sumus.errors import LocalProtocolError, PeerProtocolError
from sumus.files import compiled

__all__ = [
    "ELEMENT_BYTES",
    "FIELD_PRIME",
    "corrections",
    "recover",
    "recover_shares",
    "shares_of",
]

FIELD_PRIME = 2**256 - 189
ELEMENT_BYTES = 32

_LIMBS = 8
_LIMB_MASK = (1 << 32) - 1
_FOLD = 189  # 2^256 ≡ 189
# differences between two carry passes; each adds at most one bit to a limb of 32 in a word of 64
_LEVELS = 24
# additions below which Python's integers are done long before the loops are compiled
_FEW_ADDITIONS = 512

Limbs = npt.NDArray[np.int64]


# The loops below take whole arrays and places in them, and allocate nothing: views, allocations and
# assignments of whole rows would be most of the time that compiling them takes.


@compiled
def _carry(rows: Limbs, place: int) -> None:
    """Bring the limbs of one row back to about 32 bits without changing the residue."""
    carry = np.int64(0)
    for limb in range(_LIMBS):
        total = rows[place, limb] + carry
        rows[place, limb] = total & _LIMB_MASK
        carry = total >> 32
    rows[place, 0] += carry * _FOLD


@compiled
def _canonical(rows: Limbs, place: int) -> None:
    """Turn one row into the representative in [0, p)."""
    for _ in range(3):
        _carry(rows, place)
    at_least_p = rows[place, 0] >= _LIMB_MASK + 1 - _FOLD
    for limb in range(1, _LIMBS):
        at_least_p = at_least_p and rows[place, limb] == _LIMB_MASK
    if at_least_p:
        rows[place, 0] -= _LIMB_MASK + 1 - _FOLD
        for limb in range(1, _LIMBS):
            rows[place, limb] = 0


@compiled
def _extrapolate(
    secrets: npt.NDArray[np.uint32],
    pads: npt.NDArray[np.uint32],
    threshold: int,
    row: Limbs,
    out: npt.NDArray[np.uint32],
) -> None:
    """Corrections [secret, holder − threshold, limb] from secrets [secret, limb] and pads [holder,
    secret, limb]; `row` is room for threshold + 1 values.
    """
    for secret in range(len(secrets)):
        for limb in range(_LIMBS):
            row[0, limb] = secrets[secret, limb]
            for point in range(1, threshold):
                row[point, limb] = pads[point - 1, secret, limb]
        # afterwards row[t − 1 − k] is the k-th backward difference at t − 1
        for level in range(1, threshold):
            for place in range(threshold - level):
                for limb in range(_LIMBS):
                    row[place, limb] = row[place + 1, limb] - row[place, limb]
            if level % _LEVELS == 0:
                for place in range(threshold):
                    _carry(row, place)
        for extra in range(len(pads) - threshold + 1):
            for place in range(1, threshold):
                for limb in range(_LIMBS):
                    row[place, limb] += row[place - 1, limb]
                _carry(row, place)
            for limb in range(_LIMBS):
                row[threshold, limb] = row[threshold - 1, limb] - np.int64(
                    pads[threshold - 1 + extra, secret, limb]
                )
            _canonical(row, threshold)
            for limb in range(_LIMBS):
                out[secret, extra, limb] = row[threshold, limb]


def _by_loops(secrets: Sequence[bytes], pads: Sequence[bytes], threshold: int) -> bytes:
    """The corrections, by the compiled loops."""
    shape = (len(secrets), _LIMBS)
    values = np.frombuffer(b"".join(secrets), dtype="<u4").reshape(shape)
    streams = np.frombuffer(b"".join(pads), dtype="<u4").reshape(len(pads), *shape)
    out = np.empty((len(secrets), len(pads) - threshold + 1, _LIMBS), dtype=np.uint32)
    row = np.empty((threshold + 1, _LIMBS), dtype=np.int64)
    _extrapolate(values.astype(np.uint32), streams.astype(np.uint32), threshold, row, out)
    return out.astype("<u4").tobytes()


def _by_integers(secrets: Sequence[bytes], pads: Sequence[bytes], threshold: int) -> bytes:
    """The same in Python's integers, so that a federation of few silos waits for no compiler."""
    out = bytearray()
    for secret, value in enumerate(secrets):
        place = slice(ELEMENT_BYTES * secret, ELEMENT_BYTES * (secret + 1))
        points = [int.from_bytes(pad[place], "little") for pad in pads]
        row = [int.from_bytes(value, "little"), *points[: threshold - 1]]
        for level in range(1, threshold):
            for at in range(threshold - level):
                row[at] = row[at + 1] - row[at]
        for pad in points[threshold - 1 :]:
            for at in range(1, threshold):
                row[at] += row[at - 1]
            out += ((row[-1] - pad) % FIELD_PRIME).to_bytes(ELEMENT_BYTES, "little")
    return bytes(out)


def corrections(secrets: Sequence[bytes], pads: Sequence[bytes], *, threshold: int) -> bytes:
    """Secret by secret, the h − t + 1 corrections that make any t of h pads determine it.

    Args:
        secrets: 32-byte field elements.
        pads: one string per holder, in the holders' order, with 32 bytes per secret.
        threshold: t, from 1 to h.
    """
    if not 1 <= threshold <= len(pads):
        raise LocalProtocolError(
            f"threshold must lie between 1 and the {len(pads)} holders, got {threshold}. Too few "
            "silos are present to share with."
        )
    if len(secrets) * len(pads) * threshold <= _FEW_ADDITIONS:
        return _by_integers(secrets, pads, threshold)
    return _by_loops(secrets, pads, threshold)


@lru_cache(maxsize=4096)
def _weights_at_zero(points: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange weights w with f(0) = Σ w_i f(points_i) for every polynomial of degree below
    len(points).
    """
    weights = []
    for i in points:
        numerator = prod(j for j in points if j != i)
        denominator = prod(j - i for j in points if j != i)
        weights.append(numerator * pow(denominator, -1, FIELD_PRIME) % FIELD_PRIME)
    return tuple(weights)


def shares_of(
    pads: Mapping[int, bytes], own_corrections: bytes, *, threshold: int
) -> dict[int, int]:
    """The share f(i) of every holder that revealed its pad, by its point, as a field element.

    Args:
        pads: 32 bytes by the holder's point 1 … h.
        own_corrections: the h − t + 1 corrections of this secret.
        threshold: t.
    """
    shares = {}
    for point, pad in pads.items():
        start = (point - threshold) * ELEMENT_BYTES
        correction = own_corrections[start : start + ELEMENT_BYTES] if point >= threshold else b""
        share = int.from_bytes(pad, "little") + int.from_bytes(correction, "little")
        shares[point] = share % FIELD_PRIME
    return shares


def recover_shares(points: tuple[int, ...], shares: Sequence[int]) -> bytes:
    """The secret from the shares at t points; further shares are not looked at."""
    secret: int = sum(map(mul, _weights_at_zero(points), shares)) % FIELD_PRIME
    return secret.to_bytes(ELEMENT_BYTES, "little")


def recover(pads: Mapping[int, bytes], own_corrections: bytes, *, threshold: int) -> bytes:
    """The secret from the pads of t holders.

    Args:
        pads: 32 bytes by the holder's point 1 … h, exactly t of them.
        own_corrections: the h − t + 1 corrections of this secret.
        threshold: t.
    """
    if len(pads) != threshold:
        raise PeerProtocolError(
            f"{len(pads)} pads cannot open a secret with threshold {threshold}. Wait for more "
            "silos."
        )
    shares = shares_of(pads, own_corrections, threshold=threshold)
    return recover_shares(tuple(shares), list(shares.values()))
