"""A run of real parties in one process, each with the audit trail that it keeps."""

from __future__ import annotations

from pathlib import Path

from sumus.engines.server_job import ServerJob
from sumus.parties import InProcess, SiloParty, open_party
from support.local_federation import QUICK, LocalFederation, federation_of_folders


class AuditedRun:
    """Three silos from their vaults and a server from its state, in one process.

    Args:
        root: an empty folder.
    """

    def __init__(self, root: Path) -> None:
        self.federation: LocalFederation = federation_of_folders(root, seed=3)
        self.state = root / "server" / "sumus"
        self.state.mkdir(parents=True, mode=0o700)
        (self.state / "roster.toml").write_text(self.federation.roster.to_text())
        (self.state / "server.key").write_text(self.federation.identity.secret_text())
        self.parties: dict[int, SiloParty] = {}

    def vault(self, silo: int) -> Path:
        return self.federation.folder(self.federation.roster.names[silo])

    def open(self) -> None:
        """Start every silo that is not there."""
        for number in range(len(self.federation.roster)):
            if number not in self.parties:
                self.parties[number] = open_party(self.vault(number))

    def train(self, rounds: int = 2) -> dict[str, object]:
        """A job of the server's; returns how it ended."""
        self.open()
        silos = {number: party.handle for number, party in self.parties.items()}
        job = ServerJob(self.federation.agreement.plan.to_toml(), rounds=rounds, patience=QUICK)
        job.run(self.state, lambda names: InProcess(silos))
        return job.state()

    def close(self) -> None:
        for party in self.parties.values():
            party.close()
        self.parties.clear()
