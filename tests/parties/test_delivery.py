"""Runs that are handed to the silos: everybody has the same, also who was away or came late."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sumus.books import RunFolder
from sumus.cli import main
from sumus.data import load_silo
from sumus.errors import PeerProtocolError, StorageError
from sumus.events import read_trail
from sumus.parties import (
    Restored,
    agree_on,
    audit_evidence,
    last_sum,
    open_party,
    received_by,
)
from sumus.parties.delivery_messages import DELIVERY, Offer, Piece, Receipt, Receipts
from sumus.parties.parcel import Parcel, most_parcel_bytes
from sumus.parties.received import DeliveryNote, Shelf
from sumus.plan import TrainingPlan
from sumus.predicting import Model
from sumus.randomness import RandomSource
from sumus.secagg import SERVER, Identity, decode_any, head_of
from support.delivering import DeliveringFederation, small_plan, start_of_another_plan
from support.local_federation import refused

SHARED = ("plan.toml", "journal.jsonl", "evidence.jsonl", "model.json", "summary.json", "model.pt")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeliveringFederation]:
    """Trained and handed out while one silo was away."""
    federation = DeliveringFederation(tmp_path_factory.mktemp("delivery"), small_plan())
    federation.run(1)
    federation.heard = federation.delivering_to("silo-0", "silo-1")
    assert federation.run()["phase"] == "finished"
    federation.heard = None
    yield federation
    federation.close()


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[DeliveringFederation]:
    made = DeliveringFederation(tmp_path, small_plan(**{"evaluation.metrics": "none"}))
    yield made
    made.close()


def held(federation: DeliveringFederation, name: str) -> Path:
    place = federation.shelf(name).held(federation.agreement.plan.hash)
    assert place is not None, (federation.folder(name) / "refusals.log").read_text()
    return place


def test_every_silos_folder_holds_what_the_operators_does(trained: DeliveringFederation) -> None:
    """Who was away has it after the next request, and then everybody knows of everybody."""
    operators = trained.server_run.path
    assert trained.shelf("silo-2").held(trained.agreement.plan.hash) is None
    said = trained.run(0)["delivered"]
    assert (said["received"], said["missing"]) == (["silo-0", "silo-1", "silo-2"], {})
    digests = {
        name: {file: hashlib.sha256((place / file).read_bytes()).hexdigest() for file in SHARED}
        for name, place in [
            ("operator", operators),
            *((name, held(trained, name)) for name in trained.roster.names),
        ]
    }
    assert all(files == digests["operator"] for files in digests.values())
    for name in trained.roster.names:
        who = received_by(held(trained, name), [trained.roster])
        assert list(who.values()) == [trained.roster.names]
    assert list(received_by(operators, [trained.roster]).values()) == [trained.roster.names]


def test_a_silos_people_predict_report_and_audit_with_it(
    trained: DeliveringFederation, capsys: pytest.CaptureFixture[str]
) -> None:
    place, operators = held(trained, "silo-0"), trained.server_run.path
    records = load_silo(trained.agreement.plan, "silo-0").silos[0].test.x[:20]
    ours, theirs = (Model.of_run(each).predict_proba(records) for each in (place, operators))
    assert np.array_equal(ours, theirs)
    run = RunFolder.open(place)
    audit = audit_evidence(run, agree_on(run.plan), [trained.roster])
    assert audit.passed
    assert audit.rounds == 2
    assert "ε ≤" in (place / "report.html").read_text()
    assert "## Privacy" in (place / "card.md").read_text()
    assert main(["audit", "evidence", str(place)]) == 0
    assert main(["report", str(place)]) == 0
    capsys.readouterr()
    assert main(["silo", "received", str(trained.folder("silo-0")), "--json"]) == 0
    (facts,) = json.loads(capsys.readouterr().out)["runs"]
    assert facts["whole"]
    assert facts["finished"]
    assert facts["certified"]
    assert facts["model"] == (run.summary or {})["model_hash"]


def test_it_is_in_the_logs_and_the_silos_audit_trail(
    trained: DeliveringFederation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="sumus")
    trained.run(0)
    (told,) = [each.happened for each in caplog.records if "run.delivered" in each.getMessage()]
    assert told.received == trained.roster.names
    assert told.missing == ()
    reading = read_trail(trained.folder("silo-0"))
    (line,) = [link.body for link in reading.links if link.kind == "run.received"]
    run = RunFolder.open(held(trained, "silo-0"))
    assert line["journal"] == run.head
    assert line["finished"]
    assert f"sha256:{line['model']}" == (run.summary or {})["model_hash"]


def test_what_arrived_is_not_sent_again(trained: DeliveringFederation) -> None:
    trained.run(0)
    kinds = []

    def heard(name: str, message: bytes) -> bytes:
        kinds.append(head_of(message).kind)
        return trained.party(name).handle(message)

    trained.heard = heard
    assert trained.run(0)["delivered"]["missing"] == {}
    trained.heard = None
    assert Piece.kind not in kinds
    assert kinds.count(Offer.kind) == 3


@pytest.mark.deep
def test_a_run_that_was_stopped_is_handed_out_with_the_model_of_its_last_round(
    federation: DeliveringFederation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert federation.run(1)["phase"] == "paused"
    assert federation.shelf("silo-0").held(federation.agreement.plan.hash) is None
    assert federation.run(0)["phase"] == "paused"
    early = held(federation, "silo-0")
    assert early.name.endswith("-round-1")
    model = Model.of_run(early)
    assert model.notes == ("the model of an unfinished run, handed out after round 1 of 2",)
    assert federation.server_run.released == RunFolder.open(early).released
    assert Model.of_run(federation.server_run.path).facts == model.facts
    assert main(["report", str(early)]) == 0
    # it goes on, and what is finished takes the place of what was not
    assert federation.run()["phase"] == "finished"
    whole = held(federation, "silo-0")
    assert not early.exists()
    before, after = model.facts.model_hash, Model.of_run(whole).facts.model_hash
    assert before != after
    assert federation.shelf("silo-0").held(federation.agreement.plan.hash) == whole
    (note,) = [note for _, note in federation.shelf("silo-0").runs()]
    assert not note.certified  # nobody has measured it
    assert capsys.readouterr().err == ""


def test_nothing_is_handed_out_before_the_first_round(federation: DeliveringFederation) -> None:
    ended = federation.run(0)
    assert ended["phase"] == "failed"
    assert "released no model yet" in ended["error"]


@pytest.mark.deep
def test_a_vault_that_is_killed_on_the_way_has_it_sent_again(
    federation: DeliveringFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In twenty pieces: the fifth kills every vault, the answer to a later one is lost."""
    for module in ("handing_out", "inbox"):
        monkeypatch.setattr(f"sumus.parties.{module}.piece_bytes", lambda agreement: 700)
    pieces: dict[str, int] = {}

    def heard(name: str, message: bytes) -> bytes | None:
        if head_of(message).kind == Piece.kind:
            pieces[name] = pieces.get(name, 0) + 1
            if pieces[name] == 5:
                federation.stop(name)
            if pieces[name] == 12:
                federation.party(name).handle(message)
                return None
        return federation.party(name).handle(message)

    federation.heard = heard
    assert federation.run()["phase"] == "finished"
    assert federation.job.state()["delivered"]["received"] == []
    began = dict(pieces)
    assert min(began.values()) == 12  # the second sending was interrupted too
    assert federation.run(0)["delivered"]["missing"] == {}
    took = {name: pieces[name] - began[name] for name in began}
    assert max(took.values()) < 5 + 20 - 7  # it went on where it was
    assert len({held(federation, name) for name in federation.roster.names}) == 3


