"""The rosters of a party's folder: the one that it trusts, and those that have followed.

FOLDER/
  roster.toml         the roster that is trusted: of a kit the one it was made with, of a vault the
                      one that was accepted last
  epochs.toml         all rosters with the signatures that lead from one to the next; missing as
                      long as there is one
"""

from __future__ import annotations

from pathlib import Path

from sumus.books import Policy
from sumus.errors import DataError
from sumus.files import read_bytes, replace_atomically
from sumus.secagg import Roster, RosterHistory

__all__ = ["EPOCHS", "ROSTER", "pinned", "read_rosters", "write_rosters"]

ROSTER, EPOCHS = "roster.toml", "epochs.toml"


def read_rosters(folder: Path) -> RosterHistory:
    """The rosters of a folder.

    Guarantee: raises unless quorum after quorum leads from `roster.toml` to the latest of them.
    """
    trusted = Roster.parse(_text(folder / ROSTER))
    if not (folder / EPOCHS).exists():
        return RosterHistory.of(trusted)
    history = RosterHistory.parse(_text(folder / EPOCHS))
    history.since(trusted.digest())
    return history


def pinned(policy: Policy, rosters: RosterHistory) -> bool:
    """Whether a silo's people have named one of the rosters; raises unless quorum after quorum
    leads from that one to the latest.
    """
    for epoch in rosters.epochs:
        if policy.pins(epoch.roster.digest()):
            rosters.since(epoch.roster.digest())
            return True
    return False


def write_rosters(folder: Path, history: RosterHistory) -> None:
    """Trust the latest of these rosters from now on."""
    if len(history.epochs) > 1:
        replace_atomically(folder / EPOCHS, history.to_text().encode())
    replace_atomically(folder / ROSTER, history.current.to_text().encode())


def _text(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise DataError(f"{path} is not a text file. Ask the coordinator for the kit.") from None
