"""Files that a release of Sumus wrote (tests/stored/VERSION.tar.xz), unpacked and opened by this one."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from sumus.engines.server_job import ServerJob
from sumus.parties import SiloParty, agree_on
from sumus.plan import TrainingPlan
from sumus.secagg import Roster
from support.delivering import DeliveringFederation
from support.local_federation import QUICK

__all__ = ["INVITATION", "PASSPHRASE", "RELEASES", "SITE", "StoredFederation"]

STORED = Path(__file__).parents[1] / "stored"
RELEASES = sorted(path.name.removesuffix(".tar.xz") for path in STORED.glob("*.tar.xz"))
PASSPHRASE = b"files of an earlier version"
SITE = 'data = "digits"\nledgers = "{}"\n'
INVITATION = 3
"""The kind of the message that asks for a silo's input."""


class StoredFederation(DeliveringFederation):
    """A federation whose server was killed in its third round of three, when all had answered; a
    finished run as a silo received it; a backup of the first silo.
    """

    def __init__(self, release: str, root: Path) -> None:
        with tarfile.open(STORED / f"{release}.tar.xz") as archive:
            archive.extractall(root, filter="tar")
        self.facts: dict[str, Any] = json.loads((root / "facts.json").read_text())
        self.received, self.backup = root / "received", root / "silo.backup"
        self._silos, self.state = root / "interrupted" / "silos", root / "interrupted" / "server"
        self.roster = Roster.parse((self.state / "roster.toml").read_text())
        for name in self.roster.names:
            (self.folder(name) / "site.toml").write_text(SITE.format(self.folder(name)))
        self.plan_file = self.folder("silo-0") / "plans" / f"{self.facts['plan']}.toml"
        self.agreement = agree_on(TrainingPlan.load(self.plan_file))
        self.parties: dict[str, SiloParty] = {}
        self.heard = None
        self.job = ServerJob("", rounds=1, patience=QUICK)

    def folder(self, name: str) -> Path:
        return self._silos / name

    def close(self) -> None:
        for party in self.parties.values():
            party.close()
