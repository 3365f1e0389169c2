"""The first line of a run's journal."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from sumus import __version__
from sumus.guarantee import Account

__all__ = ["Header", "software_versions"]

_VERSIONED = ("numpy", "scipy", "dp-accounting", "cryptography", "torch")


@final
@dataclass(frozen=True, kw_only=True)
class Header:
    """The first line of a journal: what was promised, by whom it was run and with what.

    Args:
        guarantee: what was promised; None for a run without privacy.
        plan_file: hash of plan.toml.
        plan_hash: of the plan when the run began; a later version with more keys gives the same
            file another `plan.hash`.
        silos: names, in the order of `silo_accuracies`.
        void: why the guarantee does not hold for this run, if it does not.
        records_are: "given in Python" where no plan leads to the records; None where the plan does.
        own_model: class of a module that was given in Python instead of the model that the plan
            names.
        no_ledger: why the run's releases are on no ledger; None where they are.
        arithmetic: what the silos' floats depend on besides plan, records and model; empty where
            nobody repeats a round.
    """

    guarantee: Account | None
    plan_file: str
    plan_hash: str
    silos: tuple[str, ...]
    started: str
    versions: Mapping[str, str]
    void: str | None
    records_are: str | None = None
    own_model: str | None = None
    no_ledger: str | None = None
    arithmetic: Mapping[str, str] = field(default_factory=dict)


def software_versions() -> dict[str, str]:
    """Versions of what a result depends on, without importing any of it."""
    versions = {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "sumus": __version__,
    }
    for name in _VERSIONED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
