"""ML-KEM-768 (FIPS 203) where the installed `cryptography` has it.

A pair of silos that both advertise such a key mixes its secret into the pair root, so that whoever
records everything and one day breaks X25519 still opens nothing. Where the library is too old, or
was built without it, a silo advertises no such key and its pairs rest on X25519 alone.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm

from sumus.errors import PeerProtocolError

try:
    from cryptography.hazmat.primitives.asymmetric import mlkem as _mlkem
except ImportError:  # cryptography before 47
    _mlkem: Any = None  # type: ignore[no-redef]

__all__ = [
    "CIPHERTEXT_BYTES",
    "KEM_KEY_BYTES",
    "KEM_SEED_BYTES",
    "decapsulate",
    "encapsulate",
    "has_kem",
    "public_of",
    "refuse_malformed",
]

KEM_KEY_BYTES = 1184
KEM_SEED_BYTES = 64
CIPHERTEXT_BYTES = 1088
_MODULUS = 3329
_COEFFICIENT_BYTES = KEM_KEY_BYTES - 32  # three polynomials of 256 coefficients, 12 bits each


@cache
def has_kem() -> bool:
    """Whether this installation can make and use ML-KEM-768 keys."""
    if _mlkem is None:
        return False
    try:
        _mlkem.MLKEM768PrivateKey.from_seed_bytes(bytes(KEM_SEED_BYTES))
    except UnsupportedAlgorithm:
        return False
    return True


def public_of(seed: bytes) -> bytes:
    """The public key of the private key that 64 random bytes expand to."""
    return bytes(_mlkem.MLKEM768PrivateKey.from_seed_bytes(seed).public_key().public_bytes_raw())


def encapsulate(public: bytes, *, owner: str) -> tuple[bytes, bytes]:
    """(shared secret, ciphertext) for whoever holds the private half; `owner` names it should its
    key be refused.
    """
    refuse_malformed(public, owner=owner)
    shared, ciphertext = _mlkem.MLKEM768PublicKey.from_public_bytes(public).encapsulate()
    return bytes(shared), bytes(ciphertext)


def decapsulate(seed: bytes, ciphertext: bytes) -> bytes:
    """The shared secret of a ciphertext; of one that was tampered with, another secret that nobody
    knows (FIPS 203, implicit rejection).
    """
    return bytes(_mlkem.MLKEM768PrivateKey.from_seed_bytes(seed).decapsulate(ciphertext))


def refuse_malformed(public: bytes, *, owner: str) -> None:
    """Refuse a key that no library would encapsulate to; needs no ML-KEM itself (FIPS 203, section
    7.2: length and modulus).
    """
    if len(public) == KEM_KEY_BYTES:
        low, middle, high = (
            np.frombuffer(public, dtype=np.uint8, count=_COEFFICIENT_BYTES)
            .reshape(-1, 3)
            .astype(np.int32)
            .T
        )
        if max((low | (middle & 15) << 8).max(), (middle >> 4 | high << 4).max()) < _MODULUS:
            return
    raise PeerProtocolError(
        f"the ML-KEM-768 key of {owner} is malformed: nobody could encapsulate to it. Leave it out."
    )
