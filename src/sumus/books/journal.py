"""What a run leaves behind: one folder that says what was promised, what happened in every round,
and how to go on (`stored_run` has its files).

    with RunFolder.create(plan, account, "runs") as run:
        run.commit(entry, arrays, meta)          # after every round
        run.finish({"accuracy": 0.91})
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, final

import numpy.typing as npt

from sumus.books.checkpoint import RunCheckpoint
from sumus.books.header import StartedFrom, software_versions
from sumus.books.naming import fresh_directory, run_name
from sumus.books.round import RoundEntry, round_body
from sumus.books.stored_run import (
    JOURNAL,
    MODEL_FACTS,
    RELEASED,
    Released,
    StoredRun,
    digest_of,
    journal_at,
    parsed_plan,
    pretty,
    read_plan,
)
from sumus.errors import PlanError, StorageError
from sumus.events import Head
from sumus.files import Chain, FileLock, Link, plain_json, replace_atomically
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource

if TYPE_CHECKING:
    from sumus.guarantee import Account

__all__ = ["RunFolder"]


@final
class RunFolder(StoredRun):
    """A run on the disk, open for reading or, for one process at a time, for writing.

    Guarantee: every line of the journal is on the disk before the call that wrote it returns; after
        a crash at any moment `open` with `resume` finds the last committed round in journal and
        checkpoint alike; a changed file is a `StorageError`, never a wrong value.
    """

    def __init__(self, path: Path, *, plan: TrainingPlan, chain: Chain, lock: FileLock) -> None:
        super().__init__(path, plan=plan, chain=chain)
        self._lock = lock

    # -- making and opening

    @classmethod
    def create(
        cls,
        plan: TrainingPlan,
        account: Account | None,
        root: str | Path,
        *,
        name: str | None = None,
        silos: tuple[str, ...] = (),
        void: str | None = None,
        own_model: str | None = None,
        arithmetic: Mapping[str, str] | None = None,
        no_ledger: str | None = None,
        start: StartedFrom | None = None,
    ) -> RunFolder:
        """A new folder under `root` that holds the plan and its guarantee, locked for this process.

        Args:
            plan: resolved and calibrated.
            account: its guarantee; None for a run without privacy.
            silos: names, in the order of `silo_scores`.
            void: why the guarantee does not hold for this run although the plan has one, for
                example a public seed for the noise.
            own_model: class of a module that is trained instead of the model that the plan names.
            arithmetic: what the floats of a repeated round depend on, by name.
            no_ledger: why the run's releases are on no ledger; None where they are.
            start: the released model that the run begins with.
        """
        if account is not None and account.plan_hash != plan.hash:
            rule = "must be the hash of the plan that runs"
            raise PlanError(
                "account.plan_hash",
                account.plan_hash[:8],
                rule,
                "Pass the resolved plan of the account.",
            )
        path = fresh_directory(
            Path(root), run_name(plan, name=name, nonce=RandomSource().bytes(16))
        )
        text = plan.to_toml()
        begun = {
            "guarantee": None if account is None else account.as_json(),
            "plan_file": digest_of(text),
            "plan_hash": plan.hash,
            "silos": silos,
            "started": _now(),
            "versions": software_versions(),
            "void": void,
            "records_are": None if plan.data.objects is None else "given in Python",
            "own_model": own_model,
            "no_ledger": no_ledger,
            "arithmetic": dict(arithmetic or {}),
        }
        if start is not None:
            begun["start"] = asdict(start)
        lock = FileLock(path / "run.lock")
        lock.acquire(wait=False)
        try:
            replace_atomically(path / "plan.toml", text.encode())
            chain = journal_at(path / JOURNAL).appended("run", begun)
        except BaseException:
            lock.release()
            raise
        return cls(path, plan=plan, chain=chain, lock=lock)

    @classmethod
    def open(cls, path: str | Path, *, resume: bool = False) -> RunFolder:
        """An existing folder; with `resume` locked for writing, with the traces of a crash put
        right.
        """
        path = Path(path)
        if not (path / JOURNAL).is_file():
            raise StorageError(
                f"{path} is not a run folder: it has no journal.jsonl. Give a folder that `sumus "
                "train` wrote."
            )
        lock = FileLock(path / "run.lock")
        if resume:
            lock.acquire(wait=False)
        try:
            plan = parsed_plan(read_plan(path / "plan.toml"), path / "plan.toml")
            run = cls(path, plan=plan, chain=journal_at(path / JOURNAL).refreshed(), lock=lock)
            if not run._chain.links or run._chain.links[0].kind != "run":
                raise StorageError(
                    f"{path / JOURNAL} holds no run: it ended before its first line. Start "
                    "a new run."
                )
            run._check_header()
            run.plan = replace(run.plan, folder=run._data_folder)
            if resume:
                run._check_version()
                run._adopt_pending()
                if run.summary is None:
                    run.note("resumed", {"after_round": run.last_round})
                else:
                    # the process died before it could
                    (path / "secret.key").unlink(missing_ok=True)
        except BaseException:
            lock.release()
            raise
        return run

    def close(self) -> None:
        """Let another process write to the folder."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- writing

    def commit(
        self, entry: RoundEntry, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]
    ) -> RoundEntry:
        """Write a finished round: its checkpoint, then its line in the journal.

        Guarantee: after a crash in between, the checkpoint carries the line and `open` with
            `resume` appends it; so a round is either in both or in neither, and a full disk costs
            at most the round whose commit raised.
        """
        self._check_next(entry)
        body = plain_json(round_body(entry))
        link = Link("round", body, self._chain.head)
        checkpoint = RunCheckpoint(
            arrays=arrays, meta=meta, plan_hash=self.plan_hash, head=link.hash, pending=link
        )
        checkpoint.write(self._checkpoint_file)
        return self._append_round(entry)

    def append(self, entry: RoundEntry) -> RoundEntry:
        """Add one line for a round, without a checkpoint; returns it with `previous`
        filled in.
        """
        self._check_next(entry)
        return self._append_round(entry)

    def note(self, event: str, detail: Mapping[str, Any]) -> None:
        """Add a line for something else that happened: a resumption, an aborted round."""
        self._writable()
        self._chain = self._chain.appended(
            "event", {"event": event, "detail": plain_json(detail), "time": _now()}
        )

    def note_trail(self, head: Head) -> None:
        """Remember how far the server's audit trail is: whoever has a copy of the journal can tell
        if lines of the trail are missing later.
        """
        self._writable()
        if head.lines:
            self.note("audit", asdict(head))

    def release(self, model_hash: str, model_facts: bytes | None) -> None:
        """Say which model the folder holds before the run has ended; `model.pt` is there already.

        Args:
            model_facts: see `finish`.
        """
        self._writable()
        digest = None
        if model_facts is not None:
            replace_atomically(self.path / MODEL_FACTS, model_facts)
            digest = hashlib.sha256(model_facts).hexdigest()
        released = Released(round=self.last_round, model_hash=model_hash, model_facts=digest)
        self.note(RELEASED, asdict(released))

    def note_data_folder(self, folder: Path | None) -> None:
        """Remember where the plan's relative `data.path` starts, so that the run goes on from
        wherever it is resumed.
        """
        if folder is not None:
            self.note("records", {"folder": str(folder)})

    def write_checkpoint(
        self, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]
    ) -> None:
        """Replace the checkpoint by one that belongs to the journal as it stands."""
        self._writable()
        checkpoint = RunCheckpoint(
            arrays=arrays, meta=meta, plan_hash=self.plan_hash, head=self._chain.head
        )
        checkpoint.write(self._checkpoint_file)

    def write_secret(self, secret: bytes) -> None:
        """Keep the seed of the silos' randomness until the run is finished, readable by its owner
        only.
        """
        self._writable()
        replace_atomically(self.path / "secret.key", secret, secret=True)

    def finish(self, summary: Mapping[str, Any], model_facts: bytes | None = None) -> None:
        """Close the journal with its summary, write `summary.json`, and destroy the seed of the
        randomness.

        Args:
            model_facts: what `model.json` is to hold; None: there is no model to predict with.
        """
        self._writable()
        if model_facts is not None:
            replace_atomically(self.path / MODEL_FACTS, model_facts)
            summary = {**summary, "model_facts": hashlib.sha256(model_facts).hexdigest()}
        self._chain = self._chain.appended("summary", {"finished": _now()} | plain_json(summary))
        (self.path / "secret.key").unlink(missing_ok=True)
        replace_atomically(self.path / "summary.json", pretty(self._chain.links[-1].body))

    # -- inside

    def _check_version(self) -> None:
        """Messages and ledger entries are bound to the plan's hash: a version that hashes the plan
        otherwise cannot go on with the run.
        """
        if self.plan.hash != self.plan_hash:
            began = self.versions.get("sumus", "another version")
            raise StorageError(
                f"{self.path} was begun with sumus {began}, which knows other plan keys. Resume it "
                "with that version."
            )

    def _writable(self) -> None:
        if not self._lock.held:
            raise StorageError(f"{self.path} is open for reading only. Open it with resume=True.")
        if self.summary is not None:
            raise StorageError(f"{self.path} is finished already. Start a new run.")

    def _check_next(self, entry: RoundEntry) -> None:
        self._writable()
        if entry.round < 1:
            raise StorageError(f"rounds are counted from 1, got {entry.round}.")
        if entry.round <= self.last_round:
            raise StorageError(
                f"round {entry.round} is in the journal already: {self._chain.path}: go on with "
                f"round {self.last_round + 1}."
            )
        spent = next(
            (
                float(link.body["epsilon_spent"])
                for link in reversed(self._chain.links)
                if link.kind == "round"
            ),
            0.0,
        )
        if not entry.epsilon_spent >= spent:
            raise StorageError(
                f"epsilon_spent of round {entry.round} must not fall: got {entry.epsilon_spent}, "
                f"was {spent}."
            )

    def _append_round(self, entry: RoundEntry) -> RoundEntry:
        before = self._chain.head
        self._chain = self._chain.appended("round", round_body(entry))
        return replace(entry, previous=before)

    def _adopt_pending(self) -> None:
        """Append the line of a round whose checkpoint was written but whose line was not."""
        stored = self._checkpoint()
        if stored is None or stored.head in {link.hash for link in self._chain.links}:
            return
        if stored.pending is None or stored.pending.previous != self._chain.head:
            raise StorageError(
                f"{self._chain.path} lacks lines that checkpoint.npz already knows. Restore it "
                "from a backup."
            )
        self._chain = self._chain.appended(stored.pending.kind, stored.pending.body)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
