"""The messages whenever keys go round: greeting, adverts, directory, encapsulations; and the
refusal, which may answer any message.

A reply names what it answers (the greeting's nonce, or the hash of the request), so that an old
reply of the same silo says nothing to whoever asks today.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from sumus.errors import PeerProtocolError
from sumus.secagg.envelope import Message, Reader, head_of, require_ascending, size_of
from sumus.secagg.kem import CIPHERTEXT_BYTES, KEM_KEY_BYTES

__all__ = [
    "NONCE_BYTES",
    "CipherTexts",
    "Encapsulation",
    "Encapsulations",
    "Greeting",
    "KeyAdvert",
    "KeyDirectory",
    "Ready",
    "Refusal",
    "Welcome",
    "keys_digest_of",
    "request_digest",
]

NONCE_BYTES = 32
_LONGEST_VERSION = 40
_LONGEST_REASON = 600


def request_digest(request: bytes) -> bytes:
    """What a reply calls the message that it answers."""
    return hashlib.sha256(request).digest()


def keys_digest_of(adverts: Iterable[bytes]) -> bytes:
    """The name of a key set: SHA-256 over all signed adverts, in order of the silos' numbers."""
    digest = hashlib.sha256(b"sumus key set 2")
    for advert in adverts:
        digest.update(size_of(advert) + advert)
    return digest.digest()


@final
@dataclass(frozen=True, kw_only=True)
class KeyAdvert(Message):
    """Silo → server: its fresh public keys, made for this set-up alone.

    Args:
        agreement_key: of X25519.
        kem_key: of ML-KEM-768; empty where the silo has no such library.
    """

    kind = 1
    from_server = False
    agreement_key: bytes
    kem_key: bytes = b""

    def _body(self) -> Iterable[bytes]:
        return (self.agreement_key, size_of(self.kem_key), self.kem_key)

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> KeyAdvert:
        agreement_key, kem_key = reader.take(32), reader.sized()
        if len(kem_key) not in (0, KEM_KEY_BYTES):
            raise PeerProtocolError(
                f"an ML-KEM-768 key has {KEM_KEY_BYTES} bytes or is left out, got {len(kem_key)}. "
                "Refuse the sender."
            )
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            agreement_key=agreement_key,
            kem_key=bytes(kem_key),
        )


@final
@dataclass(frozen=True, kw_only=True)
class KeyDirectory(Message):
    """Server → silo: the signed adverts of the silos it will mask with, in order of their numbers.

    Args:
        keys_digest: the name of the key set, `keys_digest_of` the adverts of all silos.
        adverts: signed `KeyAdvert`s, the silo's own among them.
    """

    kind = 2
    from_server = True
    keys_digest: bytes
    adverts: tuple[bytes, ...]

    def _body(self) -> Iterable[bytes]:
        yield self.keys_digest
        yield from _listed(self.adverts)

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> KeyDirectory:
        keys_digest, adverts = reader.take(32), _read_list(reader)
        require_ascending([head_of(advert).sender for advert in adverts])
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            keys_digest=keys_digest,
            adverts=adverts,
        )


@final
@dataclass(frozen=True, kw_only=True)
class Encapsulation(Message):
    """Silo → silo, by way of the server: a secret under the ML-KEM key of one neighbour.

    Args:
        keys_digest: of the key set.
        recipient: the neighbour, whose number is larger than the sender's.
        ciphertext: which only the recipient can open.
    """

    kind = 13
    from_server = False
    keys_digest: bytes
    recipient: int
    ciphertext: bytes

    def _body(self) -> Iterable[bytes]:
        return (self.keys_digest, self.recipient.to_bytes(2, "little"), self.ciphertext)

    @classmethod
    def _read(
        cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes
    ) -> Encapsulation:
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            keys_digest=reader.take(32),
            recipient=reader.number(2),
            ciphertext=reader.take(CIPHERTEXT_BYTES),
        )


@final
@dataclass(frozen=True, kw_only=True)
class Encapsulations(Message):
    """Silo → server: it has accepted the directory, and encapsulates secrets.

    Args:
        keys_digest: of the key set.
        sealed: one signed `Encapsulation` for every neighbour with a larger number, where both
            adverts have an ML-KEM key; often none.
    """

    kind = 14
    from_server = False
    keys_digest: bytes
    sealed: tuple[bytes, ...]

    def _body(self) -> Iterable[bytes]:
        yield self.keys_digest
        yield from _listed(self.sealed)

    @classmethod
    def _read(
        cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes
    ) -> Encapsulations:
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            keys_digest=reader.take(32),
            sealed=_read_list(reader),
        )


