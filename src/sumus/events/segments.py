"""Segments of an audit trail as they are on the disk, and what can be said of a trail from the
latest of them alone.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from sumus.errors import StorageError
from sumus.files import FORMATS, Chain, Link, from_json, read_bytes

__all__ = [
    "KEEP",
    "ORIGIN",
    "SEGMENT",
    "Head",
    "Segment",
    "audit_files",
    "carried",
    "first_line",
    "head_of",
    "known_after",
    "now",
    "reaches",
    "read_head",
    "read_segment",
    "segment_of",
]

_FORMAT = FORMATS["audit trail"]
ORIGIN = _FORMAT.marked()
SEGMENT = "segment"
"""The kind of a segment's first line."""
KEEP = (
    "Move the trail's files to a safe place as they are, for whoever looks into it: the next one "
    "begins anew and says that this one is missing."
)


@final
@dataclass(frozen=True, kw_only=True)
class Head:
    """How far a trail has come at least.

    Args:
        trail: its random name.
        lines: of all segments.
        last: hash of the last line.
    """

    trail: str
    lines: int
    last: str


@final
@dataclass(frozen=True, kw_only=True)
class Segment:
    """The first line of a segment.

    Args:
        known: the facts as they were noticed last.
        lines: of all segments before it.
        segment: its number, from 1.
        time: when it was begun.
        trail: the trail's random name.
    """

    known: dict[str, Any]
    lines: int
    segment: int
    time: str
    trail: str


def audit_files(folder: Path) -> list[Path]:
    """The segments in a folder, oldest first; the one that is written to last."""
    closed = [
        path for path in folder.glob("audit-*.jsonl") if re.fullmatch(r"audit-\d{6,}", path.stem)
    ]
    current = folder / "audit.jsonl"
    return [*sorted(closed, key=lambda path: int(path.stem[6:])), *([current] * current.exists())]


def known_after(known: dict[str, Any], link: Link) -> dict[str, Any]:
    """The facts that are known after a line."""
    if link.kind == SEGMENT:
        return dict(link.body["known"])
    fact, _, change = link.kind.rpartition(".")
    if change == "changed":
        return known | {fact: link.body["after"]}
    if link.kind in ("release", "ledger.begun"):
        return known | {"ledger": link.body["entries"] if link.kind == "release" else 0}
    if link.kind == "plan.approved":
        return known | {f"plan {link.body['plan']}": True}
    if link.kind == "plan.withdrawn":
        return {key: value for key, value in known.items() if key != f"plan {link.body['plan']}"}
    return known


def read_head(path: Path) -> Head | None:
    """What is remembered of a trail; None: nothing."""
    if not path.exists():
        return None
    try:
        return from_json(Head, json.loads(read_bytes(path)), where=str(path))
    except (ValueError, RecursionError):
        raise StorageError(
            f"{path} is damaged: not a JSON object. Check the trail with `sumus audit evidence`, "
            "then delete it."
        ) from None


def read_segment(path: Path) -> Chain:
    """A segment by itself; what it continues is its own word."""
    first = first_line(path)
    chain = Chain.read(path, origin=ORIGIN if first is None else first.previous, fix=KEEP)
    segment_of(chain)
    return chain


def segment_of(chain: Chain) -> Segment:
    """What a segment's first line says."""
    if not chain.links or chain.links[0].kind != SEGMENT:
        raise StorageError(f"{chain.path} does not begin like a segment of an audit trail. {KEEP}")
    return from_json(Segment, chain.links[0].body, where=f"{chain.path}, line 1")


def head_of(chain: Chain) -> Head:
    """The last line of a trail, from its latest segment."""
    if not chain.links:
        return Head(trail="", lines=0, last=chain.head)
    segment = segment_of(chain)
    return Head(trail=segment.trail, lines=segment.lines + len(chain.links), last=chain.head)


def reaches(chain: Chain, remembered: Head) -> bool:
    """Whether a line that is remembered is in the trail; one of an earlier segment is taken for
    granted, for that segment may be in an archive.
    """
    head = head_of(chain)
    if head.trail != remembered.trail or head.lines < remembered.lines:
        return False
    place = remembered.lines - 1 - segment_of(chain).lines
    return place < 0 or chain.links[place].hash == remembered.last


def carried(chain: Chain) -> Segment:
    """What the first line of the next segment says."""
    before, known = segment_of(chain), dict[str, Any]()
    for link in chain.links:
        known = known_after(known, link)
    return Segment(
        known=known,
        lines=before.lines + len(chain.links),
        segment=before.segment + 1,
        time=now(),
        trail=before.trail,
    )


def first_line(path: Path) -> Link | None:
    """The line that a segment begins with; None: it has none yet, or only part of one."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        line = file.readline()
    try:
        entry = json.loads(line)
        first = Link(str(entry["kind"]), dict(entry["body"]), str(entry["previous"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        if line.endswith(b"\n"):
            raise StorageError(f"{path}, line 1 is not one of our lines. {KEEP}") from None
        return None
    other = _FORMAT.other(lambda mark: mark == first.previous)
    if other is not None:
        raise _FORMAT.refusal(path, other)
    return first


def now() -> str:
    """The time, as lines have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
