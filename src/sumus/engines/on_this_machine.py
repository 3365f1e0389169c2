"""A federation of real processes on this machine: server and silos over loopback, brought up and
taken down together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import final

from sumus.books import Policy
from sumus.engines.engine import Address, Operator
from sumus.engines.federation_folder import make_federation
from sumus.engines.kit import ADMIN, SERVER
from sumus.engines.processes import OwnedProcess, PartyProcesses, free_port
from sumus.engines.registry import DEFAULT_ENGINE, engine_named
from sumus.engines.silo_processes import silo_command
from sumus.errors import EngineError
from sumus.parties import Agreement, approve, settle, vault_folder
from sumus.secagg import Identity, Roster

__all__ = ["LocalProcesses"]


@final
class LocalProcesses(PartyProcesses):
    """Server and silos as processes, each with its own folder below `root`.

    Every silo is an organisation of its own: `root/organisations/NAME` is its state folder, with its
    ledger and its vault.

    Args:
        root: a folder for kits, states and logs; must not exist yet.
        agreement: the plan that every silo approves.
        data: silo → its own file, or one name of an embedded data set for all.
        engine: what carries the messages.
        policies: silo → its policy; by default only proved guarantees are accepted.
        environment: added to every process.
        host: where the silos find the server.
        prefixes: silo → what its command begins with, for example to enter a network namespace.
    """

    def __init__(
        self,
        root: Path,
        agreement: Agreement,
        *,
        data: Mapping[str, str] | str,
        engine: str = DEFAULT_ENGINE,
        policies: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        host: str = "localhost",
        prefixes: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(root, environment or {})
        self._engine, self._prefixes = engine_named(engine), dict(prefixes or {})
        names = [silo.name for silo in agreement.design.silos]
        self.federation = make_federation(
            root,
            engine=engine,
            silos=names,
            address=Address(host, free_port()),
            public_keys=None,
            agreement=agreement,
        )
        for name in names:
            key = self.federation.state(name) / "identity.key"
            text = _trusting(self.federation.roster, (policies or {}).get(name, ""))
            self.state(name).mkdir(parents=True, mode=0o700)
            settle(
                self.vault(name),
                identity=Identity.parse(key.read_text()),
                roster=self.federation.roster,
                data=data if isinstance(data, str) else data[name],
                policy=Policy.from_toml(text),
                policy_text=text,
                ledgers=self.state(name),
            )
            key.unlink()
            approve(self.vault(name), [agreement.plan])

    def state(self, silo: str) -> Path:
        """The state folder of a silo's organisation: ledgers, vaults."""
        return self.federation.folder.resolve() / "organisations" / silo

    def vault(self, silo: str) -> Path:
        """Everything secret of a silo."""
        return vault_folder(self.federation.rosters.first, silo, state=self.state(silo))

    def start(self, party: str) -> OwnedProcess:
        """Start the server or a silo."""
        kit = self.federation.kit(party)
        command = (
            self._engine.serve(kit) if party == SERVER else silo_command(kit, self.vault(party))
        )
        return self._run(party, [*self._prefixes.get(party, ()), *command])

    def start_all(self, *, seconds: float = 90.0) -> Operator:
        """Start everybody and wait until all silos are connected."""
        for party in (SERVER, *self.federation.roster.names):
            self.start(party)
        operator = self._engine.operator(self.federation.kit(ADMIN), first_contact_seconds=seconds)
        there = operator.wait_for_sites(len(self.federation.roster), seconds=seconds)
        if len(there) < len(self.federation.roster):
            operator.close()
            raise EngineError(
                f"only {sorted(there)} of {list(self.federation.roster.names)} connected. See "
                f"{self.federation.folder}/*.log and the silos' engine.log below organisations/."
            )
        return operator


def _trusting(roster: Roster, policy: str) -> str:
    """A trial's policy, which names the roster that was made with it."""
    named = f'roster_fingerprint = "{roster.digest().hex()}"\n'
    return policy if Policy.from_toml(policy).roster_fingerprint else named + policy
