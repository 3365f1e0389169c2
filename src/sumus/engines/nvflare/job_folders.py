"""Folders of jobs: known by a UUID, and only the latest are kept, so that no sequence of jobs fills
the disk.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from pathlib import Path

__all__ = ["KEPT_JOBS", "is_job_id", "tidy_jobs"]

KEPT_JOBS = 5


def is_job_id(value: object) -> bool:
    """Whether this is a UUID, spelled as the engine spells it."""
    try:
        return isinstance(value, str) and str(uuid.UUID(value)) == value
    except ValueError:
        return False


def tidy_jobs(folder: Path) -> list[str]:
    """Remove the folders of all but the latest jobs; returns whose.

    Guarantee: nothing but folders that are named by a UUID is removed, and no link is followed.
    """
    if not folder.is_dir():
        return []
    jobs = [path for path in folder.iterdir() if is_job_id(path.name) and not path.is_symlink()]
    latest_last = sorted(
        (path for path in jobs if path.is_dir()), key=lambda path: path.stat().st_mtime_ns
    )
    removed = []
    for path in latest_last[: -KEPT_JOBS or None]:
        with contextlib.suppress(OSError):  # it is still in use, or gone
            shutil.rmtree(path)
            removed.append(path.name)
    return removed
