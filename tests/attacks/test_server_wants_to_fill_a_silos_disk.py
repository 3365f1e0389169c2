"""A server wants a silo to write down all that it is sent until the disk is full."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oracles.secagg_federation import round_id
from sumus.errors import PeerProtocolError
from sumus.events import read_trail
from sumus.parties import memory as silo_state, open_party
from sumus.parties.delivery_messages import Piece
from sumus.parties.parcel import UnbelievedError, most_parcel_bytes, piece_bytes
from sumus.parties.sums import pack_model
from sumus.runs import parcel_of_run
from sumus.secagg import SERVER, Message, Refusal, session_digest
from sumus.secagg.messages import MaskedInput
from support.delivering import DeliveringFederation, Victim, small_plan
from support.local_federation import LocalFederation, federation_of_folders, plan, refused

VICTIM = 0


@pytest.fixture
def across(tmp_path: Path) -> Iterator[LocalFederation]:
    made = LocalFederation(tmp_path, plan())
    yield made
    made.close()


def bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_by_inviting_without_end(across: LocalFederation) -> None:
    """Every invitation has a round id of its own; those that do not continue the plan leave nothing
    behind.
    """
    server = across.server()
    server.greet()
    session, size, rounds = (
        server.summing._session,
        across.agreement.plan.training.dimension,
        across.agreement.plan.federation.rounds,
    )
    assert session is not None
    assert size is not None

    def invite(label: object, number: int, parameters: np.ndarray) -> type[Message]:
        _, message = session.invite(
            round_id(label), payload=pack_model(number, parameters), sequence=2 * number
        )
        return type(across.ask(VICTIM, message))

    assert all(
        invite(("kept", number), number, np.zeros(size)) is MaskedInput
        for number in range(rounds - 1)
    )
    folder = (
        across.folder("silo-0")
        / "sessions"
        / session_digest(across.agreement.terms, across.roster).hex()
    )
    before, claims = bytes_below(folder), (folder / "rounds.log").read_bytes()
    for turn in range(50):
        assert invite(("beyond the plan", turn), rounds + turn, np.zeros(size)) is Refusal
        assert invite(("answered already", turn), rounds - 2, np.ones(size)) is Refusal
        assert invite(("another length", turn), rounds - 1, np.zeros(size + 1)) is Refusal
        assert invite(("not finite", turn), rounds - 1, np.full(size, np.nan)) is Refusal
    assert bytes_below(folder) == before
    assert (folder / "rounds.log").read_bytes() == claims
    assert claims.count(b"\n") <= 4 * rounds
    assert invite("the last one", rounds - 1, np.zeros(size)) is MaskedInput


def test_by_provoking_refusals_without_end(
    across: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files of the stated size at most; the latest refusals are there, each a whole line."""
    monkeypatch.setattr(silo_state, "_LOG_BYTES", 3000)
    folder, party = across.folder("silo-0"), across.parties[VICTIM]
    for turn in range(200):
        assert "not a message" in refused(across.ask(VICTIM, b"SUMS" * (turn + 1)))
    party._memory.log_refusal("the latest")
    logs = sorted(folder.glob("refusals*"))
    assert [path.name for path in logs] == ["refusals.log", "refusals.old.log"]
    assert all(1000 < path.stat().st_size <= 3000 for path in logs[1:])
    assert logs[0].stat().st_size <= 3000
    lines = [json.loads(line) for path in reversed(logs) for line in path.read_text().splitlines()]
    assert lines[-1]["reason"] == "the latest"
    assert all("not a message of this protocol" in line["reason"] for line in lines[:-1])


def test_by_provoking_lines_of_the_audit_trail_without_end(tmp_path: Path) -> None:
    """A few are written, all are counted, and what stood there before stays."""
    folder = federation_of_folders(tmp_path, seed=3).folder("silo-0")
    party = open_party(folder)
    before = read_trail(folder).links
    for turn in range(200):
        party.handle(b"SUMS" * (turn + 1))
    reading = read_trail(folder)
    assert reading.links[: len(before)] == before
    assert reading.counts["refusal"] == 20
    assert sum(path.stat().st_size for path in folder.glob("audit*.jsonl")) < 20_000
    party.close()


def test_by_provoking_one_refusal_of_any_length(across: LocalFederation) -> None:
    state = across.parties[VICTIM]._memory
    state.log_refusal("x" * (silo_state._LOG_BYTES + 1))
    assert bytes_below(across.folder("silo-0")) < silo_state._LOG_BYTES // 10


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeliveringFederation]:
    made = DeliveringFederation(tmp_path_factory.mktemp("delivered"), small_plan())
    made.heard = made.delivering_to()
    assert made.run()["phase"] == "finished"
    for name in made.roster.names:
        made.stop(name)
    yield made
    made.close()


def test_by_handing_out_runs_without_end(
    delivered: DeliveringFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A length is held against the plan before anything is taken in, and what is not believed
    leaves nothing behind.
    """
    monkeypatch.setattr("sumus.parties.checked_run.show_run", lambda *ignored: None)
    honest = parcel_of_run(delivered.server_run, delivered.local.server())
    victim = Victim(delivered, tmp_path, honest)
    most = most_parcel_bytes(delivered.agreement)
    for size in (0, most + 1, 1 << 63):
        with pytest.raises(PeerProtocolError, match="at most"):
            victim.offer(honest, size=size)
    for turn in range(5):
        lie = replace(honest, facts=honest.facts + b" " * turn + b"x")
        with pytest.raises(UnbelievedError):
            victim.deliver(lie)
    assert not any(victim.shelf.root.iterdir())
    assert victim.offer(honest, size=most).have == 0
    head = {"sender": SERVER, "session": victim.session, "parcel": honest.digest}
    longest = piece_bytes(delivered.agreement)
    with pytest.raises(PeerProtocolError, match="too long or lies beyond"):
        victim.hear(Piece(**head, offset=0, content=bytes(longest + 1)))
    with pytest.raises(PeerProtocolError, match="too long or lies beyond"):
        victim.hear(Piece(**head, offset=most - 1, content=bytes(2)))
    # the same piece again and again, and pieces from further on, take nothing
    for offset in (0, 0, 2 * longest, 0):
        assert victim.hear(Piece(**head, offset=offset, content=bytes(longest))).have == longest
    assert victim.offer(honest).have == 0  # another size is another offer
    assert victim.deliver(honest).whole
    assert len(list(victim.shelf.root.iterdir())) == 1
    assert bytes_below(victim.shelf.root) < 2 * len(honest.encode()) + 20_000
    victim.state.close()
