"""A silo's memory of what it has committed to, so that a round id never serves two inputs, two
rounds or two survivor sets.

Two masked vectors under one transcript differ by the difference of their inputs; two survivor sets
in one round would open both masks of an input. The protocol therefore asks a `RoundGuard` before
every irrevocable step. The file-backed guard answers only after the claim is on disk, so the
promise outlives a crash between claiming and sending.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from typing import Protocol, final

from sumus.errors import PeerProtocolError, StorageError

__all__ = ["FileRoundGuard", "MemoryRoundGuard", "RoundGuard", "require_same"]


class RoundGuard(Protocol):
    """Remembers one digest per round and step, for ever. Steps are named by one word."""

    def claim(self, round_id: bytes, step: str, digest: bytes) -> None:
        """Bind this step of the round to the digest; raise `PeerProtocolError` if it is bound to
        another one.
        """

    def claimed(self, round_id: bytes, step: str) -> bytes | None:
        """The digest that this step of the round is bound to."""


@final
class MemoryRoundGuard:
    """A guard that forgets when its process ends: for simulations, where the keys end with the
    process too.
    """

    def __init__(self) -> None:
        self._claims: dict[tuple[bytes, str], bytes] = {}

    def claim(self, round_id: bytes, step: str, digest: bytes) -> None:
        """See `RoundGuard.claim`."""
        require_same(
            self._claims.setdefault((round_id, step), digest), digest, round_id=round_id, step=step
        )

    def claimed(self, round_id: bytes, step: str) -> bytes | None:
        """See `RoundGuard.claimed`."""
        return self._claims.get((round_id, step))


@final
class FileRoundGuard:
    """A guard in an append-only file that one process at a time may hold.

    Guarantee: when `claim` returns, the claim is on disk (fsync of file and directory). A line that
        a crash cut short was never acted on and is dropped; any other damage is a `StorageError`,
        because a forgotten claim could be claimed twice.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._claims: dict[tuple[bytes, str], bytes] = {}
        try:
            self._file = path.open("a+b")
            os.chmod(path, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _sync_directory(path.parent)
            self._load()
        except BlockingIOError:
            self._file.close()
            raise StorageError(
                f"the round memory {path} is in use by another process. Stop that process first."
            ) from None
        except OSError as error:
            raise StorageError(
                f"the round memory {path} cannot be opened: {error}. Check the folder and its "
                "owner."
            ) from error

    def _load(self) -> None:
        """Read the claims back and cut off a line that a crash left unfinished."""
        self._file.seek(0)
        content = self._file.read()
        whole = content.rfind(b"\n") + 1
        for number, line in enumerate(content[:whole].splitlines(), start=1):
            fields = line.decode("ascii", "replace").split(" ")
            if len(fields) != 4 or fields[3] != _checksum(fields[:3]):
                self._file.close()
                raise StorageError(
                    f"line {number} of the round memory {self._path} is damaged. Start a new "
                    "session with fresh keys; do not edit it."
                )
            self._claims[bytes.fromhex(fields[0]), fields[1]] = bytes.fromhex(fields[2])
        if whole != len(content):
            self._file.truncate(whole)
            os.fsync(self._file.fileno())

    def claim(self, round_id: bytes, step: str, digest: bytes) -> None:
        """See `RoundGuard.claim`."""
        known = self._claims.get((round_id, step))
        if known is not None:
            require_same(known, digest, round_id=round_id, step=step)
            return
        fields = [round_id.hex(), step, digest.hex()]
        try:
            self._file.write(" ".join([*fields, _checksum(fields)]).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StorageError(
                f"the round memory {self._path} cannot be written: {error}. The round is refused."
            ) from error
        self._claims[round_id, step] = digest

    def claimed(self, round_id: bytes, step: str) -> bytes | None:
        """See `RoundGuard.claimed`."""
        return self._claims.get((round_id, step))

    def close(self) -> None:
        """Let another process take over."""
        self._file.close()


def require_same(known: bytes | None, digest: bytes, *, round_id: bytes, step: str) -> None:
    """A step of a round is bound once; `known` is what it is bound to, None if it is free."""
    if known not in (None, digest):
        raise PeerProtocolError(
            f"round {round_id.hex()[:8]}… already has another {step}. A round id serves one {step} "
            "only; start a new round."
        )


def _checksum(fields: list[str]) -> str:
    """Enough to notice a damaged line."""
    return hashlib.sha256(" ".join(fields).encode()).hexdigest()[:16]


def _sync_directory(folder: Path) -> None:
    """Make the file's name durable too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
