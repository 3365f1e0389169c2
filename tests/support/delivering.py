"""A federation of folders whose server runs real jobs in this process, so that a run is trained and
handed out as it is across machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sumus.books import RunFolder, StartedFrom
from sumus.engines.kit import SERVER_KEY
from sumus.engines.server_job import ServerJob
from sumus.parties import Driver, InProcess, SiloParty, SiloState, open_party, write_rosters
from sumus.parties.delivery_messages import DELIVERY, Offer, Piece, Receipt
from sumus.parties.inbox import Inbox
from sumus.parties.parcel import Parcel
from sumus.parties.received import Shelf
from sumus.plan import TrainingPlan
from sumus.runs import Start
from sumus.secagg import (
    SERVER,
    Identity,
    Message,
    RosterHistory,
    decode_any,
    head_of,
    session_digest,
)
from support.local_federation import QUICK, LocalFederation, plan

SMALL = {"federation.silos": 3, "federation.rounds": 2, "federation.local_steps": 2}
MEASURED = SMALL | {"evaluation.metrics": "secure", "privacy.epsilon": 8.0}


def small_plan(**more: object) -> TrainingPlan:
    """Three silos, two rounds, and a measurement at the end."""
    return plan(MEASURED | more)


def start_of_another_plan(size: int) -> Start:
    """A model of so many parameters, as the run of another plan has released it."""
    origin = StartedFrom(
        model="",
        run="earlier-5738c858",
        round=2,
        plan_hash="57" * 32,
        dataset="digits",
        guarantee="ε ≤ 1 at δ = 0.0001, proved",
    )
    return Start.of_vector(np.linspace(-0.1, 0.1, size), origin)


class DeliveringFederation:
    """Silos in their folders, and a server's state.

    Args:
        data: silo → its file; None: the embedded digits.
    """

    def __init__(
        self, root: Path, agreed: TrainingPlan, *, data: Mapping[str, str] | None = None
    ) -> None:
        self.local = LocalFederation(root, agreed)
        for number in range(len(self.local.roster)):
            self.local.stop(number)
        self.agreement, self.roster = self.local.agreement, self.local.roster
        self.state = root / "server"
        self.state.mkdir()
        write_rosters(self.state, RosterHistory.of(self.roster))
        (self.state / SERVER_KEY).write_text(self.local.identity.secret_text())
        for name in self.roster.names:
            folder = self.local.folder(name)
            source = "digits" if data is None else data[name]
            (folder / "site.toml").write_text(f'data = "{source}"\nledgers = "{folder}"\n')
            (folder / "policy.toml").write_text("")
        self.parties: dict[str, SiloParty] = {}
        self.heard: Callable[[str, bytes], bytes | None] | None = None
        self.job = ServerJob("", rounds=1, patience=QUICK)

    def folder(self, name: str) -> Path:
        return self.local.folder(name)

    def shelf(self, name: str) -> Shelf:
        return Shelf(self.folder(name) / "received")

    def party(self, name: str) -> SiloParty:
        if name not in self.parties:
            self.parties[name] = open_party(self.folder(name))
        return self.parties[name]

    def stop(self, name: str) -> None:
        if name in self.parties:
            self.parties.pop(name).close()

    def delivering_to(self, *names: str) -> Callable[[str, bytes], bytes | None]:
        """Silos that hear everything, and others that are away when runs are handed out."""

        def heard(name: str, message: bytes) -> bytes | None:
            gone = name not in names and head_of(message).kind in DELIVERY
            return None if gone else self.party(name).handle(message)

        return heard

    def run(
        self,
        rounds: int = 50,
        *,
        away: Iterable[str] = (),
        driver: Driver | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """One job of the server; returns how it ended.

        Args:
            away: silos that do not answer.
            driver: an engine's; None: silos are called on the spot.
        """
        gone = set(away)

        def silo(name: str) -> Callable[[bytes], bytes | None]:
            def answer(message: bytes) -> bytes | None:
                if name in gone:
                    return None
                if self.heard is not None:
                    return self.heard(name, message)
                return self.party(name).handle(message)

            return answer

        def connect(names: tuple[str, ...]) -> Driver:
            if driver is not None:
                return driver
            return InProcess({number: silo(name) for number, name in enumerate(names)})

        self.job = ServerJob(
            self.agreement.plan.to_toml(), rounds=rounds, patience=QUICK, **options
        )
        self.job.run(self.state, connect)
        return self.job.state()

    @property
    def server_run(self) -> RunFolder:
        """The run as the server has it."""
        journals = list((self.state / "runs").glob("*/*/journal.jsonl"))
        assert len(journals) == 1
        return RunFolder.open(journals[0].parent)

    def close(self) -> None:
        for party in self.parties.values():
            party.close()
        self.local.close()


class Victim:
    """A silo of a trained federation, with a shelf of its own for every test."""

    def __init__(
        self, federation: DeliveringFederation, root: Path, parcel: Parcel, name: str = "silo-0"
    ) -> None:
        self.federation, self.parcel, self.shelf = federation, parcel, Shelf(root / "shelf")
        self.state = SiloState(federation.folder(name))
        self.inbox = Inbox(self.state, self.shelf, kept=lambda note, place: None)
        self.agreement, self.session = (
            federation.agreement,
            session_digest(federation.agreement.terms, federation.roster),
        )

    def hear(self, message: Message, signer: Identity | None = None) -> Receipt:
        signed = message.encode(signer or self.federation.local.identity)
        answer = decode_any(self.inbox.answer(signed, lambda plan: self.agreement), DELIVERY)
        assert isinstance(answer, Receipt)
        return answer

    def offer(self, parcel: Parcel, **changes: Any) -> Receipt:
        fields: dict[str, Any] = {
            "sender": SERVER,
            "session": self.session,
            "plan_hash": bytes.fromhex(self.agreement.plan.hash),
            "parcel": parcel.digest,
            "size": len(parcel.encode()),
        }
        return self.hear(Offer(**(fields | changes)))

    def deliver(self, parcel: Parcel) -> Receipt:
        self.offer(parcel)
        content = parcel.encode()
        return self.hear(
            Piece(
                sender=SERVER,
                session=self.session,
                parcel=parcel.digest,
                offset=0,
                content=content,
            )
        )

    @property
    def held(self) -> Path | None:
        return self.shelf.held(self.agreement.plan.hash)
