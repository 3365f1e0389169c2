"""What travels between a server and a silo: messages of `sumus.secagg`, each signed by its sender.

    server ──Greeting(nonce, plan hash, version)──► silo ──Welcome(nonce, simulation?, advert)──► server
    server ──KeyDirectory─────────────────────────► silo ──Encapsulations─────────────────────► server
    server ──CipherTexts──────────────────────────► silo ──Ready(hash of the ciphertexts)──────► server
    server ──message of a round───────────────────► silo ──message of the round────────────────► server
                                                          ──Refusal(hash of the message, reason)► server

Where a plan trusts whoever adds up, which only a simulation may, there is no protocol; such a
message never leaves its process:

    server ──PLAIN | plan hash | round id | model─► silo ──PLAIN | vector──────────────────────► server

A greeting names what the silo already holds; it carries no plan, path, seed, code or class name,
because a silo takes none from a server.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["PLAIN", "pack_vector", "plain", "plain_body", "readable", "unpack_vector"]

PLAIN = b"PLAIN"
_LONGEST_TEXT = 600


def plain(body: bytes) -> bytes:
    """A message of the sum that everybody trusts."""
    return PLAIN + body


def plain_body(message: bytes) -> bytes | None:
    """The inverse of `plain`; None for a message of the protocol."""
    return message[len(PLAIN) :] if message.startswith(PLAIN) else None


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
    shown = text[:_LONGEST_TEXT].decode("utf-8", "replace")
    return "".join(character if character.isprintable() else " " for character in shown)
