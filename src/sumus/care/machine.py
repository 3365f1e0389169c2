"""Disk, clock and locks of this machine, as a party needs them."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sumus.care.finding import Finding, fail, ok, warn
from sumus.events import read_trail

__all__ = [
    "clock",
    "disk",
    "is_held",
    "last_line",
    "open_to_others",
    "owner",
    "synchronised",
    "usage",
]

_TIME_ERROR = 5  # adjtimex: the kernel's clock follows nobody
_TIMEX_BYTES = 1024
_LATE = timedelta(minutes=1)
_FEWEST_FILES = 1000
_NEARLY_FULL = 0.95


def usage(path: Path) -> tuple[int, float]:
    """Bytes that are free where a path is, or will be, and which part of the disk is used."""
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    total, _, free = shutil.disk_usage(there)
    return free, 1.0 - free / total


def disk(places: Mapping[str, Path], need: int) -> Finding:
    """Whether there is room for a run.

    Args:
        places: what is kept → where.
        need: bytes of a run, in each of the places at most.
    """
    for kept, path in places.items():
        free, used = usage(path)
        there = next(place for place in (path, *path.absolute().parents) if place.exists())
        about = os.statvfs(there)
        if about.f_files and about.f_favail < _FEWEST_FILES:
            said = f"the disk of {kept} ({path}) has room for {about.f_favail} more files."
            return fail("disk", said, "Remove files that nobody needs, or use another disk.")
        if free < need:
            said = f"{path} has {_size(free)} free, a run may take {_size(need)} of {kept}."
            return fail("disk", said, "Free some space, or move it to another disk.")
        if used > _NEARLY_FULL:
            said = f"the disk of {kept} ({path}) is {used:.0%} full, {_size(free)} free."
            return warn("disk", said, "Free some space: a silo that cannot write cannot answer.")
    return ok("disk", f"{_size(min(usage(path)[0] for path in places.values()))} free")


def _size(count: int) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count} {unit}"
        count //= 1024
    return f"{count} GiB"


def synchronised() -> bool | None:
    """Whether the kernel's clock follows others; None: it does not say."""
    if sys.platform != "linux":
        return None
    answer: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return None if answer < 0 else answer != _TIME_ERROR


def clock(past: Mapping[str, datetime]) -> Finding:
    """Whether the clock is where it can be.

    Args:
        past: what has happened → when.
    """
    now = datetime.now(UTC)
    for event, moment in past.items():
        if now + _LATE < moment:
            said = (
                f"the clock says {now:%Y-%m-%d %H:%M} UTC, and {event} was {moment:%Y-%m-%d %H:%M}."
            )
            return fail("clock", said, "Set the clock: timedatectl set-ntp true")
    if synchronised() is False:
        return warn(
            "clock",
            "the clock follows no other one.",
            "Have it follow one (timedatectl set-ntp true): certificates end by it.",
        )
    return ok("clock", f"{now:%Y-%m-%d %H:%M} UTC")


def last_line(folder: Path) -> dict[str, datetime]:
    """When the last line of a party's audit trail was written, for `clock`."""
    times = [str(link.body["time"]) for link in read_trail(folder).links if "time" in link.body]
    return {"the last line of the audit trail": datetime.fromisoformat(times[-1])} if times else {}


def is_held(folder: Path) -> bool:
    """Whether a process holds a folder (`FolderLock`); whoever takes it at this very moment waits
    for nothing, so the look is a short one.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def open_to_others(path: Path) -> bool:
    """Whether anybody but the owner can do anything with a path, as far as its own mode says."""
    return bool(path.stat().st_mode & 0o077)


def owner(path: Path) -> int:
    """The number of the user whom a path belongs to."""
    return path.stat().st_uid
