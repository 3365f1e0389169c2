"""Secure aggregation: the sum and nothing else.

Transport-free states for silo and server, a `secure_sum` that runs them all in one process, and the keys and roster they
rest on. Knows nothing of privacy accounting; imports only errors and randomness. docs/protocol.md has the protocol, its
proof and its limits.
"""

from sumus.secagg.guard import FileRoundGuard, MemoryRoundGuard, RoundGuard
from sumus.secagg.in_process import InProcessFederation
from sumus.secagg.keys import Roster, SiloIdentity
from sumus.secagg.secure_sum import SecureSum, secure_sum
from sumus.secagg.server import RoundSum, ServerCertifying, ServerCollecting, ServerSession, ServerSetup, ServerUnmasking
from sumus.secagg.silo import SiloDone, SiloInvited, SiloSession, SiloSetup, SiloSigned, SiloSubmitted, answer
from sumus.secagg.terms import Terms

__all__ = [
    "FileRoundGuard",
    "InProcessFederation",
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
    "secure_sum",
]
