"""A whole federation of real parties in one process, each silo with a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sumus.books import Ledger, LedgerReleases, Policy, RunFolder
from sumus.data import load_silo
from sumus.files import build_of
from sumus.parties import (
    Agreement,
    InProcess,
    Patience,
    SecureSum,
    ServerParty,
    SiloParty,
    SiloState,
    agree_on,
    own_releases,
    work_on,
)
from sumus.parties.wire import readable
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.secagg import (
    SERVER,
    SERVER_NAME,
    Greeting,
    Identity,
    Message,
    Refusal,
    Roster,
    decode_any,
    session_digest,
    verify,
)

PLAN = """
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
silos = 4
rounds = 3
local_steps = 20
dropouts = 1
[training]
algorithm = "convex-pass"
learning_rate = 1.0
[data]
name = "digits"
[evaluation]
metrics = "none"
"""

# silos that answer or refuse are not waited for, however long
QUICK = Patience(set_up=60.0, update=60.0, stage=60.0, retry=0.05)


def plan(overrides: Mapping[str, object] | None = None) -> TrainingPlan:
    """The plan of these tests, resolved and calibrated."""
    return agree_on(TrainingPlan.from_toml(PLAN).with_overrides(overrides or {})).plan


class LocalFederation:
    """Silo folders below `root`, parties that can be stopped and started again, and an in-process
    engine between them.
    """

    def __init__(
        self,
        root: Path,
        agreed: TrainingPlan,
        *,
        seed: int | None = None,
        policies: Mapping[str, Policy] | None = None,
    ) -> None:
        self.root, self.agreement = root, agree_on(agreed)
        names = [silo.name for silo in self.agreement.design.silos]
        identities = {name: Identity.generate(name, RandomSource()) for name in names}
        self.identity = Identity.generate(SERVER_NAME, RandomSource())
        self.roster, self.identities = Roster.of(self.identity, identities.values()), identities
        self.policies = policies or {}
        for name, identity in identities.items():
            folder = self.folder(name)
            (folder / "plans").mkdir(parents=True, mode=0o700)
            folder.chmod(0o700)
            (folder / "identity.key").write_text(identity.secret_text())
            (folder / "roster.toml").write_text(self.roster.to_text())
            (folder / "plans" / "plan.toml").write_text(self.agreement.plan.to_toml())
            if seed is not None:
                (folder / "SIMULATION").touch()
        self.parties: dict[int, SiloParty] = {}
        self.driver = InProcess(dict.fromkeys(range(len(names)), lambda message: None))
        for number in range(len(names)):
            self.start(number)

    def folder(self, name: str) -> Path:
        return self.root / "silos" / name

    def start(
        self, number: int, handler: Callable[[SiloParty, bytes], bytes | None] = SiloParty.handle
    ) -> SiloParty:
        """Start a silo's process, as it were, from what is on its disk."""
        name = self.roster.names[number]
        ledger = Ledger.of_dataset("digits", state=self.folder(name))
        policy = self.policies.get(name, Policy())

        def releases(agreement: Agreement) -> LedgerReleases:
            return own_releases(agreement, ledger, policy)

        party = SiloParty(
            SiloState(self.folder(name)),
            work=work_on(load_silo),
            releases=releases,
            require_post_quantum=policy.require_post_quantum,
        )
        self.parties[number] = party
        self.driver.silos[number] = lambda message: handler(party, message)
        return party

    def stop(self, number: int) -> None:
        """The silo's process ends; its disk stays."""
        self.parties.pop(number).close()
        self.driver.silos.pop(number)

    def server(self, patience: Patience = QUICK) -> ServerParty:
        summing = SecureSum(
            self.agreement, self.roster, self.driver, identity=self.identity, patience=patience
        )
        return ServerParty(self.agreement, summing)

    def greeting(self, **changes: object) -> bytes:
        """A greeting as the server would send it, but for these fields."""
        fields: dict[str, Any] = {
            "sender": SERVER,
            "session": session_digest(self.agreement.terms, self.roster),
            "nonce": bytes(range(32)),
            "plan_hash": bytes.fromhex(self.agreement.plan.hash),
            "version": build_of(),
        }
        return Greeting(**(fields | changes)).encode(self.identity)

    def ask(self, silo: int, message: bytes) -> Message:
        """What a silo answers, its signature checked."""
        reply = self.parties[silo].handle(message)
        answer = decode_any(reply)
        verify(answer, reply, self.roster)
        return answer

    def run_folder(self, *, void: str | None = None) -> RunFolder:
        return RunFolder.create(
            self.agreement.plan,
            self.agreement.account,
            self.root / "runs",
            silos=self.roster.names,
            void=void,
        )

    def close(self) -> None:
        for party in self.parties.values():
            party.close()
        self.driver.close()


def refused(answer: Message) -> str:
    """The reason of a refusal; anything else is a mistake."""
    assert isinstance(answer, Refusal), answer
    return readable(answer.reason)


def federation_of_folders(root: Path, *, seed: int) -> LocalFederation:
    """Three silos whose processes have ended: an engine starts them from what is on their disks."""
    federation = LocalFederation(
        root, plan({"federation.silos": 3, "federation.rounds": 2}), seed=seed
    )
    for number in range(3):
        federation.stop(number)
    for name in federation.roster.names:
        folder = federation.folder(name)
        (folder / "site.toml").write_text(f'data = "digits"\nledgers = "{folder}"\n')
        (federation.folder(name) / "policy.toml").write_text("")
    return federation
