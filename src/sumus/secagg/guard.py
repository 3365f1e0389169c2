"""A silo's memory of what it has committed to, so that a round id never serves two inputs, two
rounds or two survivor sets.

Two masked vectors under one transcript differ by the difference of their inputs; two survivor sets
in one round would open both masks of an input. The protocol therefore asks a `RoundGuard` before
every irrevocable step. The file-backed guard answers only after the claim is on disk, so the
promise outlives a crash between claiming and sending.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, final

from sumus.errors import PeerProtocolError, StorageError
from sumus.files import FORMATS, Chain, FileLock, Link, sync_directory

__all__ = ["FileRoundGuard", "MemoryRoundGuard", "RoundGuard", "claimed_rounds", "require_same"]

# a backup would have forgotten what was claimed since
_FIX = "Start a new session with fresh keys; do not edit it."


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
    """A guard in a hash chain on disk that one process at a time may hold.

    Guarantee: when `claim` returns, the claim is on disk (fsync of file and directory). A line that
        a crash cut short was never acted on and is dropped; any other damage is a `StorageError`,
        because a forgotten claim could be claimed twice.
    """

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(path)
        self._lock.acquire(wait=False)
        try:
            path.chmod(0o600)
            sync_directory(path.parent)
            self._chain = _chain_at(path)
            self._claims = dict(map(_claim_of, self._chain.links))
        except OSError as error:
            self._lock.release()
            raise StorageError(
                f"the round memory {path} cannot be opened: {error}. Check the folder and its "
                "owner."
            ) from error
        except (KeyError, TypeError, ValueError):
            self._lock.release()
            raise StorageError(f"the round memory {path} is damaged. {_FIX}") from None
        except StorageError:
            self._lock.release()
            raise

    def claim(self, round_id: bytes, step: str, digest: bytes) -> None:
        """See `RoundGuard.claim`."""
        known = self._claims.get((round_id, step))
        if known is not None:
            require_same(known, digest, round_id=round_id, step=step)
            return
        self._chain = self._chain.appended(
            "claim", {"round": round_id.hex(), "step": step, "digest": digest.hex()}
        )
        self._claims[round_id, step] = digest

    def claimed(self, round_id: bytes, step: str) -> bytes | None:
        """See `RoundGuard.claimed`."""
        return self._claims.get((round_id, step))

    def close(self) -> None:
        """Let another process take over."""
        self._lock.release()


def claimed_rounds(path: Path) -> frozenset[bytes]:
    """The rounds that a guard's file knows, whoever holds it: nothing is claimed and nothing is
    locked.
    """
    try:
        links = _chain_at(path).links
        return frozenset(_claim_of(link)[0][0] for link in links)
    except (KeyError, TypeError, ValueError):
        raise StorageError(f"the round memory {path} is damaged. {_FIX}") from None


def _chain_at(path: Path) -> Chain:
    return Chain.of(FORMATS["round memory"], path, fix=_FIX).refreshed()


def require_same(known: bytes | None, digest: bytes, *, round_id: bytes, step: str) -> None:
    """A step of a round is bound once; `known` is what it is bound to, None if it is free."""
    if known not in (None, digest):
        raise PeerProtocolError(
            f"round {round_id.hex()[:8]}… already has another {step}. A round id serves one {step} "
            "only; start a new round."
        )


def _claim_of(link: Link) -> tuple[tuple[bytes, str], bytes]:
    """((round id, step), digest) of a line."""
    round_id, step, digest = (link.body[key] for key in ("round", "step", "digest"))
    return (bytes.fromhex(round_id), step), bytes.fromhex(digest)
