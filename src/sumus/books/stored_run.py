"""A run on the disk, as anybody may read it.

runs/digits-20261115T204436Z-1a2b3c4d/
  plan.toml          the plan as it ran: resolved, noise calibrated
  journal.jsonl      hash chain over the plan's hash: guarantee, a line per round, events, summary
  checkpoint.npz     state after the last committed round, replaced atomically, with its SHA-256
  evidence.jsonl     across machines: every sum's certificate, signed by server and silos
  model.pt           the released weights, once the run is finished
  model.json         how rows become records and outputs labels, likewise; the journal has its hash
  summary.json       the result, likewise
  report.html        `sumus report`
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy.typing as npt

from sumus.books.checkpoint import RunCheckpoint
from sumus.books.header import Header, StartedFrom
from sumus.books.round import Measurement, RoundEntry
from sumus.errors import PlanError, StorageError
from sumus.files import FORMATS, Chain, Link, from_json, read_bytes
from sumus.plan import TrainingPlan

if TYPE_CHECKING:
    from sumus.guarantee import Account

__all__ = [
    "EVIDENCE",
    "JOURNAL",
    "MODEL_FACTS",
    "RELEASED",
    "Released",
    "StoredRun",
    "digest_of",
    "journal_at",
    "parsed_plan",
    "pretty",
    "read_plan",
]

JOURNAL = "journal.jsonl"
EVIDENCE = "evidence.jsonl"
MODEL_FACTS = "model.json"
RELEASED = "released"
"""The event of a model that was handed out before the run's end."""


@final
@dataclass(frozen=True, kw_only=True)
class Released:
    """The model that a run's folder holds.

    Args:
        round: that released it.
        model_hash: what `training.start_from` of a later plan calls it.
        model_facts: SHA-256 of `model.json`; None of a run that describes.
    """

    round: int
    model_hash: str
    model_facts: str | None = None


