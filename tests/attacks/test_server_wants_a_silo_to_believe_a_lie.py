"""A server wants a silo's people to use another model, or to read another history, than what was
trained; or to have its own files opened by them.

The server holds its own key, so it signs whatever it likes and rebuilds every hash chain. What it
cannot make are signatures of a quorum of silos, and what the silo computes and remembers itself.
Every lie has the same control: the run as it was is believed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sumus.books import RunFolder
from sumus.errors import PeerProtocolError, StorageError
from sumus.files import Link
from sumus.parties import agree_on, checked_run, received_by
from sumus.parties.delivery_messages import Offer, Piece, Receipt, Receipts
from sumus.parties.own_memory import OwnMemory
from sumus.parties.parcel import Parcel, UnbelievedError
from sumus.parties.rebuilding import rebuilt as rebuilt_model
from sumus.parties.received import DeliveryNote
from sumus.parties.silo import SiloParty
from sumus.randomness import RandomSource
from sumus.runs import parcel_of_run
from sumus.secagg import (
    SERVER,
    SERVER_NAME,
    Identity,
    Refusal,
    Roster,
    SetCertificate,
    decode_any,
    session_digest,
)
from support.delivering import (
    DeliveringFederation,
    Victim,
    small_plan,
    start_of_another_plan,
)
from support.local_federation import refused

NAME = "silo-0"
Body = dict[str, Any]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeliveringFederation]:
    federation = DeliveringFederation(tmp_path_factory.mktemp("lies"), small_plan())
    federation.heard = federation.delivering_to()
    assert federation.run()["phase"] == "finished"
    for name in federation.roster.names:
        federation.stop(name)
    yield federation
    federation.close()


@pytest.fixture(scope="module")
def honest(trained: DeliveringFederation) -> Parcel:
    return parcel_of_run(trained.server_run, trained.local.server())


@pytest.fixture
def victim(
    trained: DeliveringFederation,
    honest: Parcel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Victim]:
    """Pages are drawn where a test looks at them."""
    if "page" not in request.node.name and "names_of_files" not in request.node.name:
        monkeypatch.setattr("sumus.parties.checked_run.show_run", lambda *ignored: None)
    made = Victim(trained, tmp_path, honest)
    yield made
    made.state.close()


def rebuilt(content: bytes, change: Callable[[int, str, Body], Body | None]) -> bytes:
    """A chain with changed lines, every hash made anew; None leaves a line out."""
    lines, previous = [], None
    for number, text in enumerate(content.splitlines()):
        entry = json.loads(text)
        body = change(number, entry["kind"], entry["body"])
        if body is not None:
            link = Link(entry["kind"], body, previous or entry["previous"])
            lines.append(link.line)
            previous = link.hash
    return b"".join(lines)


def lines_of(kind: str, **changes: Any) -> Callable[[Parcel], Parcel]:
    """The parcel with other values in every line of a kind of the journal."""

    def change(number: int, found: str, body: Body) -> Body:
        return body | changes if found == kind else body

    return lambda sent: replace(sent, journal=rebuilt(sent.journal, change))


def added(kind: str, body: Body) -> Callable[[Parcel], Parcel]:
    """A line more, in front of the last."""

    def lie(sent: Parcel) -> Parcel:
        *lines, last = sent.journal.splitlines()
        before = json.loads(lines[-1])["hash"]
        link = Link(kind, body, before)
        end = json.loads(last)
        ended = Link(end["kind"], end["body"], link.hash)
        return replace(
            sent, journal=b"".join(line + b"\n" for line in lines) + link.line + ended.line
        )

    return lie


def event(name: str, detail: Body, time: str = "2026-01-01T00:00:00+00:00") -> Body:
    return {"event": name, "detail": detail, "time": time}


def other_weights(sent: Parcel) -> Parcel:
    numbers = np.frombuffer(sent.weights, dtype="<f4").copy()
    numbers[3] += 1.0
    return replace(sent, weights=numbers.tobytes())


def other_weights_all_through(sent: Parcel) -> Parcel:
    """Another model with its own hash and facts everywhere in journal and facts."""
    changed = other_weights(sent)
    _, facts = rebuilt_model(_federation.agreement, np.frombuffer(changed.weights, dtype="<f4"))
    assert facts is not None
    content = facts.to_bytes()
    named = {
        "model_hash": facts.model_hash,
        "model_facts": hashlib.sha256(content).hexdigest(),
    }
    return replace(lines_of("summary", **named)(changed), facts=content)


_federation: Any = None


@pytest.fixture(autouse=True)
def _known(trained: DeliveringFederation) -> None:
    global _federation
    _federation = trained


def without_round(sent: Parcel) -> Parcel:
    """The first round never happened."""

    def change(number: int, kind: str, body: Body) -> Body | None:
        return None if kind == "round" and body["round"] == 1 else body

    return replace(sent, journal=rebuilt(sent.journal, change))


def other_survivors(sent: Parcel) -> Parcel:
    def change(number: int, kind: str, body: Body) -> Body:
        if kind == "round" and body["round"] == 1:
            return body | {"survivors": body["survivors"][:2], "dropped": body["survivors"][2:]}
        return body

    return replace(sent, journal=rebuilt(sent.journal, change))


def made_up_signatures(sent: Parcel) -> Parcel:
    """Certificates that the server signs itself, over signatures that no silo made."""

    def change(number: int, kind: str, body: Body) -> Body:
        if kind != "certificate":
            return body
        known = decode_any(base64.b64decode(body["message"]))
        assert isinstance(known, SetCertificate)
        forged = replace(known, signatures=dict.fromkeys(known.signatures, bytes(64)))
        message = forged.encode(_federation.local.identity)
        return body | {"message": base64.b64encode(message).decode()}

    return replace(sent, evidence=rebuilt(sent.evidence, change))


def own_roster(sent: Parcel) -> Parcel:
    """A roster of the server's own making, with keys of its own."""
    server = Identity.generate(SERVER_NAME, RandomSource())
    silos = [Identity.generate(f"silo-{number}", RandomSource()) for number in range(3)]
    text = Roster.of(server, silos).to_text()

    def change(number: int, kind: str, body: Body) -> Body:
        return {"text": text} if kind == "roster" else body

    return replace(sent, evidence=rebuilt(sent.evidence, change))