@pytest.mark.deep
def test_a_folder_that_somebody_damaged_is_delivered_again(
    federation: DeliveringFederation, capsys: pytest.CaptureFixture[str]
) -> None:
    federation.run()
    place, vault = held(federation, "silo-1"), str(federation.folder("silo-1"))
    good = {path.name: path.read_bytes() for path in place.iterdir()}
    for name in ("model.pt", "evidence.jsonl", "journal.jsonl"):
        (place / name).write_bytes(b"something else")
        assert main(["silo", "received", vault]) == 5
        assert "was changed since it was received" in capsys.readouterr().err
        assert federation.run(0)["delivered"]["missing"] == {}
        assert (held(federation, "silo-1") / name).read_bytes() == good[name]
        assert main(["silo", "received", vault]) == 0


@pytest.mark.deep
def test_it_lies_where_the_silos_people_want_it_as_open_as_that_folder(
    federation: DeliveringFederation, tmp_path: Path
) -> None:
    """Others may read it where they may read the folder; by default only the vault's owner may."""
    shared = tmp_path / "for the department"
    shared.mkdir()
    shared.chmod(0o750)
    site = federation.folder("silo-0") / "site.toml"
    site.write_text(site.read_text() + f'received = "{shared}"\n')
    federation.run()
    (place,) = shared.iterdir()
    assert place.stat().st_mode & 0o777 == 0o750
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o640}
    assert not (federation.folder("silo-0") / "received").exists()
    assert federation.folder("silo-1").stat().st_mode & 0o077 == 0
    assert main(["silo", "received", str(federation.folder("silo-0"))]) == 0


