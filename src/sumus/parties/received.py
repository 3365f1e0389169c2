"""The runs that a silo's people were handed: folders like an operator's, made here from what was
checked.

RECEIVED/DATA-PLAN/          a finished run: what the plan learns from, and 16 digits of its hash
RECEIVED/DATA-PLAN-round-3/  one that was handed out before its end; gone when a later one arrives
  plan.toml journal.jsonl evidence.jsonl model.pt model.json summary.json    as in any run's folder
  checkpoint.npz             the released model once more, for `--start-from`; no server's state
  receipts.jsonl             who else has the same, by their signatures
  delivery.json              what was received when, and what was checked
  report.html, card.md       written here, where the report extra is installed

RECEIVED is `received` in the vault, or the folder of `sumus join --received`; what is put into it
may be read by whoever may read that folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import final

from sumus.books import JOURNAL, RunFolder
from sumus.errors import StorageError, SumusError
from sumus.files import (
    FORMATS,
    from_json,
    make_directory,
    read_bytes,
    replace_atomically,
    sync_directory,
)

__all__ = ["DELIVERY_NOTE", "DeliveryNote", "Shelf"]

DELIVERY_NOTE = "delivery.json"
_STAGING = ".incoming"
_FORMAT = FORMATS["delivery note"]


@final
@dataclass(frozen=True, kw_only=True)
class DeliveryNote:
    """What `delivery.json` says.

    Args:
        parcel: SHA-256 of what was sent.
        received: when.
        round: the last in the journal; `finished`: whether nothing follows.
        model: its hash, as `training.start_from` of a later plan names it.
        head: of the journal, its last line's hash.
        certified: whether a quorum of silos signed that they were sent this very model, when it was
            measured; otherwise it is the server's word, which all receipts are about.
        unopened: sums that this silo helped to open and of which the server says nothing.
        files: of the run, with their SHA-256.
    """

    parcel: str
    plan_hash: str
    received: str
    round: int
    finished: bool
    model: str
    head: str
    certified: bool
    unopened: int
    files: Mapping[str, str] = field(default_factory=dict)
    format: int = _FORMAT.version

    @classmethod
    def of_folder(cls, folder: Path) -> DeliveryNote:
        """Of a received run."""
        path = folder / DELIVERY_NOTE
        fix = "Delete its folder, and ask the operator for `sumus federation deliver`."
        entries = _FORMAT.require_field(path, read_bytes(path), fix=fix)
        return from_json(cls, entries, where=str(path))

    def write(self, folder: Path) -> None:
        """Put it beside the run, with the digests of what is there."""
        there = {path.name: _sha256(read_bytes(path)) for path in sorted(folder.iterdir())}
        noted = replace(self, files=there)
        text = json.dumps(asdict(noted), indent=2, sort_keys=True) + "\n"
        replace_atomically(folder / DELIVERY_NOTE, text.encode())

    def is_whole(self, folder: Path) -> bool:
        """Whether a received run is as it was put there."""
        try:
            return all(
                _sha256(read_bytes(folder / name)) == digest for name, digest in self.files.items()
            )
        except StorageError:
            return False


@final
class Shelf:
    """The folder of what was received.

    Guarantee: a run appears whole or not at all, and of a plan at most two are kept.

    Args:
        root: of all of them; made when the first arrives.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def held(self, plan_hash: str) -> Path | None:
        """The latest run of a plan that is here."""
        known = [
            (note.finished, note.round, path)
            for path, note in self.runs()
            if note.plan_hash == plan_hash
        ]
        return max(known)[2] if known else None

    def runs(self) -> Iterator[tuple[Path, DeliveryNote]]:
        """All of them; what somebody has damaged is left out."""
        for path in sorted(self.root.glob(f"*/{DELIVERY_NOTE}")):
            with contextlib.suppress(SumusError):
                if not path.parent.name.startswith("."):
                    yield path.parent, DeliveryNote.of_folder(path.parent)

    def journal(self, plan_hash: str) -> RunFolder | None:
        """The latest run of a plan, to be continued; None before the first."""
        held = self.held(plan_hash)
        return RunFolder.open(held) if held is not None and (held / JOURNAL).is_file() else None

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """A folder that nobody looks into, gone afterwards unless it was put in its place."""
        make_directory(self.root)
        folder = self.root / _STAGING
        shutil.rmtree(folder, ignore_errors=True)
        make_directory(folder, fresh=True)
        try:
            folder.chmod(0o700)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def place(self, folder: Path, note: DeliveryNote, *, name: str) -> Path:
        """Put a run from the staging folder in its place; an earlier one of its plan goes.

        Args:
            name: that its folder's name begins with.
        """
        short = f"{name}-{note.plan_hash[:16]}"
        target = self.root / (short if note.finished else f"{short}-round-{note.round}")
        earlier = [path for path, known in self.runs() if known.plan_hash == note.plan_hash]
        note.write(folder)
        mode = self.root.stat().st_mode & 0o777
        try:
            for path in folder.iterdir():
                path.chmod(mode & 0o666)
            folder.chmod(mode)
            aside = self.root / f"{_STAGING}-old"
            shutil.rmtree(aside, ignore_errors=True)
            if target.exists():
                os.replace(target, aside)
            os.replace(folder, target)
            sync_directory(self.root)
            shutil.rmtree(aside, ignore_errors=True)
        except OSError as error:
            raise StorageError(
                f"{target} cannot be written: {error.strerror}. Check the folder and its permissions."
            ) from None
        for path in earlier:
            if path != target:
                shutil.rmtree(path, ignore_errors=True)
        return target


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
