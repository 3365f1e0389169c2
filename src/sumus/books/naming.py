"""Names of run folders: readable, sortable by time, and never shared by two runs."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from pathlib import Path

from sumus.errors import StorageError
from sumus.files import make_directory, name_of_file
from sumus.plan import TrainingPlan

__all__ = ["fresh_directory", "plan_words", "run_name", "short_name"]


def run_name(
    plan: TrainingPlan, *, name: str | None = None, now: datetime | None = None, nonce: bytes = b""
) -> str:
    """`<name>-<UTC time>-<8 digits>`; the name is the data set's unless given, the digits hash the
    plan and the nonce.

    Ledgers tell runs apart by this name, so two runs of one plan in one second must not share it:
        that is what the nonce is for.
    """
    digits = hashlib.sha256(plan.hash.encode() + nonce).hexdigest()[:8]
    return f"{short_name(plan, name)}-{(now or datetime.now(UTC)):%Y%m%dT%H%M%SZ}-{digits}"


def short_name(plan: TrainingPlan, name: str | None = None) -> str:
    """What a plan learns from, or the name that is given, as a part of a file's name."""
    chosen = (
        name
        or plan.data.name
        or (name_of_file(plan.data.path) if plan.data.path else plan.data.objects or "run")
    )
    return re.sub(r"[^A-Za-z0-9._-]+", "-", chosen).strip(".-")[:60] or "run"


def plan_words(plan: TrainingPlan) -> str:
    """What is learned from what, in a few words."""
    where = plan.data.name or (
        name_of_file(plan.data.path) if plan.data.path else plan.data.objects or "digits"
    )
    if plan.describes:
        return f"statistics of {where}"
    return f"{plan.training.algorithm}, {plan.training.model}, {where}"


def fresh_directory(root: Path, name: str) -> Path:
    """A new folder of that name, or of that name with a number behind it."""
    for attempt in range(1, 1000):
        path = root / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            make_directory(path, fresh=True)
        except FileExistsError:
            continue
        return path
    raise StorageError(f"{root / name} exists a thousand times. Clean up {root}.")
