"""A file of JSON lines in which every line carries the hash of the line before it.

    {"body": {…}, "hash": SHA-256(domain ‖ previous ‖ kind ‖ body), "kind": "…", "previous": "…"}

Guarantee: changing any byte of a complete line, or removing, adding or swapping lines other than at
    the end, is detected (up to SHA-256 collisions) by whoever knows the last hash.

The chain is not signed: somebody who may write the file can rebuild all of it, so the last hash
belongs wherever others can see it (report, ledger head, a colleague's mailbox).

A process killed in the middle of an append leaves a last line without its end. Readers leave such a
line out; a line that lacks only its line feed was written in full and counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

from sumus.errors import StorageError
from sumus.files.atomic import append_durably, read_bytes
from sumus.files.formats import Format
from sumus.files.values import plain_json

__all__ = ["Chain", "Link"]

_DOMAIN = "sumus-chain-v1"


@final
@dataclass(frozen=True)
class Link:
    """One line of the chain."""

    kind: str
    body: Mapping[str, Any]
    previous: str

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the previous hash, the kind and the body, in hexadecimal."""
        parts = (_DOMAIN, self.previous, self.kind, _canonical(self.body))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def line(self) -> bytes:
        """The line as stored, line feed included."""
        entry = {"body": self.body, "hash": self.hash, "kind": self.kind, "previous": self.previous}
        return _canonical(entry).encode() + b"\n"


@final
@dataclass(frozen=True, kw_only=True)
class Chain:
    """The complete lines of a file, checked.

    Args:
        origin: what the first line's `previous` must be.
        links: the complete lines.
        size: bytes up to the end of the last complete line.
        torn: bytes of an unfinished last line, which are not part of the chain.
        unfed: the last line is complete but for its line feed.
        fix: what to do about a damaged file.
        format: of the file, where other versions of it have another origin.
        origin_of: the mark of a version → its origin.
    """

    path: Path
    origin: str
    links: tuple[Link, ...] = ()
    size: int = 0
    torn: int = 0
    unfed: bool = False
    fix: str = "Restore it from a backup."
    format: Format | None = None
    origin_of: Callable[[str], str] = str

    @property
    def head(self) -> str:
        """The hash of the last line, or the origin of an empty chain."""
        return self.links[-1].hash if self.links else self.origin

    @classmethod
    def read(cls, path: Path, *, origin: str, fix: str = fix) -> Chain:
        """Read and check a whole file; a missing file is an empty chain."""
        return cls(path=path, origin=origin, fix=fix).refreshed()

    @classmethod
    def of(
        cls,
        form: Format,
        path: Path,
        *,
        fix: str = fix,
        origin_of: Callable[[str], str] = str,
    ) -> Chain:
        """A chain that has nothing in it yet, of a format; `refreshed` reads it.

        Args:
            origin_of: the mark of a version → its origin.
        """
        origin = origin_of(form.marked())
        return cls(path=path, origin=origin, fix=fix, format=form, origin_of=origin_of)

    def refreshed(self) -> Chain:
        """The chain with whatever has been appended to the file since."""
        if not self.path.exists():
            if self.size:
                raise StorageError(f"{self.path} has disappeared. {self.fix}")
            return self
        size = self.size
        if self.path.stat().st_size < size:
            raise self._damaged(len(self.links), "has lost bytes since it was read")
        content = read_bytes(self.path, after=size)
        if not content:
            return replace(self, torn=0)
        if self.unfed:
            if not content.startswith(b"\n"):
                raise self._damaged(len(self.links), "is followed by bytes that we never write")
            content, size = content[1:], size + 1
        *lines, tail = content.split(b"\n")
        links, head = list(self.links), self.head
        for line in lines:
            link = self._checked(line, number=len(links) + 1, previous=head)
            links.append(link)
            head, size = link.hash, size + len(line) + 1
        whole = bool(tail) and self._is_whole(tail, number=len(links) + 1)
        if whole:
            links.append(self._checked(tail, number=len(links) + 1, previous=head))
            size += len(tail)
        return replace(
            self, links=tuple(links), size=size, torn=0 if whole else len(tail), unfed=whole
        )

    def appended(self, kind: str, *bodies: Mapping[str, Any]) -> Chain:
        """The chain with one more line for every body, written at once and on the disk when the
        call returns.
        """
        links, head = list(self.links), self.head
        for body in bodies:
            links.append(Link(kind, plain_json(body), head))
            head = links[-1].hash
        content = b"\n" * self.unfed + b"".join(link.line for link in links[len(self.links) :])
        append_durably(self.path, content, at=self.size)
        return replace(self, links=tuple(links), size=self.size + len(content), torn=0, unfed=False)

    def _checked(self, line: bytes, *, number: int, previous: str) -> Link:
        """The line as a link; every deviation from what we would have written is an error."""
        try:
            entry = json.loads(line.decode("ascii"))
            link = Link(entry["kind"], entry["body"], entry["previous"])
            matches = (
                isinstance(link.body, dict)
                and isinstance(link.kind, str)
                and link.line == line + b"\n"
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._damaged(number, "is not one of our lines") from None
        if not matches:
            raise self._damaged(number, "does not match its own hash")
        if link.previous != previous:
            if number == 1 and self.format is not None:
                first = link.previous
                other = self.format.other(lambda mark: self.origin_of(mark) == first)
                if other is not None:
                    raise self.format.refusal(self.path, other)
            raise self._damaged(number, "does not continue the line before it")
        return link

    def _is_whole(self, tail: bytes, *, number: int) -> bool:
        """Whether a last line without line feed begins with a whole object; if so it is checked
        like any other line.
        """
        try:
            json.JSONDecoder().raw_decode(tail.decode("ascii"))
        except UnicodeDecodeError:
            raise self._damaged(number, "holds bytes that we never write") from None
        except (ValueError, RecursionError):
            return False
        return True

    def _damaged(self, number: int, why: str) -> StorageError:
        return StorageError(
            f"{self.path}, line {number} {why}: the file was changed or damaged. {self.fix}"
        )


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
