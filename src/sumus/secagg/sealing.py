"""Bytes under a passphrase: what is on the disk says nothing by itself, and shows every change.

salt | nonce | ciphertext and tag        16, 12, and 16 bytes more than the content

key = scrypt(passphrase, salt; N = 2¹⁶, r = 8, p = 1), ciphertext = ChaCha20-Poly1305(key, nonce;
content), with whatever the content belongs to as associated data
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from sumus.randomness import RandomSource

__all__ = ["OVERHEAD", "seal", "unseal"]

_SALT_BYTES, _NONCE_BYTES = 16, 12
_COST = 1 << 16
OVERHEAD = _SALT_BYTES + _NONCE_BYTES + 16
"""Bytes that a sealed content has more than the content."""


def seal(passphrase: bytes, content: bytes, *, bound: bytes) -> bytes:
    """The content as only the passphrase opens it.

    Args:
        bound: what the content belongs to; whoever opens it must name the same.
    """
    drawn = RandomSource().bytes(_SALT_BYTES + _NONCE_BYTES)
    salt, nonce = drawn[:_SALT_BYTES], drawn[_SALT_BYTES:]
    return drawn + ChaCha20Poly1305(_key(passphrase, salt)).encrypt(nonce, content, bound)


def unseal(passphrase: bytes, sealed: bytes, *, bound: bytes) -> bytes | None:
    """The content; None if the passphrase is another one, or anything was changed."""
    if len(sealed) < OVERHEAD:
        return None
    salt, nonce = sealed[:_SALT_BYTES], sealed[_SALT_BYTES : _SALT_BYTES + _NONCE_BYTES]
    try:
        return ChaCha20Poly1305(_key(passphrase, salt)).decrypt(
            nonce, sealed[_SALT_BYTES + _NONCE_BYTES :], bound
        )
    except InvalidTag:
        return None


def _key(passphrase: bytes, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=32, n=_COST, r=8, p=1).derive(passphrase)
