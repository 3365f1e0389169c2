"""A federation on the disk: kits for every party, the roster, the agreed plan, and, for trials,
everybody's keys.

DIR/
  authority/          what the engine keeps to let parties in; stays with whoever ran `init`
  roster.toml         who is who in the secure sum; its fingerprint is compared by every silo
  plan.toml           the agreed plan: resolved, noise calibrated (if a plan was given)
  kits/server         to the machine that runs the server
  kits/NAME           to the silo NAME
  kits/admin          to whoever starts training

A kit is made by an engine, and says so:

KIT/
  kit.toml            engine, party, address of the server
  sumus/              the party's own state: roster, for a silo its key, plans, ledger; mode 700
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from sumus.engines.engine import Address, Engine
from sumus.engines.registry import engine_named
from sumus.errors import DataError, EngineError, PlanError
from sumus.files import make_directory, parse_toml, toml_value
from sumus.parties import Agreement
from sumus.randomness import RandomSource
from sumus.secagg import Roster, SiloIdentity

__all__ = ["ADMIN", "SERVER", "STATE_FOLDER", "FederationFolder", "Kit", "make_federation"]

SERVER, ADMIN = "server", "admin"
STATE_FOLDER = "sumus"
"""A party's own folder below its kit; fixed, so that no message can name another."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


@final
@dataclass(frozen=True)
class Kit:
    """A party's kit, as `sumus federation init` made it."""

    path: Path
    engine_name: str
    party: str
    address: Address

    @classmethod
    def open(cls, path: Path, kind: Literal["server", "admin", "silo"]) -> Kit:
        """A kit of this kind, or a refusal."""
        file = path / "kit.toml"
        try:
            entries = parse_toml(file.read_text(), "kit.toml")
            kit = cls(path, entries["engine"], entries["party"], Address.parse(entries["server"]))
        except (OSError, UnicodeDecodeError, KeyError, TypeError, PlanError, DataError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it says something else"
            raise EngineError(
                f"{file} cannot be read: {reason}. Give a kit that `sumus federation init` made."
            ) from None
        if kind != (kit.party if kit.party in (SERVER, ADMIN) else "silo"):
            wanted = {"server": "kits/server", "admin": "kits/admin"}.get(kind, "kits/NAME")
            raise EngineError(f"{path} is the kit of {kit.party}. Give the folder {wanted}.")
        return kit

    @property
    def engine(self) -> Engine:
        """The engine that it was made for."""
        return engine_named(self.engine_name, where=str(self.path / "kit.toml"))

    @property
    def state(self) -> Path:
        """The party's own folder."""
        return self.path / STATE_FOLDER


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

    def state(self, silo: str) -> Path:
        """Where a silo's kit keeps the silo's own state."""
        return self.kit(silo) / STATE_FOLDER

    @classmethod
    def open(cls, folder: Path) -> FederationFolder:
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
            speak for every silo.
        agreement: a plan for the kits; every silo still has to approve it.
        requests: certificate requests of parties that keep their transport key to themselves.
    """
    transport = engine_named(engine)
    for name in silos:
        if not _NAME.fullmatch(name) or name in (SERVER, ADMIN):
            raise DataError(
                "silo name must be letters, digits, _ and -, and not server or admin, got "
                f"{name!r}. Rename the silo."
            )
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
        kit = federation.kit(party)
        kit.chmod(0o700)
        entries = {"engine": engine, "party": party, "server": str(address)}
        (kit / "kit.toml").write_text(
            "".join(f"{key} = {toml_value(value)}\n" for key, value in entries.items())
        )
        plan = None if party == SERVER else agreement
        _write_state(kit / STATE_FOLDER, roster, identity=identities.get(party), agreement=plan)
    return federation


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
