"""A federation on the disk: kits for every party, the roster, the agreed plan, and, for trials,
everybody's keys.

DIR/
  authority/          what the engine keeps to let parties in; stays with whoever ran `init`
  roster.toml         who is who in the secure sum; its fingerprint is compared by every silo
  epochs.toml         the rosters before it, and the signatures that led to it (once it has changed)
  epoch-N.toml        the roster that is proposed next
  plan.toml           the agreed plan: resolved, noise calibrated (if a plan was given)
  kits/server         to the machine that runs the server; unless server.pub was among the public
                      keys, the server's own key is in it
  kits/NAME           to the silo NAME
  kits/admin          to whoever starts training
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from sumus.engines.engine import Address
from sumus.engines.kit import ADMIN, SERVER, SERVER_KEY, STATE_FOLDER, write_kit_file
from sumus.engines.kit_readme import write_readme
from sumus.engines.registry import engine_named
from sumus.errors import DataError, EngineError
from sumus.files import make_directory
from sumus.parties import Agreement, read_rosters
from sumus.randomness import RandomSource
from sumus.secagg import Identity, Roster, RosterHistory

__all__ = ["FederationFolder", "finish_kit", "make_federation", "require_silo_name"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


@final
@dataclass(frozen=True)
class FederationFolder:
    """The folder of whoever makes the kits."""

    folder: Path
    roster: Roster

    @property
    def parties(self) -> tuple[str, ...]:
        """Everybody who gets a kit."""
        return SERVER, *self.roster.names, ADMIN

    def kit(self, party: str) -> Path:
        """The kit of "server", "admin" or a silo."""
        return self.folder / "kits" / party

    def state(self, party: str) -> Path:
        """What a kit brings its party: the roster, the proposed plan, in a trial the identity."""
        return self.kit(party) / STATE_FOLDER

    @classmethod
    def open(cls, folder: Path) -> FederationFolder:
        """A federation that `make_federation` made."""
        roster = folder / "roster.toml"
        if not roster.is_file():
            raise DataError(
                f"{folder} holds no federation: roster.toml is missing. Make one with `sumus "
                "federation init`."
            )
        return cls(folder, read_rosters(folder).current)

    @property
    def rosters(self) -> RosterHistory:
        """All rosters from the first to this one."""
        return read_rosters(self.folder)


def require_silo_name(name: str) -> None:
    """Refuse a name that an engine cannot use."""
    if not _NAME.fullmatch(name) or name in (SERVER, ADMIN):
        raise DataError(
            "silo name must be letters, digits, _ and -, and not server or admin, got "
            f"{name!r}. Rename the silo."
        )


def make_federation(
    folder: Path,
    *,
    engine: str,
    silos: Sequence[str],
    address: Address,
    public_keys: Sequence[str] | None,
    agreement: Agreement | None,
    requests: Mapping[str, bytes] | None = None,
) -> FederationFolder:
    """Kits for all parties.

    Args:
        engine: its name.
        public_keys: the silos' public lines (`sumus keys new`), collected by the coordinator. None
            makes everybody's identity here, which is for trials: whoever made the kits could then
            speak for every silo. The server's identity is made here unless its line is among them.
        agreement: a plan for the kits; every silo still has to approve it.
        requests: certificate requests of parties that keep their transport key to themselves.
    """
    transport = engine_named(engine)
    for name in silos:
        require_silo_name(name)
    made = [] if public_keys is not None else list(silos)
    if not any(line.split(" ")[0] == SERVER for line in public_keys or ()):
        made.append(SERVER)
    identities = {name: Identity.generate(name, RandomSource()) for name in made}
    own = [identity.public_text() for identity in identities.values()]
    roster = Roster.from_public_texts([*(public_keys or ()), *own])
    if sorted(silos) != list(roster.names):
        raise DataError(
            f"the public keys are of {list(roster.names)}, the silos are {sorted(silos)}. Collect "
            "one .pub file per silo."
        )
    federation = FederationFolder(folder, roster)
    for party in federation.parties:
        if federation.kit(party).exists():
            raise EngineError(
                f"{federation.kit(party)} exists already. Use a new folder, or move the old kit away."
            )
    make_directory(folder)
    transport.make_kits(federation, address, requests or {})
    (folder / "roster.toml").write_text(roster.to_text())
    if agreement is not None:
        (folder / "plan.toml").write_text(agreement.plan.to_toml())
    for party in federation.parties:
        finish_kit(
            federation,
            party,
            engine=engine,
            address=address,
            identity=identities.get(party),
            agreement=agreement,
        )
    return federation


def finish_kit(
    federation: FederationFolder,
    party: str,
    *,
    engine: str,
    address: Address,
    identity: Identity | None,
    agreement: Agreement | None,
) -> None:
    """Put into a kit of the engine whose it is and what it brings its party.

    Args:
        engine: its name.
        identity: made here, in a trial.
        agreement: a plan for the kit of everybody but the server.
    """
    kit, state, roster = federation.kit(party), federation.state(party), federation.roster
    kit.chmod(0o700)
    write_kit_file(kit, engine=engine, party=party, address=address)
    agreement = None if party == SERVER else agreement
    state.mkdir(mode=0o700)
    (state / "roster.toml").write_text(roster.to_text())
    if agreement is not None:
        (state / "plan.toml").write_text(agreement.plan.to_toml())
    if identity is not None:
        path = state / (SERVER_KEY if identity.name == SERVER else "identity.key")
        path.touch(mode=0o600)
        path.write_text(identity.secret_text())
        os.chmod(path, 0o600)
    write_readme(kit, party=party, engine=engine, address=address, roster=roster)
