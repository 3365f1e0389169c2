"""Secure aggregation: the sum and nothing else.

Transport-free states for silo and server, a `secure_sum` that runs them all in one process, and the
keys and roster they rest on. Knows nothing of privacy accounting; imports only errors and
randomness. docs/protocol.md has the protocol, its proof and its limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.secagg.guard import FileRoundGuard, MemoryRoundGuard, RoundGuard
    from sumus.secagg.in_process import InProcessFederation
    from sumus.secagg.keys import Roster, SiloIdentity, session_digest
    from sumus.secagg.messages import DroppedSet, Invitation, KeyDirectory, decode_any
    from sumus.secagg.server import (
        RoundSum,
        ServerCertifying,
        ServerCollecting,
        ServerSession,
        ServerSetup,
        ServerUnmasking,
    )
    from sumus.secagg.silo import (
        SiloDone,
        SiloInvited,
        SiloSession,
        SiloSetup,
        SiloSigned,
        SiloSubmitted,
        answer,
    )
    from sumus.secagg.summing import SecureSum, secure_sum
    from sumus.secagg.terms import Terms

__all__ = [
    "DroppedSet",
    "FileRoundGuard",
    "InProcessFederation",
    "Invitation",
    "KeyDirectory",
    "MemoryRoundGuard",
    "Roster",
    "RoundGuard",
    "RoundSum",
    "SecureSum",
    "ServerCertifying",
    "ServerCollecting",
    "ServerSession",
    "ServerSetup",
    "ServerUnmasking",
    "SiloDone",
    "SiloIdentity",
    "SiloInvited",
    "SiloSession",
    "SiloSetup",
    "SiloSigned",
    "SiloSubmitted",
    "Terms",
    "answer",
    "decode_any",
    "secure_sum",
    "session_digest",
]

__getattr__, __dir__ = door(
    __name__,
    guard="FileRoundGuard MemoryRoundGuard RoundGuard",
    in_process="InProcessFederation",
    keys="Roster SiloIdentity session_digest",
    messages="DroppedSet Invitation KeyDirectory decode_any",
    server="RoundSum ServerCertifying ServerCollecting ServerSession ServerSetup ServerUnmasking",
    silo="SiloDone SiloInvited SiloSession SiloSetup SiloSigned SiloSubmitted answer",
    summing="SecureSum secure_sum",
    terms="Terms",
)
