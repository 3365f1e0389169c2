"""A silo's vault as an argument of commands."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from sumus.errors import PlanError, StorageError

__all__ = ["require_own", "vault_of", "vault_of_silo"]


def vault_of(given: str) -> Path:
    """A vault by its folder, or by the silo's name if it has one vault only."""
    from sumus.books import state_directory

    if Path(given).is_dir():
        return Path(given)
    known = sorted(state_directory().glob(f"silos/*/{given}")) if "/" not in given else []
    if len(known) != 1:
        places = ", ".join(map(str, known)) or "none"
        raise PlanError(
            "VAULT",
            given,
            f"must be a folder, or the name of one vault (found {places})",
            "Give the folder that `sumus join` named.",
        )
    return known[0]


def vault_of_silo(given: str) -> Path:
    """The same; a silo's kit stands for the vault where `sumus join` puts it."""
    folder = vault_of(given)
    if not (folder / "kit.toml").is_file():
        return folder
    from sumus.engines import Kit
    from sumus.parties import read_rosters, vault_folder

    kit = Kit.open(folder, "silo")
    vault = vault_folder(read_rosters(kit.state).first, kit.party).absolute()
    if not vault.is_dir():
        raise StorageError(
            f"{folder} has not been joined with here: {vault} is missing. Run `sumus join` first, or "
            "give the vault's folder."
        )
    return vault


def require_own(vault: Path) -> None:
    """Refuse to change a vault of another user: files that this one leaves there could not be read
    by the vault's process.
    """
    if not (vault / "site.toml").is_file():
        raise StorageError(f"{vault} is no silo's vault. Give the folder that `sumus join` named.")
    owner = vault.stat().st_uid
    if owner != os.getuid():
        name = _user(owner)
        raise StorageError(f"{vault} belongs to user {name}. Run it as that user: sudo -u {name} …")


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"#{number}"
