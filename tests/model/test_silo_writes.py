"""The model is that of the code: a real silo makes the model's durable writes in the model's order,
and dies between any two of them as the model says.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oracles.model_checker import MODEL, steps
from sumus.books import Ledger, LedgerReleases
from sumus.parties.memory import SessionMemory
from sumus.parties.sums import pack_model, sequence_of
from sumus.secagg import FileRoundGuard, KeyRing
from sumus.secagg.messages import (
    DroppedSet,
    MaskedInput,
    Refusal,
    SetSignature,
    decode_any,
)
from support.local_federation import LocalFederation, plan

pytestmark = pytest.mark.deep
SILO = 0


class Dead(BaseException):
    """The silo's process ends here, whatever it would like to catch."""


class Disk:
    """Sees every durable write of the silo that is listened to, and may end its process before or
    after one.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.fatal: tuple[int, str] | None = None
        self.heard = threading.local()  # an engine asks silos side by side
        keep, claim, enter = SessionMemory.keep, FileRoundGuard.claim, LedgerReleases.enter

        def traced_keep(memory: SessionMemory, ring: KeyRing) -> None:
            with self._write(_change(memory.ring, ring)):
                keep(memory, ring)

        def traced_claim(guard: FileRoundGuard, round_id: bytes, step: str, digest: bytes) -> None:
            if guard.claimed(round_id, step) is not None:  # then nothing is written
                claim(guard, round_id, step, digest)
                return
            with self._write(step.replace("-", "_")):
                claim(guard, round_id, step, digest)

        def traced_enter(releases: LedgerReleases, *arguments: Any) -> None:
            with self._write("ledger"):
                enter(releases, *arguments)

        patch.setattr(SessionMemory, "keep", traced_keep)
        patch.setattr(FileRoundGuard, "claim", traced_claim)
        patch.setattr(LedgerReleases, "enter", traced_enter)

    def _write(self, name: str) -> _Write:
        return _Write(self, name)

    def of(self, party: Any, message: bytes) -> tuple[bytes, list[str]]:
        """What the silo answers, and what it wrote before."""
        self.heard.writes = writes = []
        try:
            return party.handle(message), writes
        finally:
            del self.heard.writes


class _Write:
    """One write, before and after which the process may end."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk, self._name = disk, name
        self._before: list[str] = getattr(disk.heard, "writes", [])

    def _may_die(self, when: str) -> None:
        if self._disk.fatal == (len(self._before), when):
            raise Dead

    def __enter__(self) -> None:
        self._may_die("before")

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None:
            self._may_die("after")
            self._before.append(self._name)


def _change(before: KeyRing, after: KeyRing) -> str:
    """Which of the model's writes turns one ring into the other."""
    if after.round is not None and (
        before.round is None or before.round.transcript != after.round.transcript
    ):
        return "claim"
    if None not in (after.round, before.round) and after.round.reply != before.round.reply:
        return "answer"
    known = {each.digest for each in before.sets}
    return "key_set" if {each.digest for each in after.sets} - known else "pending"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def across(tmp_path: Path) -> Iterator[LocalFederation]:
    federation = LocalFederation(tmp_path, plan({"federation.rounds": 12}))
    yield federation
    federation.close()


class Rounds:
    """A server that asks for one sum after the other."""

    def __init__(self, across: LocalFederation) -> None:
        party = across.server()
        party.greet()
        self.session = party.summing._session  # type: ignore[attr-defined]
        self.dimension = across.agreement.design.resolved.dimension

    def invite(self, number: int) -> tuple[Any, bytes]:
        return self.session.invite(
            hashlib.sha256(bytes((number,))).digest(),
            payload=pack_model(number, np.zeros(self.dimension)),
            sequence=sequence_of(number, "model"),
        )


