"""The messages before the first round: greeting and keys; and the refusal, which may answer any
message.

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

__all__ = [
    "NONCE_BYTES",
    "Greeting",
    "KeyAdvert",
    "KeyDirectory",
    "Ready",
    "Refusal",
    "Welcome",
    "request_digest",
]

NONCE_BYTES = 32
_LONGEST_VERSION = 40
_LONGEST_REASON = 600


def request_digest(request: bytes) -> bytes:
    """What a reply calls the message that it answers."""
    return hashlib.sha256(request).digest()


@final
@dataclass(frozen=True, kw_only=True)
class KeyAdvert(Message):
    """Silo → server, once: its X25519 key of this session."""

    kind = 1
    from_server = False
    agreement_key: bytes

    def _body(self) -> Iterable[bytes]:
        return (self.agreement_key,)

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> KeyAdvert:
        return cls(sender=sender, session=session, round_id=round_id, agreement_key=reader.take(32))


@final
@dataclass(frozen=True, kw_only=True)
class KeyDirectory(Message):
    """Server → silo, once: the signed adverts of the silos it will mask with, in order of their
    numbers.
    """

    kind = 2
    from_server = True
    adverts: tuple[bytes, ...]

    def _body(self) -> Iterable[bytes]:
        yield len(self.adverts).to_bytes(2, "little")
        for advert in self.adverts:
            yield size_of(advert)
            yield advert

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> KeyDirectory:
        adverts = tuple(bytes(reader.sized()) for _ in range(reader.number(2)))
        require_ascending([head_of(advert).sender for advert in adverts])
        return cls(sender=sender, session=session, round_id=round_id, adverts=adverts)


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
    """Silo → server: it has accepted the keys of the others.

    Args:
        answers: `request_digest` of the directory.
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
