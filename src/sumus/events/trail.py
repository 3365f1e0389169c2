"""A party's audit trail: one hash chain of what somebody may have to answer for, cut into segments.

    trail = Trail(vault, party="silo", memory=ledgers / "audit-….head.json")
    trail.append(PlanApproved(plan=plan.hash))     # on the disk when it returns
    trail.notice(policy=digest)                    # policy.changed, if it differs from the last one

    FOLDER/audit.jsonl            the segment that is written to
    FOLDER/audit-000001.jsonl     a full one: move it to an archive whenever you like
    FOLDER/audit.lock             one writer at a time
    MEMORY                        how many lines there were at least, and the hash of the last

A segment's first line continues the last line of the segment before it, and says what was known by
then, so any segment can be read without the others and all of them are one chain. Numbers stay in
the books that have them: a line about a release names the ledger's entry by its hash, one about a
sum its certificate's.

Guarantee: an event is on the disk when `append` returns, after every event before it. Whatever
    moment a process is killed at, the next one goes on with a whole chain. Lines that are cut off
    the end, or a trail that is removed, are noticed at the next line by whoever has the memory
    outside of the folder, and the trail says so itself from then on (`trail.gap`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, final

from sumus.errors import StorageError
from sumus.events.catalogue import make
from sumus.events.declaring import Event, tell
from sumus.events.segments import (
    KEEP,
    ORIGIN,
    SEGMENT,
    Head,
    Segment,
    audit_files,
    carried,
    first_line,
    head_of,
    known_after,
    now,
    reaches,
    read_head,
    read_segment,
    segment_of,
)
from sumus.files import (
    Chain,
    FileLock,
    plain_json,
    replace_atomically,
    sync_directory,
)
from sumus.randomness import RandomSource

__all__ = ["Trail"]

_SEGMENT_BYTES = 1 << 20


@final
class Trail:
    """The trail of one party, for several processes at a time.

    Args:
        folder: of the party.
        party: "silo" or "server": whose events these are.
        memory: file outside of the folder that remembers the head; None: nobody does.
        segment_bytes: a segment that is longer is closed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        party: str,
        memory: Path | None = None,
        segment_bytes: int = _SEGMENT_BYTES,
    ) -> None:
        self.folder, self._party, self._memory = folder, party, memory
        self._segment_bytes = segment_bytes
        self._path = folder / "audit.jsonl"
        self._lock = FileLock(folder / "audit.lock")
        self._chain: Chain | None = None

    def append(self, *happened: Event) -> Head:
        """Write events down, then log them; returns the head.

        Raises:
            StorageError: if they are not on the disk. An act that the trail must know of does not
                happen then.
        """
        self._require_own(happened)
        with self._lock.waiting():
            return self._write(happened)

    def notice(self, **facts: str | float) -> None:
        """Write down which facts differ from those that the trail knows, by the names of the
        `NAME.changed` events.
        """
        with self._lock.waiting():
            known = self._known()
            changes = [
                make(f"{fact}.changed", before=known.get(fact), after=value)
                for fact, value in facts.items()
                if known.get(fact) != plain_json(value)
            ]
            self._require_own(changes)
            if changes:
                self._write(changes)

    @property
    def head(self) -> Head:
        """The last line."""
        return head_of(self._opened())

    @property
    def known(self) -> dict[str, Any]:
        """The facts as they were noticed last, `plan HASH` of every approved plan, and `ledger`, how
        many of the ledger's entries there were at the last release.
        """
        return self._known()

    # -- inside

    def _require_own(self, happened: Sequence[Event]) -> None:
        for each in happened:
            if not each.audited or self._party not in each.at:
                raise TypeError(f"{each.name} does not belong into the trail of a {self._party}.")

    def _write(self, happened: Sequence[Event]) -> Head:
        """Append under the lock: first what is missing, then what happened."""
        chain = self._opened()
        if not chain.links:
            chain = self._begun(chain)
        elif chain.size >= self._segment_bytes:
            chain = self._next_segment(chain)
        gap = self._gap(chain)
        told = [*([] if gap is None else [gap]), *happened]
        before = head_of(chain).lines
        for each in told:
            chain = chain.appended(each.name, {"time": now()} | plain_json(each.values))
            self._chain = chain
        self._remember(chain)
        for number, (each, link) in enumerate(
            zip(told, chain.links[len(chain.links) - len(told) :], strict=True), start=before + 1
        ):
            tell(each, trail_of=self._party, line=number, hash=link.hash)
        return head_of(chain)

    def _opened(self) -> Chain:
        """The segment that is written to, as it is on the disk now."""
        first, chain = first_line(self._path), self._chain
        if (
            chain is not None
            and chain.links
            and first is not None
            and first.hash == chain.links[0].hash
            and self._path.stat().st_size >= chain.size
        ):
            self._chain = chain.refreshed()
        else:  # the first look, another process has begun a segment, or bytes are missing
            origin = self._end_of_closed() if first is None else first.previous
            self._chain = Chain.read(self._path, origin=origin, fix=KEEP)
        return self._chain

    def _closed(self) -> Chain | None:
        """The last segment that is full, if it is here."""
        closed = [path for path in audit_files(self.folder) if path != self._path]
        return read_segment(closed[-1]) if closed else None

    def _end_of_closed(self) -> str:
        closed = self._closed()
        return ORIGIN if closed is None else closed.head

    def _begun(self, chain: Chain) -> Chain:
        """The first line of a segment that has none: of a new trail, or after a kill between two
        segments.
        """
        closed = self._closed()
        if closed is not None:
            return self._first(chain, carried(closed))
        trail = RandomSource().bytes(16).hex()
        return self._first(chain, Segment(known={}, lines=0, segment=1, time=now(), trail=trail))

    def _next_segment(self, chain: Chain) -> Chain:
        """Close the segment that is full and begin the next."""
        full = self.folder / f"audit-{segment_of(chain).segment:06d}.jsonl"
        if full.exists():
            raise StorageError(f"{full} exists already. {KEEP}")
        try:
            os.truncate(self._path, chain.size)  # what is left of a write that was interrupted
            os.replace(self._path, full)
            sync_directory(self.folder)
        except OSError as error:
            raise StorageError(
                f"{full} cannot be written: {error.strerror}. Free some space and try again."
            ) from None
        return self._first(Chain(path=self._path, origin=chain.head, fix=KEEP), carried(chain))

    def _first(self, chain: Chain, segment: Segment) -> Chain:
        self._path.touch(mode=0o600)
        self._chain = chain.appended(SEGMENT, asdict(segment))
        return self._chain

    def _known(self) -> dict[str, Any]:
        known: dict[str, Any] = {}
        for link in self._opened().links:
            known = known_after(known, link)
        return known

    def _gap(self, chain: Chain) -> Event | None:
        """What to say if the trail does not reach what is remembered of it."""
        remembered = None if self._memory is None else read_head(self._memory)
        if remembered is None or reaches(chain, remembered):
            return None
        return make("trail.gap", lines=remembered.lines, last=remembered.last)

    def _remember(self, chain: Chain) -> None:
        if self._memory is not None:
            content = json.dumps(asdict(head_of(chain)), sort_keys=True) + "\n"
            replace_atomically(self._memory, content.encode(), secret=True)