def other_rules(sent: Parcel) -> Parcel:
    """Classes in another order, so that every prediction says something else."""
    facts = json.loads(sent.facts)
    facts["labels"]["names"] = facts["labels"]["names"][::-1]
    return replace(sent, facts=(json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode())


LIES: dict[str, Callable[[Parcel], Parcel]] = {
    "other weights": other_weights,
    "other weights under their own name": other_weights_all_through,
    "weights that are no numbers": lambda sent: replace(
        sent, weights=np.full(len(sent.weights) // 4, np.nan, dtype="<f4").tobytes()
    ),
    "weights of another length": lambda sent: replace(sent, weights=sent.weights[:-4]),
    "other rules for rows": other_rules,
    "no rules for rows": lambda sent: replace(sent, facts=b""),
    "an accuracy of its own": lines_of("summary", accuracy=0.999),
    "a smaller ε": lines_of("summary", epsilon=0.01),
    "a smaller ε in every round": lines_of("round", epsilon_spent=0.01),
    "a guarantee of its own": lines_of("run", guarantee=None),
    "a plan of its own": lines_of("run", plan_file="0" * 64),
    "a run that is void for a reason of its own": lines_of("run", void="<b>because</b>"),
    "a round less": without_round,
    "other survivors": other_survivors,
    "signatures that it made up": made_up_signatures,
    "a roster that it made up": own_roster,
    "no evidence": lambda sent: replace(sent, evidence=b""),
    "no end": lambda sent: replace(
        sent, journal=b"".join(sent.journal.splitlines(keepends=True)[:-1])
    ),
    "a torn end": lambda sent: replace(sent, journal=sent.journal[:-1]),
    "a place for records": added("event", event("records", {"folder": "/etc"})),
    "an event that nobody knows": added("event", event("run this", {"command": "rm -rf /"})),
    "a reason that moves the cursor": added(
        "event", event("aborted", {"round": 1, "reason": "\x1b[2Jgone"})
    ),
    "a page for a reason": added("event", event("aborted", {"round": 1, "reason": "x" * 3000})),
    "a date that is none": added(
        "event", event("resumed", {"after_round": 1}, time="<script>alert(1)</script>")
    ),
    "a stranger among the silos": added(
        "event", event("invited", {"round": 1, "silos": ["silo-0", "mallory"]})
    ),
    "a key more": lines_of("round", command="rm -rf /"),
    "a measure of its own": added(
        "event",
        event(
            "measured",
            {
                "round": 2,
                "of_round": 2,
                "metrics": {"<img src=x>": 1.0},
                "metrics_plus_minus": {},
                "seconds": 1.0,
                "bytes_up": 1,
                "bytes_down": 1,
            },
        ),
    ),
    "what no server can know": lines_of("round", silo_scores=[0.1, 0.2, 0.3]),
    "nothing but brackets": lambda sent: replace(sent, journal=b"[" * 100_000),
    "another file altogether": lambda sent: replace(sent, journal=b"\x80\x04."),
}


REASONS = {
    "other weights": "another than the journal's",
    "other weights under their own name": "another than the one that the silos have measured",
    "weights that are no numbers": "NaN or infinity",
    "weights of another length": "bytes of weights",
    "other rules for rows": "not what the plan and the weights say",
    "no rules for rows": "rules without a model",
    "an accuracy of its own": "accuracy of its summary",
    "a smaller ε": "epsilon of its summary",
    "a smaller ε in every round": "the plan has spent",
    "a guarantee of its own": "guarantee of its first line",
    "a plan of its own": "not the plan that ran",
    "a run that is void for a reason of its own": "void for an unknown reason",
    "a round less": "rounds, seconds of its summary",
    "other survivors": "other survivors than were certified",
    "signatures that it made up": "signature of silo",
    "a roster that it made up": "is not one that was given",
    "no evidence": "has no certificate",
    "no end": "neither with a summary nor with a released model",
    "a torn end": "a torn end",
    "a place for records": "an event is not known",
    "an event that nobody knows": "an event is not known",
    "a reason that moves the cursor": "not a line of plain text",
    "a page for a reason": "not a line of plain text",
    "a date that is none": "has no date",
    "a stranger among the silos": "names a silo that is none",
    "a key more": "'command', which this version does not know",
    "a measure of its own": "is no measure of the task",
    "what no server can know": "tells what no server knows",
    "nothing but brackets": "holds no run",
    "another file altogether": "bytes that we never write",
}


def test_the_run_as_it_was_is_believed(victim: Victim) -> None:
    """The control of everything below."""
    assert victim.deliver(victim.parcel).whole
    assert victim.held is not None
    assert RunFolder.open(victim.held).verify() == victim.federation.server_run.head


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_and_leaves_nothing_behind(victim: Victim, lie: str) -> None:
    told = LIES[lie](victim.parcel)
    assert told != victim.parcel
    with pytest.raises(UnbelievedError, match=REASONS[lie]):
        victim.deliver(told)
    assert victim.held is None
    assert list(victim.shelf.root.iterdir()) == []
    # it is known from now on, and costs nothing to refuse again
    with pytest.raises(UnbelievedError, match="refused before"):
        victim.offer(told)


STARTS: dict[str, tuple[Body | None, str]] = {
    "of another plan": ({"plan_hash": "0" * 64}, "begins with another model"),
    "under no name": ({"model": "sha256:none"}, "begins with another model"),
    "with a page for a run": ({"run": "<p>" * 1000}, "not a line of plain text"),
    "with a world in it": ({"public": {"a": ["b"]}}, "public must be"),
    "nobody knows": (None, "must hold a JSON object"),
}


def test_a_model_that_the_run_did_not_begin_with_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a plan that goes on from what the run of another plan has released; the control is what
    really ran.
    """
    monkeypatch.setattr("sumus.parties.checked_run.show_run", lambda *ignored: None)
    plain = small_plan(**{"evaluation.metrics": "none"})
    start = start_of_another_plan(agree_on(plain).design.resolved.dimension)
    named = plain.with_overrides({"training.start_from": f"plan:{start.origin.plan_hash}"})
    federation = DeliveringFederation(tmp_path / "federation", agree_on(named).plan)
    federation.heard = federation.delivering_to()
    assert federation.run(start=start.to_text())["phase"] == "finished"
    federation.stop(NAME)
    sent = parcel_of_run(federation.server_run, federation.local.server())
    victim = Victim(federation, tmp_path, sent)
    for changes, why in STARTS.values():
        told = None if changes is None else asdict(start.origin) | changes
        with pytest.raises(UnbelievedError, match=why):
            victim.deliver(lines_of("run", start=told)(sent))
    assert victim.deliver(sent).whole
    victim.state.close()
    federation.close()


def test_after_a_lie_the_truth_is_believed(victim: Victim) -> None:
    for lie in ("other weights", "a torn end"):
        with pytest.raises(UnbelievedError):
            victim.deliver(LIES[lie](victim.parcel))
    assert victim.deliver(victim.parcel).whole


def test_a_silo_that_does_not_check_would_predict_with_the_servers_weights(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same lie with the checks taken out is on the shelf."""
    monkeypatch.setattr(checked_run, "_check_model", lambda *ignored: False)
    assert victim.deliver(other_weights(victim.parcel)).whole
    assert victim.held is not None
    stored = torch.load(victim.held / "model.pt", weights_only=True)
    sent = torch.load(victim.federation.server_run.path / "model.pt", weights_only=True)
    assert any(not torch.equal(stored[key], sent[key]) for key in sent)


def test_the_model_that_silos_measured_is_the_only_one_that_is_believed(victim: Victim) -> None:
    """A whole other run of the same plan, with hashes of its own, fails on what a quorum signed."""
    with pytest.raises(UnbelievedError, match="another than the one that the silos have measured"):
        victim.deliver(other_weights_all_through(victim.parcel))


def test_a_round_that_this_silo_did_not_answer_is_not_believed(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All silos but this one collude with the server, so that every signature is good."""
    remembered = OwnMemory.of_folder(victim.state.folder, victim.agreement.plan.hash)
    assert len(remembered.claimed) == 3
    monkeypatch.setattr(
        OwnMemory,
        "of_folder",
        classmethod(
            lambda cls, vault, plan: cls(
                claimed=frozenset(list(remembered.claimed)[:2]), certificates={}
            )
        ),
    )
    with pytest.raises(UnbelievedError, match="which has not answered it"):
        victim.deliver(victim.parcel)


def test_a_round_that_the_server_hides_is_counted(victim: Victim) -> None:
    """A round may be lost after silos have helped to open it, so its absence is no lie by itself;
    the silo's people read how many there were, and ε of all is on their ledger.
    """

    def change(number: int, kind: str, body: Body) -> Body | None:
        if kind == "round" and body["round"] == 1:
            return None
        if kind == "summary":
            seconds = sum(
                sum(json.loads(line)["body"].get("seconds", {}).values())
                for line in victim.parcel.journal.splitlines()
                if json.loads(line)["kind"] == "round" and json.loads(line)["body"]["round"] == 1
            )
            return body | {"rounds": 1, "lost_rounds": 1, "seconds": body["seconds"] - seconds}
        return body

    assert victim.deliver(victim.parcel).whole
    (honest,) = [note for _, note in victim.shelf.runs()]
    assert honest.unopened == 0
    other = Victim(victim.federation, victim.shelf.root / "other", victim.parcel)
    assert other.deliver(
        replace(victim.parcel, journal=rebuilt(victim.parcel.journal, change))
    ).whole
    (note,) = [note for _, note in other.shelf.runs()]
    assert note.unopened == 1


def test_history_is_not_rewritten(victim: Victim) -> None:
    """What was delivered before is the beginning of whatever is delivered later."""
    assert victim.deliver(victim.parcel).whole
    before = {path.name: path.read_bytes() for path in victim.held.iterdir()}  # type: ignore[union-attr]

    def later(number: int, kind: str, body: Body) -> Body:
        return body | {"started": "2027-01-01T00:00:00+00:00"} if kind == "run" else body

    other = replace(victim.parcel, journal=rebuilt(victim.parcel.journal, later))
    with pytest.raises(UnbelievedError, match="delivered before, continued"):
        victim.deliver(other)
    assert {path.name: path.read_bytes() for path in victim.held.iterdir()} == before  # type: ignore[union-attr]
    # a control: who has received nothing yet cannot tell, and the date is the server's word
    fresh = Victim(victim.federation, victim.shelf.root.parent / "fresh", victim.parcel)
    assert fresh.deliver(other).whole


def test_a_pickle_or_an_archive_for_weights_is_never_opened(
    victim: Victim, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Numbers are taken as numbers: bytes of the right length that would run code do not."""
    mark = tmp_path / "was here"

    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch '{mark}'",)

    wanted = len(victim.parcel.weights)
    bomb = pickle.dumps(Evil()).ljust(wanted, b"\0")[:wanted]

    def never(*ignored: object, **options: object) -> None:
        raise AssertionError("something that came from the server was opened")

    for module, name in ((pickle, "loads"), (zipfile.ZipFile, "read"), (torch, "load")):
        monkeypatch.setattr(module, name, never)
    with pytest.raises(UnbelievedError):
        victim.deliver(replace(victim.parcel, weights=bomb))
    assert victim.deliver(victim.parcel).whole
    monkeypatch.undo()
    assert not mark.exists()
    pickle.loads(bomb)  # noqa: S301 - the control: this is what opening it would do
    assert mark.exists()


def test_names_of_files_are_the_silos_own(victim: Victim) -> None:
    victim.deliver(victim.parcel)
    (place,) = victim.shelf.root.iterdir()
    assert place.name == f"digits-{victim.agreement.plan.hash[:16]}"
    assert {path.name for path in place.iterdir()} == {
        *("plan.toml", "journal.jsonl", "evidence.jsonl", "checkpoint.npz", "model.pt"),
        *("model.json", "summary.json", "delivery.json", "report.html", "card.md"),
    }


def test_markup_in_a_reason_is_text_in_the_silos_own_page(victim: Victim) -> None:
    """Reasons are the server's word and may say anything in one plain line; no page acts on it."""
    told = added("event", event("aborted", {"round": 1, "reason": "<img src=x onerror=alert(1)>"}))(
        victim.parcel
    )
    assert victim.deliver(told).whole
    assert victim.held is not None
    page = (victim.held / "report.html").read_text()
    assert "<img src=x" not in page
    assert "<img" not in (victim.held / "card.md").read_text()


def test_somebody_who_is_not_the_server_delivers_nothing(victim: Victim) -> None:
    offer = Offer(
        sender=SERVER,
        session=victim.session,
        plan_hash=bytes.fromhex(victim.agreement.plan.hash),
        parcel=victim.parcel.digest,
        size=len(victim.parcel.encode()),
    )
    for stranger in (
        victim.federation.local.identities["silo-1"],
        Identity.generate("x", RandomSource()),
    ):
        with pytest.raises(PeerProtocolError, match="signature"):
            victim.hear(offer, stranger)
    with pytest.raises(PeerProtocolError, match="nothing that was offered"):
        victim.hear(
            Piece(
                sender=SERVER,
                session=victim.session,
                parcel=victim.parcel.digest,
                offset=0,
                content=b"x",
            )
        )


def test_a_plan_that_was_not_approved_brings_nothing(victim: Victim) -> None:
    with pytest.raises(PeerProtocolError, match="not one that silo 'silo-0' has approved"):
        victim.offer(victim.parcel, plan_hash=bytes(32))
    with pytest.raises(PeerProtocolError, match="other terms or another roster"):
        victim.offer(victim.parcel, session=bytes(32))


def test_receipts_that_others_did_not_sign_confirm_nothing(victim: Victim) -> None:
    """Otherwise a server could hand every silo another model and say that all have the same."""
    assert victim.deliver(victim.parcel).whole
    own = victim.federation.local.identities
    fields = {"session": victim.session, "answers": bytes(32), "have": 1, "whole": True}

    def receipts(*signed: bytes) -> Receipts:
        return Receipts(
            sender=SERVER, session=victim.session, parcel=victim.parcel.digest, signed=signed
        )

    of_another = Receipt(sender=1, parcel=bytes(32), **fields).encode(own["silo-1"])
    of_a_part = Receipt(
        sender=1, parcel=victim.parcel.digest, **(fields | {"whole": False})
    ).encode(own["silo-1"])
    by_the_server = Receipt(sender=1, parcel=victim.parcel.digest, **fields).encode(
        victim.federation.local.identity
    )
    for forged in (of_another, of_a_part, by_the_server):
        with pytest.raises(PeerProtocolError, match="not one of a silo"):
            victim.hear(receipts(forged))
    assert victim.held is not None
    assert received_by(victim.held, [victim.federation.roster]) == {}
    good = Receipt(sender=1, parcel=victim.parcel.digest, **fields).encode(own["silo-1"])
    assert victim.hear(receipts(good)).whole
    confirmed = received_by(victim.held, [victim.federation.roster])
    assert confirmed == {victim.parcel.digest.hex(): ("silo-1",)}


def test_what_is_told_of_a_lie_says_nothing_of_what_the_silo_knows(
    trained: DeliveringFederation, honest: Parcel
) -> None:
    """The server hears that it is not believed; why stands in the silo's own log."""
    party: SiloParty = trained.party(NAME)
    identity, lie = trained.local.identity, without_round(honest)
    head = {
        "sender": SERVER,
        "session": session_digest(trained.agreement.terms, trained.roster),
        "parcel": lie.digest,
    }
    plan_hash = bytes.fromhex(trained.agreement.plan.hash)
    party.handle(Offer(**head, plan_hash=plan_hash, size=len(lie.encode())).encode(identity))
    answer = decode_any(
        party.handle(Piece(**head, offset=0, content=lie.encode()).encode(identity))
    )
    assert isinstance(answer, Refusal)
    assert refused(answer) == (
        "silo 'silo-0' does not believe this run. Its own people find the reason in its refusals.log."
    )
    log = (trained.folder(NAME) / "refusals.log").read_text().splitlines()
    assert "of its summary" in json.loads(log[-1])["reason"]
    trained.stop(NAME)


def test_a_note_of_a_later_version_is_refused_in_one_line(victim: Victim) -> None:
    victim.deliver(victim.parcel)
    place = victim.held
    assert place is not None
    path = place / "delivery.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(
        StorageError, match="has format 2 of a delivery note, this version of Sumus reads 1"
    ):
        DeliveryNote.of_folder(place)
    assert victim.held is None  # and is delivered again
