"""Whether a silo believes a run that a server sent it: everything is held against the plan that the
silo approved, the rosters that it trusts, what it remembers of its own answers, and what it was
sent before.

| said by the server | held against |
|---|---|
| header, summary, ε of every round | computed here, from the plan and the rounds |
| who was in which sum | certificates, signed by a quorum of the silos on the roster |
| that this silo was in it | the rounds that this silo claimed, and the certificates that it kept |
| the past | the journal that it was sent before, which this one must continue |
| the model | its hash in the journal; where it was measured, what a quorum signed to have been sent |
| `model.json` | made here, from plan and weights |
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar, final

import numpy as np

from sumus.books import (
    EVIDENCE,
    JOURNAL,
    MODEL_FACTS,
    Released,
    RunCheckpoint,
    RunFolder,
    pretty,
    short_name,
)
from sumus.errors import StorageError, SumusError
from sumus.files import replace_atomically
from sumus.parties.agreement import Agreement
from sumus.parties.checked_journal import check_journal
from sumus.parties.entries import write_model
from sumus.parties.evidence import EvidenceAudit, audit_evidence
from sumus.parties.own_memory import OwnMemory
from sumus.parties.parcel import Parcel, UnbelievedError
from sumus.parties.rebuilding import rebuilt
from sumus.parties.received import DeliveryNote, Shelf
from sumus.parties.shown_run import show_run
from sumus.parties.sums import model_hash, pack_model
from sumus.secagg import RosterHistory

if TYPE_CHECKING:
    from sumus.predicting import ModelFacts

__all__ = ["Recipient", "keep_run"]

P = ParamSpec("P")
R = TypeVar("R")
_VERSION_CHARACTERS = frozenset(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.+-_"
)


@final
@dataclass(frozen=True, kw_only=True)
class Recipient:
    """Who looks at a run.

    Args:
        silo: its name.
        agreement: the plan as the silo computes it.
        rosters: that it trusts, and has trusted.
        memory: of its own answers.
        shelf: where it keeps what it believes.
    """

    silo: str
    agreement: Agreement
    rosters: RosterHistory
    memory: OwnMemory
    shelf: Shelf


def keep_run(content: bytes | bytearray, recipient: Recipient, *, parcel: bytes) -> DeliveryNote:
    """Check a run that was delivered and put it on the shelf.

    Guarantee: what is on the shelf afterwards was written by this silo, under names that it chose,
        from values that it has checked; a run that is not believed leaves nothing behind, and is
        an `UnbelievedError`.

    Args:
        content: the whole parcel; `parcel`: its SHA-256.
    """
    shelf, plan = recipient.shelf, recipient.agreement.plan
    with shelf.staging() as folder:
        sent = _believed(Parcel.decode, bytes(content))
        for name, part in (
            ("plan.toml", plan.to_toml().encode()),
            (JOURNAL, sent.journal),
            (EVIDENCE, sent.evidence),
        ):
            replace_atomically(folder / name, part)
        run, audit, released = _believed(_checked, folder, sent, recipient)
        weights = _believed(sent.vector, recipient.agreement.design.resolved.dimension)
        module, own_facts = rebuilt(recipient.agreement, weights)
        certified = _believed(_check_model, sent, own_facts, weights, run, audit, released)
        write_model(run, module)
        released_state = weights.astype(np.float64)
        RunCheckpoint(
            arrays={"iterate": released_state.astype(np.float32), "mean": released_state},
            meta={"round": run.last_round},
            plan_hash=plan.hash,
            head=run.head,
        ).write(folder / "checkpoint.npz")
        if own_facts is not None:
            replace_atomically(folder / MODEL_FACTS, sent.facts)
        if run.summary is not None:
            replace_atomically(folder / "summary.json", pretty(run.summary))
        note = DeliveryNote(
            parcel=parcel.hex(),
            plan_hash=plan.hash,
            received=datetime.now(UTC).isoformat(timespec="seconds"),
            round=run.last_round,
            finished=run.summary is not None,
            model=released.model_hash,
            head=run.head,
            certified=certified,
            unopened=recipient.memory.unopened(_told(run, audit)),
        )
        place = shelf.place(folder, note, name=short_name(plan))
    show_run(place, recipient.agreement)
    return note


def _believed(check: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
    """What a check returns; whatever it raises means that the run is not believed."""
    try:
        return check(*arguments, **options)
    except UnbelievedError:
        raise
    except (SumusError, ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise UnbelievedError(str(error) or type(error).__name__) from error


def _checked(
    folder: Path, sent: Parcel, recipient: Recipient
) -> tuple[RunFolder, EvidenceAudit, Released]:
    """Journal and evidence against plan, rosters, own memory and what was sent before."""
    run = RunFolder.open(folder)
    _hold(sent.journal == b"".join(link.line for link in run.links), "its journal has a torn end")
    check_journal(run, recipient.agreement)
    _require_continued(run, recipient.shelf)
    trusted = [epoch.roster for epoch in recipient.rosters.epochs]
    audit = audit_evidence(run, recipient.agreement, trusted)
    _hold(audit.passed, "; ".join(audit.findings[:3]))
    _hold(bool(audit.fingerprints) or not run.rounds(), "nobody signed for it")
    contradicted = list(
        recipient.memory.contradictions(
            audit.sums,
            silo=recipient.silo,
            agreement=recipient.agreement,
            rosters=recipient.rosters,
        )
    )
    _hold(not contradicted, "; ".join(contradicted[:3]))
    released = run.released
    if released is None or released.round != run.last_round:
        raise UnbelievedError("its journal does not end with the model that it released.")
    return run, audit, released


def _told(run: RunFolder, audit: EvidenceAudit) -> set[str]:
    """The sums of which a journal says what came of them."""
    measured = {each.round for each in run.measurements()}
    counts = {
        round_id
        for round_id, proved in audit.sums.items()
        if proved.purpose == "metrics" and proved.round in measured
    }
    return counts | {entry.round_id for entry in run.rounds()}


def _require_continued(run: RunFolder, shelf: Shelf) -> None:
    """A journal that was delivered before is the beginning of this one."""
    try:
        before = shelf.journal(run.plan_hash)
    except StorageError:
        return  # somebody here has damaged it: it is delivered again
    if before is not None:
        known = before.links
        _hold(
            [link.hash for link in run.links[: len(known)]] == [link.hash for link in known],
            "its journal is not the one that was delivered before, continued",
        )


def _check_model(
    sent: Parcel,
    own: ModelFacts | None,
    weights: np.ndarray,
    run: RunFolder,
    audit: EvidenceAudit,
    released: Released,
) -> bool:
    """The model is the one that the journal names, and `model.json` what this silo makes of it;
    returns whether a quorum signed to have been sent it.
    """
    vector = weights.astype(np.float64)
    _hold(model_hash(vector) == released.model_hash, "its model is another than the journal's")
    _hold((own is None) == (released.model_facts is None), "it has a model without rules")
    _hold((own is None) == (not sent.facts), "it has rules without a model")
    if own is not None:
        said = type(own).from_bytes(sent.facts, run.path / MODEL_FACTS)
        version = 0 < len(said.sumus) <= 40 and set(said.sumus) <= _VERSION_CHARACTERS
        _hold(version, "its model.json is of no version")
        _hold(
            said == replace(own, sumus=said.sumus) and said.to_bytes() == sent.facts,
            "its model.json is not what the plan and the weights say",
        )
        digest = hashlib.sha256(sent.facts).hexdigest()
        _hold(digest == released.model_facts, "its model.json is another than the journal's")
    last = [each for each in run.measurements() if each.of_round == run.last_round]
    if not last:
        return False
    payload = hashlib.sha256(pack_model(last[-1].round - 1, vector, "metrics")).hexdigest()
    signed = {
        each.payload
        for each in audit.sums.values()
        if (each.round, each.purpose) == (last[-1].round, "metrics")
    }
    _hold(payload in signed, "its model is another than the one that the silos have measured")
    return True


def _hold(holds: bool, why: str) -> None:
    if not holds:
        raise UnbelievedError(f"{why}.")
