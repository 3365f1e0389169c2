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

Limbs = npt.NDArray[np.int64]


@compiled
def _carry(value: Limbs) -> None:
    """Bring limbs back to about 32 bits without changing the residue."""
    carry = np.int64(0)
    for limb in range(_LIMBS):
        total = value[limb] + carry
        value[limb] = total & _LIMB_MASK
        carry = total >> 32
    value[0] += carry * _FOLD


@compiled
def _canonical(value: Limbs) -> None:
    """The representative in [0, p)."""
    for _ in range(3):
        _carry(value)
    at_least_p = value[0] >= _LIMB_MASK + 1 - _FOLD
    for limb in range(1, _LIMBS):
        at_least_p = at_least_p and value[limb] == _LIMB_MASK
    if at_least_p:
        value[0] -= _LIMB_MASK + 1 - _FOLD
        value[1:] = 0


@compiled
def _extrapolate(
    secrets: npt.NDArray[np.uint32], pads: npt.NDArray[np.uint32], threshold: int
) -> npt.NDArray[np.uint32]:
    """Corrections [secret, holder − threshold, limb] from secrets [secret, limb] and pads [holder,
    secret, limb].
    """
    holders, count, _ = pads.shape
    out = np.empty((count, holders - threshold + 1, _LIMBS), dtype=np.uint32)
    row = np.empty((threshold, _LIMBS), dtype=np.int64)
    share = np.empty(_LIMBS, dtype=np.int64)
    for secret in range(count):
        row[0] = secrets[secret]
        for point in range(1, threshold):
            row[point] = pads[point - 1, secret]
        # afterwards row[t − 1 − k] is the k-th backward difference at t − 1
        for level in range(1, threshold):
            for place in range(threshold - level):
                for limb in range(_LIMBS):
                    row[place, limb] = row[place + 1, limb] - row[place, limb]
            if level % _LEVELS == 0:
                for place in range(threshold):
                    _carry(row[place])
        for extra in range(holders - threshold + 1):
            for place in range(1, threshold):
                for limb in range(_LIMBS):
                    row[place, limb] += row[place - 1, limb]
                _carry(row[place])
            for limb in range(_LIMBS):
                share[limb] = row[threshold - 1, limb] - np.int64(
                    pads[threshold - 1 + extra, secret, limb]
                )
            _canonical(share)
            for limb in range(_LIMBS):
                out[secret, extra, limb] = share[limb]
    return out


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
    shape = (len(secrets), _LIMBS)
    values = np.frombuffer(b"".join(secrets), dtype="<u4").reshape(shape)
    streams = np.frombuffer(b"".join(pads), dtype="<u4").reshape(len(pads), *shape)
    result: bytes = (
        _extrapolate(values.astype(np.uint32), streams.astype(np.uint32), threshold)
        .astype("<u4")
        .tobytes()
    )
    return result


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
