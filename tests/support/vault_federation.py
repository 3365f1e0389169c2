"""Silos behind the real sockets of their vaults, and a server's jobs, in one process: plans are
approved and withdrawn while they run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sumus.books import Ledger, Policy, RunFolder
from sumus.engines import Relay
from sumus.engines.engine import Look, Outcome, Watch, too_many_refused
from sumus.engines.server_job import ServerJob
from sumus.parties import Agreement, InProcess, approve, settle
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.secagg import SERVER_NAME, Identity, Roster
from support.local_federation import QUICK, plan
from support.vaults import VaultInThread

__all__ = ["OperatorInProcess", "VaultFederation", "small_plan"]


def small_plan(seed: int = 0, **changes: object) -> TrainingPlan:
    """A plan of three silos; `federation__rounds=2` sets federation.rounds."""
    more = {key.replace("__", "."): value for key, value in changes.items()}
    first = {"federation.silos": 3, "federation.rounds": 2, "training.init_seed": seed}
    return plan(first | more)


class VaultFederation:
    """Three organisations and a server.

    Args:
        root: an empty folder.
        policies: silo → text of its policy, without the roster.
    """

    def __init__(self, root: Path, *, policies: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.names = ("silo-0", "silo-1", "silo-2")
        identities = {name: Identity.generate(name, RandomSource()) for name in self.names}
        server = Identity.generate(SERVER_NAME, RandomSource())
        self.roster = Roster.of(server, identities.values())
        self.server_state = root / "server" / "sumus"
        self.server_state.mkdir(parents=True, mode=0o700)
        (self.server_state / "roster.toml").write_text(self.roster.to_text())
        (self.server_state / "server.key").write_text(server.secret_text())
        for name, identity in identities.items():
            self.state(name).mkdir(parents=True, mode=0o700)
            text = self.policy_text((policies or {}).get(name, ""))
            settle(
                self.vault(name),
                identity=identity,
                roster=self.roster,
                data="digits",
                policy=Policy.from_toml(text),
                policy_text=text,
                ledgers=self.state(name),
            )
        self.vaults: dict[str, VaultInThread] = {}
        for name in self.names:
            self.start(name)

    def policy_text(self, text: str) -> str:
        """A policy that names the roster."""
        return f'roster_fingerprint = "{self.roster.digest().hex()}"\n{text}'

    def state(self, name: str) -> Path:
        """Of a silo's organisation: its ledger."""
        return self.root / "organisations" / name

    def vault(self, name: str) -> Path:
        return self.state(name) / "vault"

    def ledger(self, name: str) -> Ledger:
        return Ledger.of_dataset("digits", state=self.state(name))

    def rounds(self, name: str, of: TrainingPlan) -> list[int]:
        """Of a plan, on a silo's ledger."""
        return [each.round for each in self.ledger(name).entries() if each.plan_hash == of.hash]

    def start(self, name: str) -> None:
        """Serve a vault, from what is on its disk."""
        self.vaults[name] = VaultInThread(self.vault(name))

    def stop(self, name: str) -> None:
        """Its process ends; the disk stays."""
        self.vaults.pop(name).close()

    def approve(self, *plans: TrainingPlan, at: Sequence[str] | None = None) -> None:
        """By the people of some silos, or of all."""
        for name in self.names if at is None else at:
            approve(self.vault(name), plans)

    def train(self, of: TrainingPlan, *, rounds: int = 50) -> dict[str, Any]:
        """A job of the server's; returns how it ended."""
        job = ServerJob(of.to_toml(), rounds=rounds, patience=QUICK)
        handlers = {
            number: Relay(str(self.vaults[name].path)).handle
            for number, name in enumerate(self.names)
            if name in self.vaults
        }
        job.run(self.server_state, lambda names: InProcess(handlers))
        return job.state()

    def run_of(self, of: TrainingPlan) -> RunFolder:
        """The server's run of a plan."""
        (journal,) = (self.server_state / "runs" / of.hash).glob("*/journal.jsonl")
        return RunFolder.open(journal.parent)

    def close(self) -> None:
        for name in list(self.vaults):
            self.stop(name)


class OperatorInProcess:
    """Starts jobs of a `VaultFederation`; see `Operator`."""

    PATIENCE: Mapping[str, float] = {}

    def __init__(self, federation: VaultFederation) -> None:
        self.federation = federation
        self.jobs: list[str] = []

    def run(
        self,
        agreement: Agreement,
        *,
        rounds: int,
        patience: Mapping[str, float],
        out: Path,
        watch: Watch,
        start: str = "",
    ) -> Outcome:
        """See `Operator.run`."""
        self.jobs.append(agreement.plan.hash)
        ended = self.federation.train(agreement.plan, rounds=rounds)
        watch(ended)
        return Outcome(
            finished=ended["phase"] == "finished",
            reason=str(ended["error"]),
            run=None if ended["run"] is None else Path(ended["run"]),
            refused=too_many_refused(ended, agreement),
        )

    def system(self) -> dict[str, Any]:
        return {"server": "up", "silos": {}, "jobs": []}

    def look(self, known: str | None, after: int) -> Look:
        return Look(silos=self.federation.names)

    def wait_for_sites(self, count: int, *, seconds: float) -> list[str]:
        return list(self.federation.names)

    def close(self) -> None:
        pass
