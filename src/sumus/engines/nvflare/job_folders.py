"""Folders of jobs: known by a UUID, and only the latest are kept, so that no sequence of jobs fills
the disk.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

__all__ = ["KEPT_JOBS", "is_job_id", "tidy_jobs", "tidy_server"]

KEPT_JOBS = 5


def is_job_id(value: object) -> bool:
    """Whether this is a UUID, spelled as the engine spells it."""
    try:
        return isinstance(value, str) and str(uuid.UUID(value)) == value
    except ValueError:
        return False


def tidy_server(kit: Path) -> None:
    """Remove what all but the latest ended jobs have left with a server that runs, and folders of
    their downloads.
    """
    tidy_jobs(kit / "storage" / "jobs", among=_has_ended)
    tidy_jobs(kit / "transfer")


def _has_ended(job: Path) -> bool:
    """Whether the engine says so of a job that it keeps."""
    try:
        return str(json.loads((job / "meta").read_bytes())["status"]).startswith("FINISHED")
    except (OSError, ValueError, LookupError, TypeError):
        return False


def tidy_jobs(folder: Path, *, among: Callable[[Path], bool] = Path.is_dir) -> list[str]:
    """Remove the folders of all but the latest jobs; returns whose.

    Guarantee: nothing but folders that are named by a UUID is removed, and no link is followed.

    Args:
        among: which of them may go, and are counted.
    """
    if not folder.is_dir():
        return []
    jobs = [path for path in folder.iterdir() if is_job_id(path.name) and not path.is_symlink()]
    latest_last = sorted(
        (path for path in jobs if path.is_dir() and among(path)),
        key=lambda path: path.stat().st_mtime_ns,
    )
    removed = []
    for path in latest_last[: -KEPT_JOBS or None]:
        with contextlib.suppress(OSError):  # it is still in use, or gone
            shutil.rmtree(path)
            removed.append(path.name)
    return removed