def test_a_silo_writes_what_the_model_writes(across: LocalFederation, disk: Disk) -> None:
    """Silo 0 answers two rounds: one in which it is asked to sign, and one in which it is not."""
    rounds = Rounds(across)
    for number in range(2):
        collecting, invitation = rounds.invite(number)
        for silo, party in across.parties.items():
            reply, writes = disk.of(party, invitation)
            assert writes == steps("submit")
            collecting.receive(reply, sender=silo)
        certifying, proposal = collecting.close()
        for silo in (0, 1, 2) if number == 0 else (1, 2, 3):
            reply, writes = disk.of(across.parties[silo], proposal)
            assert writes == steps("sign")
            certifying.receive(reply, sender=silo)
        _, certificate = certifying.close()
        reply, writes = disk.of(across.parties[SILO], certificate)
        # what it has signed is written already
        assert writes == (steps("reveal")[1:] if number == 0 else steps("reveal"))
        assert disk.of(across.parties[SILO], certificate) == (reply, [])


def test_keys_go_round_as_in_the_model(across: LocalFederation, disk: Disk) -> None:
    """The model's two writes, the first of them once more when the directory is there."""
    seen: list[str] = []

    def listening(message: bytes) -> bytes:
        answer, writes = disk.of(across.parties[SILO], message)
        seen.extend(writes)
        return answer

    across.driver.silos[SILO] = listening
    Rounds(across)
    assert seen == ["pending", "pending", "key_set"]
    assert all(f"DURABLE({name}," in MODEL.read_text() for name in seen)


def test_a_silo_that_dies_between_two_writes_answers_once_or_never(
    across: LocalFederation, disk: Disk
) -> None:
    """Every crash of the model's invitation, at a silo with a real disk."""
    rounds, submit = Rounds(across), steps("submit")
    answers = set()
    for number, (write, when) in enumerate(
        (write, when) for write in range(len(submit)) for when in ("before", "after")
    ):
        _, invitation = rounds.invite(number)
        disk.fatal = write, when
        with pytest.raises(Dead):
            disk.of(across.parties[SILO], invitation)
        disk.fatal = None
        across.stop(SILO)
        party = across.start(SILO)
        reply, _ = disk.of(party, invitation)
        claimed = write > 0 or when == "after"
        kept = write == submit.index("answer") and when == "after"
        expected = MaskedInput if kept or not claimed else Refusal
        assert isinstance(decode_any(reply), expected), (submit[write], when)
        assert disk.of(party, invitation)[0] == reply or expected is Refusal
        memory = next(iter(party._memory._sessions.values()))  # type: ignore[attr-defined]
        sequence = sequence_of(number, "model")
        assert memory.ring.round.sequence == sequence
        assert all(known.sequence > sequence for known in memory.ring.sets)
        if expected is MaskedInput:
            assert reply not in answers
            answers.add(reply)
            assert _entered(across) >= len(answers)
    assert len(answers) == 2


def _entered(across: LocalFederation) -> int:
    """Releases on the silo's ledger."""
    name = across.roster.names[SILO]
    return len(Ledger.of_dataset("digits", state=across.folder(name)).entries())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_silo_that_dies_while_it_signs_keeps_to_one_set(
    across: LocalFederation, disk: Disk, when: str
) -> None:
    """What was written binds the next process; what was not, promised nothing."""
    rounds = Rounds(across)
    collecting, invitation = rounds.invite(0)
    for silo, party in across.parties.items():
        collecting.receive(party.handle(invitation), sender=silo)
    _, proposal = collecting.close()
    first = decode_any(proposal)
    assert isinstance(first, DroppedSet)
    other = replace(first, dropped=frozenset({3})).encode(across.identity)
    disk.fatal = 0, when
    with pytest.raises(Dead):
        disk.of(across.parties[SILO], proposal)
    disk.fatal = None
    across.stop(SILO)
    party = across.start(SILO)
    signed, refused = (proposal, other) if when == "after" else (other, proposal)
    assert isinstance(decode_any(party.handle(signed)), SetSignature)
    assert isinstance(decode_any(party.handle(refused)), Refusal)
