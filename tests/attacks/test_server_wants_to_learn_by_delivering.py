"""A server wants to learn something of a silo from how it takes a run that is handed to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sumus.books import Ledger
from sumus.parties.delivery_messages import Offer, Piece, Receipt
from sumus.parties.parcel import Parcel
from sumus.runs import parcel_of_run
from sumus.secagg import SERVER, session_digest
from support.delivering import DeliveringFederation, Victim, small_plan


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeliveringFederation]:
    made = DeliveringFederation(tmp_path_factory.mktemp("learning"), small_plan())
    made.heard = made.delivering_to()
    assert made.run()["phase"] == "finished"
    for name in made.roster.names:
        made.stop(name)
    yield made
    made.close()


@pytest.fixture(scope="module")
def honest(trained: DeliveringFederation) -> Parcel:
    return parcel_of_run(trained.server_run, trained.local.server())


def said(receipt: Receipt) -> tuple[bytes, bytes, bytes, int, bool]:
    """Everything in an answer but who signs it."""
    return receipt.session, receipt.answers, receipt.parcel, receipt.have, receipt.whole


def test_silos_with_other_records_and_other_ledgers_answer_alike(
    trained: DeliveringFederation,
    honest: Parcel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bit for bit, but for sender and signature; what is in an answer follows from what was sent."""
    monkeypatch.setattr("sumus.parties.checked_run.show_run", lambda *ignored: None)
    entries = {
        name: Ledger.of_dataset("digits", state=trained.folder(name)).path.read_bytes()
        for name in ("silo-0", "silo-1")
    }
    assert entries["silo-0"] != entries["silo-1"]
    answers = {}
    for name in entries:
        victim = Victim(trained, tmp_path / name, honest, name)
        half = len(honest.encode()) // 2
        head = {"sender": SERVER, "session": victim.session, "parcel": honest.digest}
        answers[name] = [
            said(victim.offer(honest)),
            said(victim.hear(Piece(**head, offset=0, content=honest.encode()[:half]))),
            said(victim.offer(honest)),
            said(victim.hear(Piece(**head, offset=half, content=honest.encode()[half:]))),
            said(victim.offer(honest)),
        ]
        victim.state.close()
    assert answers["silo-0"] == answers["silo-1"]
    assert [each[3:] for each in answers["silo-0"]][-1] == (len(honest.encode()), True)


def test_neither_ledger_nor_round_memory_moves(
    trained: DeliveringFederation, honest: Parcel
) -> None:
    """A run costs no ε to receive, claims no round and writes no key, believed or not."""

    def kept() -> dict[str, bytes]:
        folder = trained.folder("silo-0")
        watched = ("ledger-*", "sessions/*/*", "sessions/*/certificates/*", "plans/*", "*.toml")
        return {
            str(path): path.read_bytes()
            for pattern in watched
            for path in folder.glob(pattern)
            if path.is_file()
        }

    before, party = kept(), trained.party("silo-0")
    opened = kept()
    identity = trained.local.identity
    for parcel in (replace(honest, weights=honest.weights[:-4]), honest):
        head = {
            "sender": SERVER,
            "session": session_digest(trained.agreement.terms, trained.roster),
            "parcel": parcel.digest,
        }
        plan_hash = bytes.fromhex(trained.agreement.plan.hash)
        content = parcel.encode()
        party.handle(Offer(**head, plan_hash=plan_hash, size=len(content)).encode(identity))
        party.handle(Piece(**head, offset=0, content=content).encode(identity))
    assert trained.shelf("silo-0").held(trained.agreement.plan.hash) is not None
    assert kept() == opened == before
