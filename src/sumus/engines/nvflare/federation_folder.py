"""Making a federation: kits for every party, the roster, the agreed plan, and, for trials,
everybody's keys.

DIR/
  authority/          certificate authority of the engine (stays with whoever ran `sumus federation init`)
  roster.toml         who is who in the secure sum; its fingerprint is compared by every silo
  plan.toml           the agreed plan: resolved, noise calibrated (if a plan was given)
  kits/server         to the machine that runs the server
  kits/NAME           to the silo NAME
  kits/admin          to whoever starts training
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from sumus.engines.nvflare.controller import SERVER_FOLDER
from sumus.engines.nvflare.executor import STATE_FOLDER
from sumus.engines.nvflare.kits import Address, make_kits
from sumus.errors import DataError
from sumus.files import make_directory
from sumus.parties import Agreement
from sumus.randomness import RandomSource
from sumus.secagg import Roster, SiloIdentity

__all__ = ["Federation", "make_federation"]


@final
@dataclass(frozen=True)
class Federation:
    """A federation on the disk."""

    folder: Path
    roster: Roster

    def kit(self, party: str) -> Path:
        """The kit of "server", "admin" or a silo."""
        return self.folder / "kits" / party

    def state(self, silo: str) -> Path:
        """Where a silo's kit keeps the silo's own state."""
        return self.kit(silo) / STATE_FOLDER

    @classmethod
    def open(cls, folder: Path) -> Federation:
        """A federation that `make_federation` made."""
        roster = folder / "roster.toml"
        if not roster.is_file():
            raise DataError(
                f"{folder} holds no federation: roster.toml is missing. Make one with `sumus "
                "federation init`."
            )
        return cls(folder, Roster.parse(roster.read_text()))


def make_federation(
    folder: Path,
    *,
    silos: Sequence[str],
    address: Address,
    public_keys: Sequence[str] | None,
    agreement: Agreement | None,
) -> Federation:
    """Kits for all parties.

    Args:
        public_keys: the silos' public lines (`sumus keys new`), collected by the coordinator. None
            makes everybody's identity here, which is for trials: whoever made the kits could then
            speak for every silo.
        agreement: a plan for the kits; every silo still has to approve it.
    """
    make_directory(folder)
    identities: dict[str, SiloIdentity] = {}
    if public_keys is None:
        identities = {name: SiloIdentity.generate(name, RandomSource()) for name in silos}
        public_keys = [identity.public_text() for identity in identities.values()]
    roster = Roster.from_public_texts(list(public_keys))
    if sorted(silos) != list(roster.names):
        raise DataError(
            f"the public keys are of {list(roster.names)}, the silos are {sorted(silos)}. Collect "
            "one .pub file per silo."
        )
    kits = make_kits(folder, silos=list(roster.names), address=address)
    (folder / "roster.toml").write_text(roster.to_text())
    for name in roster.names:
        _write_state(
            kits[name] / STATE_FOLDER, roster, identity=identities.get(name), agreement=agreement
        )
    _write_state(kits["server"] / SERVER_FOLDER, roster, identity=None, agreement=None)
    (kits["admin"] / "roster.toml").write_text(roster.to_text())
    if agreement is not None:
        (folder / "plan.toml").write_text(agreement.plan.to_toml())
        (kits["admin"] / "plan.toml").write_text(agreement.plan.to_toml())
    return Federation(folder, roster)


def _write_state(
    state: Path, roster: Roster, *, identity: SiloIdentity | None, agreement: Agreement | None
) -> None:
    state.mkdir(mode=0o700)
    (state / "roster.toml").write_text(roster.to_text())
    if agreement is not None:
        (state / "plan.toml").write_text(agreement.plan.to_toml())
    if identity is not None:
        path = state / "identity.key"
        path.touch(mode=0o600)
        path.write_text(identity.secret_text())
        os.chmod(path, 0o600)