@final
@dataclass(frozen=True, kw_only=True)
class CipherTexts(Message):
    """Server → silo: what the others encapsulated to it, in order of their numbers."""

    kind = 15
    from_server = True
    keys_digest: bytes
    sealed: tuple[bytes, ...]

    def _body(self) -> Iterable[bytes]:
        yield self.keys_digest
        yield from _listed(self.sealed)

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> CipherTexts:
        keys_digest, sealed = reader.take(32), _read_list(reader)
        require_ascending([head_of(each).sender for each in sealed])
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            keys_digest=keys_digest,
            sealed=sealed,
        )


@final
@dataclass(frozen=True, kw_only=True)
class Greeting(Message):
    """Server → silo: what it wants to run, by name only.

    Args:
        nonce: 32 fresh bytes, which the welcome repeats.
        plan_hash: 32 bytes; the silo must hold a plan with this hash.
        version: the server's version of Sumus.
    """

    kind = 9
    from_server = True
    nonce: bytes
    plan_hash: bytes
    version: str

    def _body(self) -> Iterable[bytes]:
        version = self.version.encode()
        return (self.nonce, self.plan_hash, size_of(version), version)

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> Greeting:
        nonce, plan_hash, version = reader.take(NONCE_BYTES), reader.take(32), reader.sized()
        try:
            text = bytes(version[: _LONGEST_VERSION + 1]).decode()
        except UnicodeDecodeError:
            text = ""
        if not 0 < len(version) <= _LONGEST_VERSION or not text.isprintable() or not text:
            raise PeerProtocolError(
                f"the greeting's version must be 1 to {_LONGEST_VERSION} printable bytes, got "
                f"{len(version)} others. Run the same version of Sumus everywhere."
            )
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            nonce=nonce,
            plan_hash=plan_hash,
            version=text,
        )


@final
@dataclass(frozen=True, kw_only=True)
class Welcome(Message):
    """Silo → server: it agrees to the plan and shows its key of the session.

    Args:
        nonce: of the greeting that it answers.
        simulation: admits that the silo's noise comes from a public seed.
        advert: its signed `KeyAdvert`.
    """

    kind = 10
    from_server = False
    nonce: bytes
    simulation: bool
    advert: bytes

    def _body(self) -> Iterable[bytes]:
        return (self.nonce, bytes((self.simulation,)), size_of(self.advert), self.advert)

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> Welcome:
        nonce, simulation = reader.take(NONCE_BYTES), reader.number(1)
        if simulation > 1:
            raise PeerProtocolError(
                "a welcome does not say whether the silo simulates. Run the same version "
                "everywhere."
            )
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            nonce=nonce,
            simulation=bool(simulation),
            advert=bytes(reader.sized()),
        )


@final
@dataclass(frozen=True, kw_only=True)
class Ready(Message):
    """Silo → server: it shares a root with the others.

    Args:
        answers: `request_digest` of the ciphertexts.
    """

    kind = 11
    from_server = False
    answers: bytes

    def _body(self) -> Iterable[bytes]:
        return (self.answers,)

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> Ready:
        return cls(sender=sender, session=session, round_id=round_id, answers=reader.take(32))


@final
@dataclass(frozen=True, kw_only=True)
class Refusal(Message):
    """Silo → server: it will not do what a message asks, and why.

    Args:
        answers: `request_digest` of the message.
        reason: text in UTF-8, at most 600 bytes.
    """

    kind = 12
    from_server = False
    answers: bytes
    reason: bytes

    @classmethod
    def of(
        cls, request: bytes, reason: str, *, sender: int, session: bytes, round_id: bytes
    ) -> Refusal:
        """A refusal of this request, its reason cut to the length that is allowed."""
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            answers=request_digest(request),
            reason=reason.encode(errors="replace")[:_LONGEST_REASON],
        )

    def _body(self) -> Iterable[bytes]:
        return (self.answers, size_of(self.reason), self.reason)

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> Refusal:
        answers, reason = reader.take(32), reader.sized()
        if len(reason) > _LONGEST_REASON:
            raise PeerProtocolError(
                f"a refusal gives {len(reason)} bytes of reasons, the most is {_LONGEST_REASON}. "
                "Run the same version everywhere."
            )
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            answers=answers,
            reason=bytes(reason),
        )


def _listed(messages: tuple[bytes, ...]) -> Iterable[bytes]:
    """Signed messages within a message."""
    yield len(messages).to_bytes(2, "little")
    for message in messages:
        yield size_of(message)
        yield message


def _read_list(reader: Reader) -> tuple[bytes, ...]:
    return tuple(bytes(reader.sized()) for _ in range(reader.number(2)))
