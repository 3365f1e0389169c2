"""An audit trail read and checked by somebody who trusts none of its writers.

    reading = read_trail(vault)                       # all segments that are there
    reading = read_trail(vault, archive=folder)       # and those that were archived
    reading.passed, reading.head, reading.findings

Guarantee: without findings the segments are one chain from the first line that is there to the
    last, and reach every head that was given: no line was changed, removed, added or swapped but by
    somebody who rebuilt all that follows and every memory of a head. What is missing at the
    beginning is told (`missing`), and what the trail says itself to be missing is a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, final

from sumus.errors import StorageError
from sumus.events.segments import (
    ORIGIN,
    SEGMENT,
    Head,
    audit_files,
    head_of,
    known_after,
    read_segment,
    segment_of,
)
from sumus.files import Chain, Link

__all__ = ["TrailReading", "read_trail"]


@final
@dataclass(frozen=True, kw_only=True)
class TrailReading:
    """What a trail says.

    Args:
        links: its lines, those that begin segments included.
        head: the last of them; None of an empty trail.
        missing: segments before the first that is there.
        known: the facts after the last line.
        findings: what contradicts, a line each.
    """

    links: tuple[Link, ...]
    head: Head | None
    missing: int
    known: dict[str, Any]
    findings: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts."""
        return not self.findings

    @property
    def counts(self) -> dict[str, int]:
        """How many events of every name there are."""
        counted = Counter(link.kind for link in self.links if link.kind != SEGMENT)
        return dict(sorted(counted.items()))

    def of(self, name: str) -> list[dict[str, Any]]:
        """What the events of a name say, oldest first."""
        return [dict(link.body) for link in self.links if link.kind == name]


def read_trail(
    folder: Path, *, archive: Path | None = None, remembered: Sequence[Head] = ()
) -> TrailReading:
    """Read a trail from its first segment that is there.

    Args:
        folder: of the party.
        archive: where its older segments are.
        remembered: heads that others have seen.
    """
    files = ([] if archive is None else audit_files(archive)) + audit_files(folder)
    segments, findings = _read(files)
    _check_order(segments, findings)
    links = tuple(link for chain in segments for link in chain.links)
    head = head_of(segments[-1]) if segments else None
    known: dict[str, Any] = {}
    for link in links:
        known = known_after(known, link)
    findings += _unreached(segments, head, remembered)
    findings += _gaps(links)
    return TrailReading(
        links=links,
        head=head,
        missing=segment_of(segments[0]).segment - 1 if segments else 0,
        known=known,
        findings=tuple(findings),
    )


def _read(files: Sequence[Path]) -> tuple[list[Chain], list[str]]:
    """The segments in order, each checked by itself; a copy that is there twice counts once."""
    by_number: dict[int, Chain] = {}
    findings: list[str] = []
    for path in files:
        try:
            chain = read_segment(path)
            number = segment_of(chain).segment
        except StorageError as error:
            findings.append(str(error))
            continue
        if number not in by_number:
            by_number[number] = chain
        elif by_number[number].head != chain.head:
            findings.append(f"{path} is another segment {number} than {by_number[number].path}.")
    return [by_number[number] for number in sorted(by_number)], findings


def _check_order(segments: Sequence[Chain], findings: list[str]) -> None:
    """Every segment continues the one before it."""
    for chain in segments[:1]:
        segment = segment_of(chain)
        if segment.segment == 1 and (chain.origin != ORIGIN or segment.lines or segment.known):
            findings.append(f"{chain.path} is not the beginning of a trail.")
    for before, chain in pairwise(segments):
        earlier, segment = segment_of(before), segment_of(chain)
        if segment.segment != earlier.segment + 1:
            findings.append(f"segment {earlier.segment + 1} is missing, before {chain.path}.")
        elif (chain.origin, segment.trail, segment.lines) != (
            before.head,
            earlier.trail,
            earlier.lines + len(before.links),
        ):
            findings.append(f"{chain.path} does not continue {before.path}.")
        if before.torn:
            findings.append(f"{before.path} ends in the middle of a line.")


def _unreached(
    segments: Sequence[Chain], head: Head | None, remembered: Sequence[Head]
) -> list[str]:
    """Heads that somebody has seen and that are not here."""
    findings = []
    places = {
        segment_of(chain).lines + number: link.hash
        for chain in segments
        for number, link in enumerate(chain.links, start=1)
    }
    for seen in remembered:
        if head is None or seen.trail != head.trail or seen.lines > head.lines:
            findings.append(
                f"line {seen.lines} ({seen.last[:16]}…), which was seen, is missing: lines were cut "
                "off, or it is another trail."
            )
        elif places.get(seen.lines, seen.last) != seen.last:
            findings.append(f"line {seen.lines} is not the one that was seen, {seen.last[:16]}….")
    return findings


def _gaps(links: Sequence[Link]) -> list[str]:
    """Gaps that the trail tells of itself; one beside a restored backup is explained."""
    restored = {
        neighbour
        for place, link in enumerate(links)
        if link.kind == "backup.restored"
        for neighbour in (place - 1, place + 1)
    }
    return [
        f"lines are missing before {link.body['time']}: {link.body['lines']} had been written, "
        f"the last {str(link.body['last'])[:16]}…."
        for place, link in enumerate(links)
        if link.kind == "trail.gap" and place not in restored
    ]