@pytest.mark.deep
def test_a_silo_without_room_refuses_and_the_others_have_it(
    federation: DeliveringFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Shelf.place

    def full(shelf: Shelf, folder: Path, note: DeliveryNote, *, name: str) -> Path:
        if "silo-1" in str(folder):
            raise StorageError("no space left")
        return place(shelf, folder, note, name=name)

    monkeypatch.setattr(Shelf, "place", full)
    federation.run()
    said = federation.job.state()["delivered"]
    assert said["received"] == ["silo-0", "silo-2"]
    assert "cannot use its own data or disk" in said["missing"]["silo-1"]
    assert not list((federation.folder("silo-1") / "received").glob("*"))
    assert federation.server_run.summary is not None


@pytest.mark.deep
def test_a_vault_that_came_from_a_backup_believes_rounds_that_it_has_forgotten(
    federation: DeliveringFederation,
) -> None:
    """Its memory of rounds is gone with the disk; those that count as answered may be claimed."""
    federation.run()
    name = "silo-0"
    federation.stop(name)
    folder = federation.folder(name)
    for path in folder.glob("sessions/*/rounds.log"):
        path.unlink()
    for path in folder.glob("sessions/*/certificates/*"):
        path.unlink()
    shutil.rmtree(folder / "received")
    plan = federation.agreement.plan
    # a control: without a note that it was restored, the silo knows that it never answered
    assert list(federation.run(0)["delivered"]["missing"]) == [name]
    assert "which has not answered it" in (folder / "refusals.log").read_text()
    federation.stop(name)
    Restored(
        backup="0" * 64,
        made="2026-01-01T00:00:00+00:00",
        restored="2026-01-02T00:00:00+00:00",
        answered={plan.hash: last_sum(plan)},
        known_only=True,
    ).write(folder)
    assert federation.run(0)["delivered"]["missing"] == {}


VISITS = """
[privacy]
epsilon = 8.0
[data]
path = "visits.csv"
silo_column = "clinic"
label_column = "ill"
columns = ["age"]
bounds = {age = [0, 100]}
records_per_silo = [300, 300, 300]
[data.categories]
clinic = ["Aachen", "Basel", "Como"]
ill = ["0", "1"]
"""


@pytest.mark.deep
def test_a_description_is_handed_out_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that counts records has no model to predict with, and is received all the same."""
    monkeypatch.chdir(tmp_path)
    Path("plan.toml").write_text(VISITS)
    assert main(["describe", "plan.toml", "--write", "describe.toml"]) == 0
    files = {}
    for place, clinic in enumerate(("Aachen", "Basel", "Como")):
        lines = "".join(f"{clinic},{(7 * row + place) % 100},{row % 2}\n" for row in range(200))
        Path(f"{clinic}.csv").write_text(f"clinic,age,ill\n{lines}")
        files[clinic] = str(tmp_path / f"{clinic}.csv")
    plan = agree_on(TrainingPlan.load("describe.toml")).plan
    federation = DeliveringFederation(tmp_path / "federation", plan, data=files)
    assert federation.run()["phase"] == "finished"
    assert federation.job.state()["delivered"]["missing"] == {}
    capsys.readouterr()
    assert main(["describe", str(held(federation, "Basel"))]) == 0
    ours = capsys.readouterr().out
    assert main(["describe", str(federation.server_run.path)]) == 0
    theirs = capsys.readouterr().out
    assert "age" in ours
    assert ours.replace(str(held(federation, "Basel")), "RUN") == theirs.replace(
        str(federation.server_run.path), "RUN"
    )
    federation.close()


@pytest.mark.deep
@pytest.mark.parametrize("named", ["by its hash", "by the plan whose run has released it"])
def test_a_run_that_goes_on_from_another_model_is_handed_out_too(
    tmp_path: Path, named: str
) -> None:
    plain = small_plan(**{"evaluation.metrics": "none"})
    size = agree_on(plain).design.resolved.dimension
    start = start_of_another_plan(size)
    name = start.hash if named == "by its hash" else f"plan:{start.origin.plan_hash}"
    chained = plain.with_overrides({"training.start_from": name})
    federation = DeliveringFederation(tmp_path, agree_on(chained).plan)
    assert federation.run(start=start.to_text())["phase"] == "finished"
    assert federation.job.state()["delivered"]["missing"] == {}
    for silo in federation.roster.names:
        assert RunFolder.open(held(federation, silo)).start == start.origin
    federation.close()


# -- bytes


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=80)
)
def test_a_parcel_is_read_back_and_nothing_else_is(
    journal: bytes, evidence: bytes, facts: bytes, weights: bytes
) -> None:
    sent = Parcel(journal=journal, evidence=evidence, facts=facts, weights=weights)
    content = sent.encode()
    assert Parcel.decode(content) == sent
    assert sent.digest == hashlib.sha256(content).digest()
    for cut in range(len(content) - len(weights)):
        with pytest.raises(PeerProtocolError):
            Parcel.decode(content[:cut])


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_bytes_that_are_no_parcel_are_refused_in_words(content: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        Parcel.decode(content)


def test_a_length_beyond_the_end_costs_nothing() -> None:
    huge = b"sumus parcel 1\n" + (1 << 62).to_bytes(8, "little") + b"x"
    with pytest.raises(PeerProtocolError, match="in the middle of a part"):
        Parcel.decode(huge)


def test_weights_are_finite_numbers_of_either_precision() -> None:
    for kind in ("<f4", "<f8"):
        numbers = np.arange(5, dtype=kind)
        parcel = Parcel(journal=b"", evidence=b"", facts=b"", weights=numbers.tobytes())
        assert np.array_equal(parcel.vector(5), numbers)
        with pytest.raises(PeerProtocolError, match="bytes of weights"):
            parcel.vector(6)
        for odd in (np.nan, np.inf):
            numbers[3] = odd
            broken = Parcel(journal=b"", evidence=b"", facts=b"", weights=numbers.tobytes())
            with pytest.raises(PeerProtocolError, match="NaN or infinity"):
                broken.vector(5)


digests = st.binary(min_size=32, max_size=32)
numbers = st.integers(0, (1 << 64) - 1)
SIGNER = Identity.generate("a", RandomSource.simulation(1))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_messages_encode_to_what_they_decode_from(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(DELIVERY.values())))
    head = {
        "sender": SERVER if kind.from_server else data.draw(st.integers(0, 9)),
        "session": data.draw(digests),
    }
    fields = {
        Offer: {"plan_hash": digests, "parcel": digests, "size": numbers},
        Piece: {"parcel": digests, "offset": numbers, "content": st.binary(max_size=60)},
        Receipt: {"answers": digests, "parcel": digests, "have": numbers, "whole": st.booleans()},
        Receipts: {"parcel": digests, "signed": st.just(())},
    }[kind]
    message = kind(**head, **{name: data.draw(each) for name, each in fields.items()})
    encoded = message.encode(SIGNER)
    assert decode_any(encoded, DELIVERY) == message
    at = data.draw(st.integers(0, len(encoded) - 1))
    changed = bytearray(encoded)
    changed[at] ^= 1 + data.draw(st.integers(0, 254))
    try:
        other = decode_any(bytes(changed), DELIVERY)
    except PeerProtocolError:
        return
    assert bytes(changed) == other.encode(SIGNER)[:-64] + bytes(changed)[-64:]


def test_the_bound_leaves_room_for_what_runs_really_take() -> None:
    """A sum takes some 2 KiB in journal and evidence, an eighth of what a silo is ready for."""
    agreement = agree_on(small_plan(**{"federation.rounds": 1000, "evaluation.metrics": "none"}))
    most = most_parcel_bytes(agreement)
    assert most < 32 << 20
    assert most > 1000 * 2 * 2048


def test_a_silo_without_an_inbox_refuses(federation: DeliveringFederation) -> None:
    local = federation.local
    offer = Offer(sender=SERVER, session=bytes(32), plan_hash=bytes(32), parcel=bytes(32), size=1)
    local.start(0)
    assert "keeps no runs" in refused(local.ask(0, offer.encode(local.identity)))
    local.stop(0)


def test_an_offer_opens_a_process_that_has_just_started(federation: DeliveringFederation) -> None:
    """Neither torch nor records are loaded for the sake of an offer."""
    party = open_party(federation.folder("silo-0"))
    offer = Offer(
        sender=SERVER,
        session=bytes(32),
        plan_hash=bytes.fromhex(federation.agreement.plan.hash),
        parcel=bytes(32),
        size=1,
    )
    answer = party.handle(offer.encode(federation.local.identity))
    assert head_of(answer).kind == 12
    party.close()
