"""A fellow silo, or whoever reaches a silo's socket, sends messages in the server's name: to make it
spend its ε, to expel it from the rounds that are left, or to make it sign and reveal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oracles.secagg_federation import read
from sumus.books import Ledger
from sumus.parties import round_identifier
from sumus.parties.driver import Counting
from sumus.parties.sums import pack_model
from sumus.secagg import (
    SERVER,
    CipherTexts,
    DroppedSet,
    Identity,
    Invitation,
    KeyDirectory,
    Roster,
    SetCertificate,
    decode_any,
)
from sumus.secagg.messages import MaskedInput, RoundHeader
from support.local_federation import LocalFederation, plan, refused

VICTIM, FELLOW = 0, 1
ROUNDS = 20


@pytest.fixture
def across(tmp_path: Path) -> Iterator[LocalFederation]:
    made = LocalFederation(tmp_path, plan({"federation.rounds": ROUNDS}))
    server = made.server()
    server.greet()
    yield made
    made.close()


def fellow_of(across: LocalFederation) -> Identity:
    name = across.roster.names[FELLOW]
    return Identity.parse((across.folder(name) / "identity.key").read_text())


def last_round(across: LocalFederation, number: int = ROUNDS - 1) -> Invitation:
    """An invitation that is right in everything but its signature."""
    everybody = frozenset(range(len(across.roster)))
    payload = pack_model(number, np.zeros(across.agreement.plan.training.dimension or 0))
    identifier = round_identifier(across.agreement.plan, number, everybody)
    ((digest, admitted),) = across.parties[VICTIM]._admitted.items()
    header = RoundHeader(
        session=digest,
        round_id=identifier,
        keys_digest=admitted.memory.keys.ring.sets[-1].digest,
        sequence=2 * number,
        payload_digest=hashlib.sha256(payload).digest(),
        silos=len(across.roster),
        participants=everybody,
    )
    return Invitation(
        sender=SERVER, session=digest, round_id=identifier, header=header, payload=payload
    )


def entries(across: LocalFederation) -> list[int]:
    name = across.roster.names[VICTIM]
    return [
        entry.round for entry in Ledger.of_dataset("digits", state=across.folder(name)).entries()
    ]


def kept(across: LocalFederation) -> dict[str, bytes]:
    """All that the victim has on its disk, but for its list of refusals."""
    folder = across.folder(across.roster.names[VICTIM])
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("refusals")
    }


def test_by_inviting_a_fellow_to_the_last_round(across: LocalFederation) -> None:
    before = kept(across)
    forged = last_round(across).encode(fellow_of(across))
    told = refused(across.ask(VICTIM, forged))
    assert "signature of the server does not verify" in told
    assert entries(across) == []
    assert kept(across) == before
    assert isinstance(
        across.ask(VICTIM, last_round(across, 0).encode(across.identity)), MaskedInput
    )


def test_without_the_check_it_spends_and_expels(
    across: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a silo that takes any signature answers, and can answer no other round."""
    monkeypatch.setattr(Roster, "verify", lambda *_, **__: None)
    forged = last_round(across).encode(fellow_of(across))
    assert isinstance(across.ask(VICTIM, forged), MaskedInput)
    assert entries(across) == [ROUNDS]
    honest = last_round(across, 0).encode(across.identity)
    assert "answered sum 38 already" in refused(across.ask(VICTIM, honest))


class Recorder:
    """Keeps what the server sends to the victim."""

    def __init__(self, federation: LocalFederation) -> None:
        self._federation, self.sent = federation, list[bytes]()

    def exchange(self, messages: dict[int, bytes], *, deadline_seconds: float) -> dict[int, bytes]:
        self.sent += [messages[VICTIM]] if VICTIM in messages else []
        return dict(self._federation.driver.exchange(messages, deadline_seconds=deadline_seconds))

    def close(self) -> None:
        pass


def test_by_any_message_of_a_server(across: LocalFederation) -> None:
    """Every kind, with a fellow's signature, with the server's of another message, with none."""
    server, recorder = across.server(), Recorder(across)
    server.summing._driver = Counting(recorder)
    server.greet()
    next(iter(server.train(across.run_folder(), rounds=1)))
    kinds = [type(decode_any(message)) for message in recorder.sent]
    assert kinds[1:] == [KeyDirectory, CipherTexts, Invitation, DroppedSet, SetCertificate]
    before, signer = kept(across), fellow_of(across)
    for message in recorder.sent:
        for signature in (
            decode_any(message).encode(signer)[-64:],
            next(other for other in recorder.sent if other is not message)[-64:],
            bytes(64),
        ):
            told = refused(across.ask(VICTIM, message[:-64] + signature))
            assert "signature of the server does not verify" in told
    assert kept(across) == before


def test_by_being_the_first_to_speak_to_a_silo_that_was_just_started(
    across: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It agrees to no plan and opens no ledger for a stranger."""
    forged = last_round(across).encode(fellow_of(across))
    across.stop(VICTIM)
    party = across.start(VICTIM)
    agreed: list[object] = []
    monkeypatch.setattr(party, "_agree", agreed.append)
    assert "does not verify" in refused(across.ask(VICTIM, forged))
    assert agreed == []


def test_by_a_message_of_its_own_kind(across: LocalFederation) -> None:
    """A silo's number instead of the server's, rightly signed: no silo invites."""
    honest = last_round(across)
    own = replace(honest, sender=FELLOW).encode(fellow_of(across))
    assert "must come from the server" in refused(across.ask(VICTIM, own))
    assert entries(across) == []


def test_by_a_key_that_only_the_fellows_roster_names(across: LocalFederation) -> None:
    """The roster in the victim's own folder decides, whatever the others hold."""
    other = LocalFederation(across.root / "other", across.agreement.plan)
    theirs = last_round(across).encode(other.identity)
    assert "does not verify" in refused(across.ask(VICTIM, theirs))
    other.close()
    assert read(theirs, Invitation).sender == SERVER
