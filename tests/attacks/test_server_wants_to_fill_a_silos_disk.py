"""A server wants a silo to write down all that it is sent until the disk is full."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from oracles.secagg_federation import round_id
from sumus.events import read_trail
from sumus.parties import memory as silo_state, open_party
from sumus.parties.sums import pack_model
from sumus.secagg import Message, Refusal, session_digest
from sumus.secagg.messages import MaskedInput
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
