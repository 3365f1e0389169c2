"""A party's kit: what an engine needs to let the party in, and what the coordinator hands over.

KIT/
  kit.toml            engine, party, address of the server
  readme.txt          what is in it, what to do with it (`kit_readme`)
  sumus/              roster, proposed plan; in a trial the silo's key, until it joins; the server's
                      own key; mode 700

A silo's keys, records and ledger are elsewhere (`sumus.parties.vault`): the kit is all that the
engine's process sees. This module is loaded by that process, so it imports no party.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from sumus.engines.engine import Address, Engine
from sumus.engines.registry import engine_named
from sumus.errors import DataError, EngineError, PlanError
from sumus.files import parse_toml, toml_value

__all__ = [
    "ADMIN",
    "README",
    "SERVER",
    "SERVER_KEY",
    "STATE_FOLDER",
    "Kit",
    "certificates_in",
    "write_kit_file",
]

SERVER, ADMIN = "server", "admin"
SERVER_KEY = "server.key"
"""The key that the server signs with, in its own state."""
STATE_FOLDER = "sumus"
"""What a kit brings, and a server's own state; fixed, so that no message can name another."""
README = "readme.txt"


def write_kit_file(kit: Path, *, engine: str, party: str, address: Address) -> None:
    """Say whose kit it is, for which engine and server."""
    entries = {"engine": engine, "party": party, "server": str(address)}
    (kit / "kit.toml").write_text(
        "".join(f"{key} = {toml_value(value)}\n" for key, value in entries.items())
    )


def certificates_in(kit: Path) -> list[Path]:
    """The public files by which the parties know each other on the way, whatever the engine."""
    places = (kit, kit / "startup")
    return [
        path
        for place in places
        for name in ("*.crt", "*.pub", "*.pem")
        for path in sorted(place.glob(name))
    ]


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
    def queue(self) -> Path:
        """Of an operator's kit: plans that run one after the other (`PlanQueue`)."""
        return self.path / "queue"

    @property
    def state(self) -> Path:
        """What the kit brings; a server keeps its own state there too."""
        return self.path / STATE_FOLDER
