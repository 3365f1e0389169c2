"""The key schedule: every secret of a round, and what is forgotten when.

    X25519(u, v) ──HKDF──► classical root ──ML-KEM-768(u, v)──► pair root r_0 ──► r_1 ──► r_2 ──► …
                                                                        │        sequence of the sum
                                 r_sequence ──transcript──► pair key ───┘
                                                               ├─► mask seed s_uv                  (opened if u or v drops out)
                                                               ├─ salt of u ─► pads of u's secrets at v
                                                               └─ salt of v ─► pads of v's secrets at u
    operating system ──► own key of one submission ──┬─► self-mask seed b_u                        (opened if u survives)
                                                     ├─► removable seeds                           (opened if not needed)
                                                     └─► pads of u's secrets at u

Pair roots belong to a *key set*: fresh keys of all silos that were there when they went round. A
root is replaced by its hash after each sum, and HMAC has no inverse, so what a silo keeps opens no
sum before the one in flight. The transcript is a hash of round id, key set, sequence, terms,
roster, participants and payload. Everything below it is therefore new in every round, and opening a
leaf says nothing about its siblings or its root. The salt is eight random bytes that a silo draws
for one submission and sends along: should a silo whose disk was rolled back ever submit twice in
one round, the two self masks differ, and since a holder reveals pads for one salt only,
2t > holders + colluders lets at most one of them be opened.

Reference: HKDF is RFC 5869, ML-KEM FIPS 203; the second secret enters as in the key schedule of TLS
1.3 (RFC 8446, section 7.1). Bonawitz et al. 2017, section 4 for the roles of s_uv and b_u.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sumus.errors import PeerProtocolError
from sumus.secagg.sharing import FIELD_PRIME

__all__ = [
    "SALT_BYTES",
    "TAG_BYTES",
    "OwnKey",
    "PairKey",
    "PublicHalf",
    "agree",
    "expand",
    "keystream",
    "mixed",
    "ratchet",
    "refuse_low_order",
    "seed_tag",
]

SALT_BYTES = 8
TAG_BYTES = 16
_PROBE = X25519PrivateKey.from_private_bytes(bytes(32))  # a public number, no secret


def expand(key: bytes, label: bytes) -> bytes:
    """HKDF-Expand with SHA-256 and a 32-byte output, which is a single HMAC (RFC 5869, section
    2.3).
    """
    return hmac.digest(key, label + b"\x01", "sha256")


def keystream(key: bytes, count: int) -> bytes:
    """`count` bytes of AES-256 in counter mode under a key that is used for nothing else: what GCM
    makes of zeros, without its tag.
    """
    return AESGCM(key).encrypt(bytes(12), bytes(count), None)[:count]


def seed_tag(seed: bytes) -> bytes:
    """16 bytes by which the server recognises a rightly recovered seed; a hash of 256 secret bits
    gives nothing away.
    """
    return hmac.digest(seed, b"sumus seed tag", "sha256")[:TAG_BYTES]


def refuse_low_order(public: bytes, *, owner: str) -> None:
    """Refuse a key with which every shared secret would be zero; for a party that shares none
    itself.

    A private key is a scalar 8k with 2^251 ≤ k < 2^252, which is below the large prime in the order
    of the curve and of its twist: the product is zero for all private keys or for none, so one
    public probe tells (RFC 7748, sections 5 and 6.1).
    """
    _exchange(_PROBE, public, owner=owner)


def _exchange(own: X25519PrivateKey, public: bytes, *, owner: str) -> bytes:
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise PeerProtocolError(
            f"the X25519 key of {owner} has low order: every shared secret would be zero. Leave it "
            "out."
        ) from None


@final
@dataclass(frozen=True)
class PublicHalf:
    """What one silo of a pair shows the other.

    Args:
        number: the silo's place on the roster.
        agreement_key: its X25519 key.
        kem_key: its ML-KEM-768 key; empty if it has none.
    """

    number: int
    agreement_key: bytes
    kem_key: bytes = b""

    @property
    def _encoded(self) -> bytes:
        return (
            self.number.to_bytes(2, "little")
            + self.agreement_key
            + hashlib.sha256(self.kem_key).digest()
        )


def agree(
    own: X25519PrivateKey,
    mine: PublicHalf,
    other: PublicHalf,
    *,
    session: bytes,
    owner: str,
    keys_digest: bytes = b"",
) -> bytes:
    """The root of a pair of silos from X25519; `owner` names the other one should its key be
    refused.

    Guarantee: equal at both ends and unknown to anyone else if both public keys are authentic;
        bound to the session, to the key set, to both silos' numbers and to all their public keys,
        so it cannot be carried into another federation, set-up or pair.
    """
    shared = _exchange(own, other.agreement_key, owner=owner)
    first, second = sorted((mine, other), key=lambda half: half.number)
    info = b"sumus pair root 2" + keys_digest + first._encoded + second._encoded
    return HKDF(algorithm=SHA256(), length=32, salt=session, info=info).derive(shared)


def mixed(root: bytes, kem_secret: bytes, ciphertext: bytes) -> bytes:
    """The root of a pair that also shares a secret by ML-KEM: whoever lacks one of the two knows
    nothing of it.
    """
    info = b"sumus hybrid root 2" + hashlib.sha256(ciphertext).digest()
    return HKDF(algorithm=SHA256(), length=32, salt=root, info=info).derive(kem_secret)


def ratchet(root: bytes) -> bytes:
    """The root of the next sum; the one that it replaces does not follow from it."""
    return expand(root, b"ratchet")


def _field_seed(key: bytes, label: bytes) -> bytes:
    """A seed that is also an element of the sharing field (the two differ with probability
    2^−248).
    """
    return (int.from_bytes(expand(key, label), "little") % FIELD_PRIME).to_bytes(32, "little")


@final
@dataclass(frozen=True, eq=False)
class PairKey:
    """What two silos share in one round; the bytes are kept while the round is in flight."""

    key: bytes = field(repr=False)

    @classmethod
    def derive(cls, pair_root: bytes, transcript: bytes) -> PairKey:
        """The key of this pair in the round with this transcript."""
        return cls(expand(pair_root, b"sumus round" + transcript))

    def mask_seed(self) -> bytes:
        """s_uv, the seed of the mask that one of the two adds and the other subtracts."""
        return _field_seed(self.key, b"mask")

    def pads(self, owner: int, *, salt: bytes, count: int) -> bytes:
        """The pads of `owner`'s first `count` secrets that the other silo of the pair holds, 32
        bytes each.
        """
        return keystream(expand(self.key, b"pads" + owner.to_bytes(2, "little") + salt), 32 * count)


@final
@dataclass(frozen=True, eq=False)
class OwnKey:
    """What one silo shares with nobody: 32 fresh random bytes for one submission."""

    key: bytes = field(repr=False)

    def self_seed(self) -> bytes:
        """b_u, the seed of the mask that only this silo adds."""
        return _field_seed(self.key, b"self mask")

    def removable_seeds(self, count: int) -> tuple[bytes, ...]:
        """Seeds of the noise components that may turn out not to be needed."""
        return tuple(
            _field_seed(self.key, b"removable" + index.to_bytes(2, "little"))
            for index in range(count)
        )

    def pads(self, count: int) -> bytes:
        """The pads of its own first `count` secrets that the silo itself holds, 32 bytes each."""
        return keystream(expand(self.key, b"own pads"), 32 * count)
