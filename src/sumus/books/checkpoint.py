"""The checkpoint of a run: the state after a round, tied to the line of the journal that it belongs
to.

A checkpoint is written before the line of its round and carries that line, so that a crash between
the two loses neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy.typing as npt

from sumus.errors import StorageError
from sumus.files import (
    Link,
    decode_arrays,
    encode_arrays,
    plain_json,
    read_bytes,
    replace_atomically,
)

__all__ = ["RunCheckpoint"]


@final
@dataclass(frozen=True, kw_only=True)
class RunCheckpoint:
    """What `checkpoint.npz` holds.

    Args:
        arrays: the state to go on from; `meta`: plain values of it.
        plan_hash: of the run's plan.
        head: hash of the journal's last line once the checkpoint is complete.
        pending: that line, if it is written after the checkpoint.
    """

    arrays: Mapping[str, npt.NDArray[Any]]
    meta: Mapping[str, Any]
    plan_hash: str
    head: str
    pending: Link | None = None

    @classmethod
    def read(cls, path: Path, *, plan_hash: str) -> RunCheckpoint | None:
        """The checkpoint of a run; None before the first."""
        if not path.exists():
            return None
        arrays, stored = decode_arrays(read_bytes(path), path)
        if (
            not isinstance(stored, dict)
            or not {"meta", "plan_hash", "head", "pending"} <= stored.keys()
        ):
            raise StorageError(f"{path} is not a checkpoint of a run. Restore it from a backup.")
        if stored["plan_hash"] != plan_hash:
            raise StorageError(
                f"{path} belongs to another plan ({str(stored['plan_hash'])[:8]}). Restore the "
                "checkpoint of this run."
            )
        line = stored["pending"]
        pending = None if line is None else Link(line["kind"], line["body"], line["previous"])
        return cls(
            arrays=arrays,
            meta=stored["meta"],
            plan_hash=plan_hash,
            head=stored["head"],
            pending=pending,
        )

    def write(self, path: Path) -> None:
        """Replace the file atomically."""
        line = (
            None
            if self.pending is None
            else {
                "kind": self.pending.kind,
                "body": self.pending.body,
                "previous": self.pending.previous,
            }
        )
        stored = {
            "meta": plain_json(self.meta),
            "plan_hash": self.plan_hash,
            "head": self.head,
            "pending": line,
        }
        replace_atomically(path, encode_arrays(self.arrays, stored))
