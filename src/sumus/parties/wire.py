"""The few messages around the secure sum: a greeting, a welcome, a refusal. Everything else is a
message of `sumus.secagg`.

    server ──HELLO(plan hash, session, version)──► silo ──WELCOME(simulation?, key advert)──► server
    server ──PROTOCOL(key directory)─────────────► silo ──READY────────────────────────────► server
    server ──PROTOCOL(round message)─────────────► silo ──PROTOCOL(round message)──────────► server
                                                        ──REFUSED(reason)──────────────────► server

Where a plan trusts whoever adds up, which only a simulation may, there is no protocol:

    server ──PLAIN(plan hash, round id, model)───► silo ──PLAIN(vector)────────────────────► server

A greeting names what the silo already holds; it carries no plan, path, seed, code or class name,
because a silo takes none from a server.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import final

import numpy as np
import numpy.typing as npt

from sumus.errors import PeerProtocolError

__all__ = [
    "Hello",
    "Kind",
    "Welcome",
    "frame",
    "pack_vector",
    "readable",
    "refusal",
    "unframe",
    "unpack_vector",
]

_LONGEST_REASON = 600
_LONGEST_VERSION = 40


class Kind(IntEnum):
    """The first byte of every message."""

    HELLO = 1
    PROTOCOL = 2
    WELCOME = 3
    READY = 4
    REFUSED = 5
    PLAIN = 6


def frame(kind: Kind, body: bytes = b"") -> bytes:
    """A message as it travels."""
    return bytes((kind,)) + body


def unframe(message: bytes) -> tuple[Kind, bytes]:
    """The inverse of `frame`; refuses what is no message of ours."""
    if not message or message[0] not in Kind._value2member_map_:
        raise PeerProtocolError("a message is of no known kind. Run the same version everywhere.")
    return Kind(message[0]), message[1:]


@final
@dataclass(frozen=True, kw_only=True)
class Hello:
    """What the server wants to run, by name only.

    Args:
        plan_hash: 32 bytes; the silo must hold a plan with this hash.
        session: 32 bytes; digest of terms and roster as the server computes them.
        version: the server's version of Sumus.
    """

    plan_hash: bytes
    session: bytes
    version: str

    def encode(self) -> bytes:
        """The greeting as a framed message."""
        return frame(Kind.HELLO, self.plan_hash + self.session + self.version.encode())

    @classmethod
    def decode(cls, body: bytes) -> Hello:
        """The inverse of `encode`, without the frame."""
        if not 64 < len(body) <= 64 + _LONGEST_VERSION:
            raise PeerProtocolError(
                f"a greeting has {len(body)} bytes, which fits no version. Run the same version "
                "everywhere."
            )
        return cls(plan_hash=body[:32], session=body[32:64], version=readable(body[64:]))


@final
@dataclass(frozen=True)
class Welcome:
    """A silo agrees to the plan and shows its key of the session; `simulation` admits that its
    noise comes from a public seed.
    """

    advert: bytes
    simulation: bool

    def encode(self) -> bytes:
        """The welcome as a framed message."""
        return frame(Kind.WELCOME, bytes((self.simulation,)) + self.advert)

    @classmethod
    def decode(cls, body: bytes) -> Welcome:
        """The inverse of `encode`, without the frame."""
        if not body or body[0] > 1:
            raise PeerProtocolError(
                "a welcome does not say whether the silo simulates. Run the same version "
                "everywhere."
            )
        return cls(body[1:], bool(body[0]))


def refusal(reason: str) -> bytes:
    """A silo's refusal as a framed message."""
    return frame(Kind.REFUSED, reason.encode(errors="replace")[:_LONGEST_REASON])


def pack_vector(vector: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> bytes:
    """A plain vector: whether it is of floats, and its numbers."""
    return bytes((vector.dtype == np.float64,)) + vector.tobytes()


def unpack_vector(body: bytes) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
    """The inverse of `pack_vector`."""
    if body[0]:
        return np.frombuffer(body, dtype=np.float64, offset=1)
    return np.frombuffer(body, dtype=np.int64, offset=1)


def readable(text: bytes) -> str:
    """Text of a peer, cut and stripped of everything that could play tricks with a terminal or a
    log.
    """
    shown = text[:_LONGEST_REASON].decode("utf-8", "replace")
    return "".join(character if character.isprintable() else " " for character in shown)
