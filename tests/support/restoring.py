"""A silo of a federation in this process that loses its vault and gets it back."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sumus.books import Ledger
from sumus.care import Backup, Restoration, back_up, read_backup, restore_vault
from sumus.parties import open_party, run_on_ledger
from sumus.parties.sums import pack_model, sequence_of
from sumus.secagg.messages import MaskedInput, Message
from support.local_federation import LocalFederation

PASSPHRASE = b"correct horse battery"
SILO = 0


@pytest.fixture(autouse=True)
def cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening takes a while on purpose; imported by tests that open many backups."""
    monkeypatch.setattr("sumus.secagg.sealing._COST", 1 << 4)


class LosingSilo:
    """Silo 0 of a federation: a real vault, with its ledger in a folder of its own."""

    def __init__(self, root: Path, across: LocalFederation) -> None:
        self.root, self.across, self.state = root, across, root / "state"
        self.name = across.roster.names[SILO]
        self.vault = across.folder(self.name)
        across.stop(SILO)
        (self.vault / "site.toml").write_text(f'data = "digits"\nledgers = "{self.state}"\n')
        (self.vault / "policy.toml").write_text("")
        self.state.mkdir()
        self.start()
        self.pass_keys()

    @property
    def ledger(self) -> Ledger:
        return Ledger.of_dataset("digits", state=self.state)

    @property
    def plan_hash(self) -> str:
        return self.across.agreement.plan.hash

    def start(self) -> None:
        """The vault's process, from what is on the disk."""
        party = open_party(self.vault, agree=lambda _: self.across.agreement)
        self.across.parties[SILO] = party
        self.across.driver.silos[SILO] = party.handle

    def pass_keys(self) -> None:
        """Keys go round among all silos that agree to the plan."""
        party = self.across.server()
        party.greet()
        self._session = party.summing._session  # type: ignore[attr-defined]

    def invite(self, number: int, *, attempt: int = 0) -> Any:
        """An invitation to a round, from 0; another attempt has another round id."""
        dimension = self.across.agreement.design.resolved.dimension
        return self._session.invite(
            hashlib.sha256(f"{number}/{attempt}".encode()).digest(),
            payload=pack_model(number, np.zeros(dimension)),
            sequence=sequence_of(number, "model"),
        )

    def ask(self, number: int, *, attempt: int = 0) -> Message:
        """What silo 0 says to an invitation that nobody else gets."""
        return self.across.ask(SILO, self.invite(number, attempt=attempt)[1])

    def answers(self, number: int, *, attempt: int = 0) -> bool:
        return isinstance(self.ask(number, attempt=attempt), MaskedInput)

    def rounds_on_ledger(self) -> list[int]:
        """Of the plan, from 0, in order."""
        name = run_on_ledger(self.plan_hash, self.name)
        return [entry.round - 1 for entry in self.ledger.entries() if entry.run == name]

    def epsilon(self) -> float:
        """What the ledger says was spent on one record."""
        return self.ledger.total("record").epsilon

    def back_up(self, **options: Any) -> Backup:
        """Of the vault as it is; it goes on running."""
        file = self.root / "silo.backup"
        file.unlink(missing_ok=True)
        back_up(self.vault, file, PASSPHRASE, **options)
        return read_backup(file, PASSPHRASE)

    def copy(self) -> tuple[Path, Path]:
        """What a backup of plain files would be."""
        copies = self.root / "copied-vault", self.root / "copied-state"
        shutil.copytree(self.vault, copies[0])
        shutil.copytree(self.state, copies[1], dirs_exist_ok=True)
        return copies

    def lose(self, *, ledger: bool) -> None:
        """The vault's disk is gone, and the ledger with it if it was there too."""
        self.across.stop(SILO)
        shutil.rmtree(self.vault)
        if ledger:
            shutil.rmtree(self.state)

    def put_back(self, copies: tuple[Path, Path]) -> None:
        """Plain files come back as they were."""
        shutil.copytree(copies[0], self.vault)
        shutil.copytree(copies[1], self.state, dirs_exist_ok=True)
        self.start()

    def restore(self, backup: Backup, **options: Any) -> Restoration:
        """The vault comes back as it should, and is started."""
        restored = restore_vault(backup, self.vault, state=self.state, **options)
        self.start()
        return restored
