"""Every error Sumus raises, as one tree.

    SumusError
    ├── PlanError             a public number is wrong: names field, value, rule and fix      (exit 2)
    ├── DataError             a data set is missing, malformed or outside its declared bounds (exit 2)
    ├── GuaranteeError        a privacy guarantee cannot be certified                         (exit 3)
    │   └── PolicyError       ... or exceeds what this silo's own policy allows               (exit 3)
    ├── ProtocolError         secure aggregation stopped; the round is lost, nothing else     (exit 4)
    │   ├── LocalProtocolError    our side was driven in an order the state does not allow
    │   ├── PeerProtocolError     the other side sent bytes or claims that cannot be accepted
    │   └── RoundAborted          too few silos are left to finish the round safely
    ├── StorageError          a checkpoint, record or ledger cannot be read or written        (exit 5)
    │   └── AccessError       ... because it is closed to this user, or open to another       (exit 7)
    └── EngineError           a distributed engine is missing, unreachable or misconfigured   (exit 6)

A message is one line: what was given, the rule it breaks, and what to do.
"""

from __future__ import annotations

import re

__all__ = [
    "AccessError",
    "DataError",
    "EngineError",
    "GuaranteeError",
    "LocalProtocolError",
    "PeerProtocolError",
    "PlanError",
    "PolicyError",
    "ProtocolError",
    "RoundAborted",
    "StorageError",
    "SumusError",
    "dotted",
]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dotted(*names: str) -> str:
    """A key as TOML spells it, names that are not bare ones in quotes: data.bounds."Age (years)".

    Args:
        names: the last may be anything, those before it are keys already.
    """
    *path, last = names
    if not _BARE.fullmatch(last):
        escaped = last.replace("\\", r"\\").replace('"', r"\"")
        last = "".join(c if c.isprintable() else rf"\U{ord(c):08x}" for c in escaped)
        last = f'"{last}"'
    return ".".join([*path, last])


class SumusError(Exception):
    """Base of every error that Sumus raises on purpose."""

    exit_code = 1


class PlanError(SumusError):
    """A public number of the plan (or of a function call) breaks its rule."""

    exit_code = 2

    def __init__(self, field: str, value: object, rule: str, fix: str) -> None:
        self.field, self.value, self.rule, self.fix = field, value, rule, fix
        shown = repr(value)
        got = f", got {shown if len(shown) <= 200 else shown[:199] + '…'}"
        # where nothing was given the rule says what is missing
        super().__init__(f"{field} {rule}{'' if value is None else got}. {fix}")


class DataError(SumusError):
    """A data set is missing, malformed or outside its declared public bounds."""

    exit_code = 2


class GuaranteeError(SumusError):
    """A guarantee cannot be certified, so nothing is released."""

    exit_code = 3


class PolicyError(GuaranteeError):
    """The silo's own policy forbids what it was asked to do."""


class ProtocolError(SumusError):
    """Secure aggregation stopped. The round is lost; inputs and keys are not."""

    exit_code = 4


class LocalProtocolError(ProtocolError):
    """Our own side called a state in a way it does not allow."""


class PeerProtocolError(ProtocolError):
    """The other side sent something that a correct peer never sends."""


class RoundAborted(ProtocolError):  # noqa: N818 - says what happened to the round
    """Too few silos remain to finish this round with the promised noise and threshold."""


class StorageError(SumusError):
    """A file of ours cannot be read, written or trusted."""

    exit_code = 5


class AccessError(StorageError):
    """A file of ours is closed to the user of this process, or open to somebody it must not be."""

    exit_code = 7


class EngineError(SumusError):
    """A distributed engine is missing, unreachable or misconfigured."""

    exit_code = 6
