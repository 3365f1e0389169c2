"""A silo's vault as an argument of commands."""

from __future__ import annotations

from pathlib import Path

from sumus.errors import PlanError

__all__ = ["vault_of"]


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
