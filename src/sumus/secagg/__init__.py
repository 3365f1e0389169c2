"""Secure aggregation: the sum and nothing else.

Transport-free states for silo and server, a `secure_sum` that runs them all in one process, and the
keys and roster they rest on. Knows nothing of privacy accounting; imports only errors and
randomness. docs/protocol.md has the protocol, its proof and its limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.secagg.guard import (
        FileRoundGuard as FileRoundGuard,
        MemoryRoundGuard as MemoryRoundGuard,
        RoundGuard as RoundGuard,
    )
    from sumus.secagg.in_process import InProcessFederation as InProcessFederation
    from sumus.secagg.keys import (
        Roster as Roster,
        SiloIdentity as SiloIdentity,
        session_digest as session_digest,
    )
    from sumus.secagg.messages import (
        DroppedSet as DroppedSet,
        Invitation as Invitation,
        KeyDirectory as KeyDirectory,
        SetCertificate as SetCertificate,
        decode_any as decode_any,
    )
    from sumus.secagg.server import (
        RoundSum as RoundSum,
        ServerCertifying as ServerCertifying,
        ServerCollecting as ServerCollecting,
        ServerSession as ServerSession,
        ServerSetup as ServerSetup,
        ServerUnmasking as ServerUnmasking,
    )
    from sumus.secagg.silo import (
        SiloDone as SiloDone,
        SiloInvited as SiloInvited,
        SiloSession as SiloSession,
        SiloSetup as SiloSetup,
        SiloSigned as SiloSigned,
        SiloSubmitted as SiloSubmitted,
        answer as answer,
    )
    from sumus.secagg.summing import SecureSum as SecureSum, secure_sum as secure_sum
    from sumus.secagg.terms import Terms as Terms

__getattr__, __dir__, __all__ = door(
    __name__,
    guard="FileRoundGuard MemoryRoundGuard RoundGuard",
    in_process="InProcessFederation",
    keys="Roster SiloIdentity session_digest",
    messages="DroppedSet Invitation KeyDirectory SetCertificate decode_any",
    server="RoundSum ServerCertifying ServerCollecting ServerSession ServerSetup ServerUnmasking",
    silo="SiloDone SiloInvited SiloSession SiloSetup SiloSigned SiloSubmitted answer",
    summing="SecureSum secure_sum",
    terms="Terms",
)
