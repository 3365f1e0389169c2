"""What a run leaves behind: one folder that says what was promised, what happened in every round,
and how to go on.

runs/digits-20261115T204436Z-1a2b3c4d/
  plan.toml          the plan as it ran: resolved, noise calibrated
  record.jsonl       hash chain over the plan's hash: guarantee, one line per round, events, summary
  checkpoint.npz     the state after the last committed round, replaced atomically, with its own SHA-256
  summary.json       the result, once the run is finished
  report.html        `sumus report`

with RunFolder.create(plan, account, "runs") as run:
    run.commit(round_record, arrays, meta)          # after every round
    run.finish({"accuracy": 0.91})
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, final

import numpy.typing as npt

from sumus.books.checkpoint import RunCheckpoint
from sumus.books.naming import fresh_directory, run_name
from sumus.books.round import (
    Guarantee,
    GuaranteeAnalysis,
    Header,
    Measurement,
    RoundRecord,
    round_body,
    rounded_up,
    software_versions,
    stored_guarantee,
)
from sumus.errors import PlanError, StorageError
from sumus.files import Chain, FileLock, Link, from_json, plain_json, read_bytes, replace_atomically
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource

if TYPE_CHECKING:
    from sumus.guarantee import Account

__all__ = [
    "Guarantee",
    "GuaranteeAnalysis",
    "Measurement",
    "RoundRecord",
    "RunFolder",
    "rounded_up",
    "run_name",
]

_ORIGIN = hashlib.sha256(b"sumus-run-v1").hexdigest()


@final
class RunFolder:
    """A run on the disk, open for reading or, for one process at a time, for writing.

    Guarantee: every line of the record is on the disk before the call that wrote it returns; after
        a crash at any moment `open` with `resume` finds the last committed round in record and
        checkpoint alike; a changed file is a `StorageError`, never a wrong value.
    """

    def __init__(self, path: Path, *, plan: TrainingPlan, chain: Chain, lock: FileLock) -> None:
        self.path, self.plan = path, plan
        self._chain, self._lock = chain, lock

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
            "guarantee": None if account is None else stored_guarantee(account),
            "plan_file": _digest(text),
            "plan_hash": plan.hash,
            "silos": silos,
            "started": _now(),
            "versions": software_versions(),
            "void": void,
            "records_are": None if plan.data.objects is None else "given in Python",
            "own_model": own_model,
            "arithmetic": dict(arithmetic or {}),
        }
        lock = FileLock(path / "run.lock")
        lock.acquire(wait=False)
        try:
            replace_atomically(path / "plan.toml", text.encode())
            chain = Chain(path=path / "record.jsonl", origin=_ORIGIN).appended("run", begun)
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
        if not (path / "record.jsonl").is_file():
            raise StorageError(
                f"{path} is not a run folder: it has no record.jsonl. Give a folder that `sumus "
                "train` wrote."
            )
        lock = FileLock(path / "run.lock")
        if resume:
            lock.acquire(wait=False)
        try:
            plan = _parsed(_read_plan(path / "plan.toml"), path / "plan.toml")
            run = cls(
                path, plan=plan, chain=Chain.read(path / "record.jsonl", origin=_ORIGIN), lock=lock
            )
            if not run._chain.links or run._chain.links[0].kind != "run":
                raise StorageError(
                    f"{path / 'record.jsonl'} holds no run: it ended before its first line. Start "
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

    # -- reading

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def plan_text(self) -> str:
        """The plan as it is written in `plan.toml`."""
        return _read_plan(self.path / "plan.toml")

    @property
    def plan_hash(self) -> str:
        """The plan's hash when the run began; a later version with more keys gives the same file
        another `plan.hash`.
        """
        return str(self._header["plan_hash"])

    @property
    def guarantee(self) -> Guarantee | None:
        """What was promised; None for a run without privacy."""
        stored = self._header["guarantee"]
        return (
            None
            if stored is None
            else from_json(Guarantee, stored, where=f"{self._chain.path}, line 1")
        )

    @property
    def void(self) -> str | None:
        """Why the guarantee does not hold for this run, if it does not."""
        return None if self._header["void"] is None else str(self._header["void"])

    @property
    def records_are(self) -> str | None:
        """ "given in Python" where the plan does not lead to the records that ran."""
        return self._stored.records_are

    @property
    def own_model(self) -> str | None:
        """Class of the module that was given in Python, if one was."""
        return self._stored.own_model

    @property
    def arithmetic(self) -> Mapping[str, str]:
        """What the floats of the run depend on besides its plan, records and model."""
        return self._stored.arithmetic

    @property
    def silos(self) -> tuple[str, ...]:
        return tuple(map(str, self._header["silos"]))

    @property
    def started(self) -> str:
        return str(self._header["started"])

    @property
    def versions(self) -> dict[str, str]:
        """Software that the run began with."""
        return {str(name): str(version) for name, version in self._header["versions"].items()}

    @property
    def links(self) -> tuple[Link, ...]:
        """The hash chain."""
        return self._chain.links

    @property
    def head(self) -> str:
        """Hash of the last line: whoever notes it down can later tell that nothing was changed."""
        return self._chain.head

    def rounds(self) -> list[RoundRecord]:
        """Every round on record, each with what was measured of its model."""
        measured = {each.of_round: each for each in self.measurements()}
        found = []
        for number, link in enumerate(self._chain.links, start=1):
            if link.kind == "round":
                stored = from_json(
                    RoundRecord, link.body, where=f"{self._chain.path}, line {number}"
                )
                stored = replace(stored, previous=link.previous)
                found.append(
                    measured[stored.round].added_to(stored) if stored.round in measured else stored
                )
        return found

    def measurements(self) -> list[Measurement]:
        """What was measured by secure sums of their own, in order."""
        return [
            from_json(Measurement, detail, where=str(self._chain.path))
            for event, detail in self.events
            if event == "measured"
        ]

    @property
    def last_round(self) -> int:
        """The last round on record; 0 before the first."""
        return max(
            (int(link.body["round"]) for link in self._chain.links if link.kind == "round"),
            default=0,
        )

    @property
    def last_asked(self) -> int:
        """The last round that silos were asked for, finished or lost: they count it as released,
        and so must everybody.
        """
        return max(
            [
                self.last_round,
                *(int(detail["round"]) for event, detail in self.events if event == "invited"),
            ]
        )

    @property
    def events(self) -> list[tuple[str, Mapping[str, Any]]]:
        """What else happened, in order: (name, details)."""
        return [
            (str(link.body["event"]), link.body["detail"])
            for link in self._chain.links
            if link.kind == "event"
        ]

    @property
    def summary(self) -> dict[str, Any] | None:
        """The result, once the run is finished."""
        last = self._chain.links[-1]
        return dict(last.body) if last.kind == "summary" else None

    def read_checkpoint(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]] | None:
        """Arrays and plain values of the last checkpoint; None before the first."""
        stored = self._checkpoint()
        return None if stored is None else (dict(stored.arrays), dict(stored.meta))

    def read_secret(self) -> bytes:
        """The seed that `write_secret` stored, to repeat an interrupted round bit for bit instead
        of drawing its noise anew.
        """
        return read_bytes(self.path / "secret.key")

    def verify(self) -> str:
        """Read everything and check it against the chain; returns the hash of the last line."""
        self._chain = Chain.read(self._chain.path, origin=_ORIGIN)
        self._check_header()
        self.rounds()
        stored = self._checkpoint()
        if stored is not None:
            known = {link.hash for link in self._chain.links} | {self._chain.origin}
            if stored.head not in known and not (
                stored.pending and stored.pending.previous in known
            ):
                file = self._checkpoint_file
                raise StorageError(
                    f"{file} is not of this record: record.jsonl lacks the lines before it. "
                    "Restore record.jsonl."
                )
        file = self.path / "summary.json"
        if self.summary is not None and file.exists() and read_bytes(file) != _pretty(self.summary):
            raise StorageError(
                f"{file} differs from the summary in record.jsonl. Delete it: record.jsonl holds "
                "the original."
            )
        return self.head

    # -- writing

    def commit(
        self, record: RoundRecord, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]
    ) -> RoundRecord:
        """Write a finished round: its checkpoint, then its line in the record.

        Guarantee: after a crash in between, the checkpoint carries the line and `open` with
            `resume` appends it; so a round is either in both or in neither, and a full disk costs
            at most the round whose commit raised.
        """
        self._check_next(record)
        body = plain_json(round_body(record))
        link = Link("round", body, self._chain.head)
        checkpoint = RunCheckpoint(
            arrays=arrays, meta=meta, plan_hash=self.plan_hash, head=link.hash, pending=link
        )
        checkpoint.write(self._checkpoint_file)
        return self._append_round(record)

    def append(self, record: RoundRecord) -> RoundRecord:
        """Add one line for a round to the record, without a checkpoint; returns it with `previous`
        filled in.
        """
        self._check_next(record)
        return self._append_round(record)

    def note(self, event: str, detail: Mapping[str, Any]) -> None:
        """Add a line for something else that happened: a resumption, an aborted round."""
        self._writable()
        self._chain = self._chain.appended(
            "event", {"event": event, "detail": plain_json(detail), "time": _now()}
        )

    def note_data_folder(self, folder: Path | None) -> None:
        """Remember where the plan's relative `data.path` starts, so that the run goes on from
        wherever it is resumed.
        """
        if folder is not None:
            self.note("records", {"folder": str(folder)})

    def write_checkpoint(
        self, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]
    ) -> None:
        """Replace the checkpoint by one that belongs to the record as it stands."""
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

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Close the record with its summary, write `summary.json`, and destroy the seed of the
        randomness.
        """
        self._writable()
        self._chain = self._chain.appended("summary", {"finished": _now()} | plain_json(summary))
        (self.path / "secret.key").unlink(missing_ok=True)
        replace_atomically(self.path / "summary.json", _pretty(self._chain.links[-1].body))

    # -- inside

    @property
    def _header(self) -> Mapping[str, Any]:
        return self._chain.links[0].body

    @property
    def _stored(self) -> Header:
        return from_json(Header, self._header, where=f"{self._chain.path}, line 1")

    @property
    def _data_folder(self) -> Path | None:
        return next(
            (Path(str(detail["folder"])) for event, detail in self.events if event == "records"),
            None,
        )

    def _check_header(self) -> None:
        where, stored = f"{self._chain.path}, line 1", self._stored
        if stored.plan_file != _digest(_read_plan(self.path / "plan.toml")):
            raise StorageError(
                f"{self.path / 'plan.toml'} is not the plan that ran: it was changed since. "
                "Restore it from a backup."
            )
        if stored.guarantee is not None:
            from_json(Guarantee, stored.guarantee, where=where)

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

    def _check_next(self, record: RoundRecord) -> None:
        self._writable()
        if record.round < 1:
            raise StorageError(f"rounds are counted from 1, got {record.round}.")
        if record.round <= self.last_round:
            raise StorageError(
                f"round {record.round} is on record already in {self._chain.path}: go on with "
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
        if not record.epsilon_spent >= spent:
            raise StorageError(
                f"epsilon_spent of round {record.round} must not fall: got {record.epsilon_spent}, "
                f"was {spent}."
            )

    def _append_round(self, record: RoundRecord) -> RoundRecord:
        before = self._chain.head
        self._chain = self._chain.appended("round", round_body(record))
        return replace(record, previous=before)

    @property
    def _checkpoint_file(self) -> Path:
        return self.path / "checkpoint.npz"

    def _checkpoint(self) -> RunCheckpoint | None:
        return RunCheckpoint.read(self._checkpoint_file, plan_hash=self.plan_hash)

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


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read_plan(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise StorageError(
            f"{path} is not the plan that was written: {error}. Restore it from a backup."
        ) from None


def _parsed(text: str, path: Path) -> TrainingPlan:
    try:
        return TrainingPlan.from_toml(text)
    except PlanError as error:
        raise StorageError(
            f"{path} is not the plan that was written, or of another version: {error}"
        ) from None


def _pretty(body: Mapping[str, Any]) -> bytes:
    return (json.dumps(body, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