class StoredRun:
    """What a run's folder says.

    Guarantee: a changed file is a `StorageError`, never a wrong value.
    """

    def __init__(self, path: Path, *, plan: TrainingPlan, chain: Chain) -> None:
        self.path, self.plan, self._chain = path, plan, chain

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def plan_text(self) -> str:
        """The plan as it is written in `plan.toml`."""
        return read_plan(self.path / "plan.toml")

    @property
    def plan_hash(self) -> str:
        """The plan's hash when the run began; a later version with more keys gives the same file
        another `plan.hash`.
        """
        return self.header.plan_hash

    @property
    def guarantee(self) -> Account | None:
        """What was promised; None for a run without privacy."""
        return self.header.guarantee

    @property
    def void(self) -> str | None:
        """Why the guarantee does not hold for this run, if it does not."""
        return self.header.void

    @property
    def records_are(self) -> str | None:
        """ "given in Python" where the plan does not lead to the records that ran."""
        return self.header.records_are

    @property
    def own_model(self) -> str | None:
        """Class of the module that was given in Python, if one was."""
        return self.header.own_model

    @property
    def start(self) -> StartedFrom | None:
        """The released model that the run began with; None: a fresh one."""
        return self.header.start

    @property
    def arithmetic(self) -> Mapping[str, str]:
        """What the floats of the run depend on besides its plan, records and model."""
        return self.header.arithmetic

    @property
    def silos(self) -> tuple[str, ...]:
        return self.header.silos

    @property
    def has_evidence(self) -> bool:
        """Whether silos signed for sums of this run: across machines only."""
        return (self.path / EVIDENCE).exists()

    @property
    def started(self) -> str:
        return self.header.started

    @property
    def versions(self) -> Mapping[str, str]:
        """Software that the run began with."""
        return self.header.versions

    @property
    def links(self) -> tuple[Link, ...]:
        """The hash chain."""
        return self._chain.links

    def newer_links(self) -> tuple[Link, ...]:
        """Lines that another process has added since this one looked."""
        known = len(self._chain.links)
        self._chain = self._chain.refreshed()
        return self._chain.links[known:]

    @property
    def head(self) -> str:
        """Hash of the last line: whoever notes it down can later tell that nothing was changed."""
        return self._chain.head

    def rounds(self) -> list[RoundEntry]:
        """Every round in the journal, with what was measured of its model."""
        measured = {measurement.of_round: measurement for measurement in self.measurements()}
        entries = []
        for number, link in enumerate(self._chain.links, start=1):
            if link.kind == "round":
                where = f"{self._chain.path}, line {number}"
                entry = replace(
                    from_json(RoundEntry, link.body, where=where), previous=link.previous
                )
                entries.append(
                    measured[entry.round].added_to(entry) if entry.round in measured else entry
                )
        return entries

    def measurements(self) -> list[Measurement]:
        """What was measured by secure sums of their own, in order."""
        return [
            from_json(Measurement, detail, where=str(self._chain.path))
            for event, detail in self.events
            if event == "measured"
        ]

    @property
    def last_round(self) -> int:
        """The last round in the journal; 0 before the first."""
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

    @property
    def released(self) -> Released | None:
        """The model beside the journal: of a finished run, or handed out before its end."""
        summary = self.summary
        if summary is not None and isinstance(summary.get("model_hash"), str):
            return Released(
                round=self.last_round,
                model_hash=summary["model_hash"],
                model_facts=summary.get("model_facts"),
            )
        handed = [detail for event, detail in self.events if event == RELEASED]
        return from_json(Released, handed[-1], where=str(self._chain.path)) if handed else None

    def read_model_facts(self) -> bytes | None:
        """`model.json` of a run that has a model; None where the version that finished it wrote
        none.

        Guarantee: the bytes whose SHA-256 the journal holds.
        """
        released = self.released
        known = None if released is None else released.model_facts
        if known is None:
            return None
        file = self.path / MODEL_FACTS
        content = read_bytes(file)
        if hashlib.sha256(content).hexdigest() != known:
            raise StorageError(
                f"{file} is not what the run wrote: it was changed since. Restore it from a backup."
            )
        return content

    def read_checkpoint(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]] | None:
        """Arrays and plain values of the last checkpoint; None before the first."""
        stored = self._checkpoint()
        return None if stored is None else (dict(stored.arrays), dict(stored.meta))

    def read_secret(self) -> bytes:
        """The seed that `write_secret` stored, to repeat an interrupted round bit for bit instead
        of drawing its noise anew.
        """
        return read_bytes(self.path / "secret.key")

    @cached_property
    def header(self) -> Header:
        """The first line."""
        return from_json(Header, self._chain.links[0].body, where=f"{self._chain.path}, line 1")

    @property
    def _data_folder(self) -> Path | None:
        """Where the plan's relative `data.path` starts."""
        return next(
            (Path(str(detail["folder"])) for event, detail in self.events if event == "records"),
            None,
        )

    def verify(self) -> str:
        """Read everything and check it against the chain; returns the hash of the last line."""
        self._chain = journal_at(self._chain.path).refreshed()
        self._check_header()
        self.rounds()
        stored = self._checkpoint()
        if stored is not None:
            known = {link.hash for link in self._chain.links} | {self._chain.origin}
            if stored.head not in known and not (
                stored.pending and stored.pending.previous in known
            ):
                raise StorageError(
                    f"{self._checkpoint_file} is not of this journal: {JOURNAL} lacks the lines "
                    f"before it. Restore {JOURNAL}."
                )
        if (self.path / MODEL_FACTS).exists():
            self.read_model_facts()
        file = self.path / "summary.json"
        if self.summary is not None and file.exists() and read_bytes(file) != pretty(self.summary):
            raise StorageError(
                f"{file} differs from the summary in {JOURNAL}. Delete it: {JOURNAL} holds the "
                "original."
            )
        return self.head

    def _check_header(self) -> None:
        self.__dict__.pop("header", None)
        if self.header.plan_file != digest_of(read_plan(self.path / "plan.toml")):
            raise StorageError(
                f"{self.path / 'plan.toml'} is not the plan that ran: it was changed since. "
                "Restore it from a backup."
            )

    @property
    def _checkpoint_file(self) -> Path:
        return self.path / "checkpoint.npz"

    def _checkpoint(self) -> RunCheckpoint | None:
        return RunCheckpoint.read(self._checkpoint_file, plan_hash=self.plan_hash)


def journal_at(path: Path) -> Chain:
    """The journal in a file, nothing of it read yet."""
    return Chain.of(FORMATS["journal"], path, origin_of=digest_of)


def digest_of(text: str) -> str:
    """SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_plan(path: Path) -> str:
    """The text of a plan file."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise StorageError(
            f"{path} is not the plan that was written: {error}. Restore it from a backup."
        ) from None


def parsed_plan(text: str, path: Path) -> TrainingPlan:
    """The plan that a run's folder holds."""
    try:
        return TrainingPlan.from_toml(text)
    except PlanError as error:
        raise StorageError(
            f"{path} is not the plan that was written, or of another version: {error}"
        ) from None


def pretty(body: Mapping[str, Any]) -> bytes:
    """A summary as `summary.json` holds it."""
    return (json.dumps(body, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
