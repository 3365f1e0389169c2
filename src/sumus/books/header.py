"""The first line of a run's journal."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from sumus import __version__
from sumus.guarantee import Account
from sumus.plan import PLAN_START

__all__ = ["Header", "StartedFrom", "software_versions"]

_VERSIONED = ("numpy", "scipy", "dp-accounting", "cryptography", "torch")


@final
@dataclass(frozen=True, kw_only=True)
class StartedFrom:
    """The released model that a run begins with, and what is known of where it comes from.

    Args:
        model: "sha256:…" of its parameters, as the plan names it.
        run: that released it; None: a file of which no run is known.
        round: of that run.
        plan_hash: of that run.
        dataset: of that run.
        guarantee: of that run in a line; None: it has none.
        no_ledger: why that run's releases are on no ledger; None where they are.
        public: what it was made from, where that was no record (`sumus pretrain`); as its file says.
    """

    model: str
    run: str | None = None
    round: int | None = None
    plan_hash: str | None = None
    dataset: str | None = None
    guarantee: str | None = None
    no_ledger: str | None = None
    public: str | None = None

    def is_named(self, start_from: str | None) -> bool:
        """Whether `training.start_from` names this model: by its hash, or as what another plan's run
        has released.
        """
        by_plan = None if self.plan_hash is None else f"{PLAN_START}{self.plan_hash}"
        return start_from is not None and start_from in (self.model, by_plan)

    def __str__(self) -> str:
        if self.public is not None:
            made = f"made from public things alone ({self.public})"
            return f"{self.model[:15]}…, {made}: no release, and it costs nothing"
        if self.run is None:
            return (
                f"{self.model[:15]}…, of which no run is known: the starting model is public or "
                "its ε is accounted elsewhere"
            )
        released = f"{self.model[:15]}…, released by {self.run} after round {self.round}"
        if self.guarantee is None:
            return f"{released}, which has NO GUARANTEE"
        books = (
            f"on the ledger of {self.dataset}"
            if self.no_ledger is None
            else f"on no ledger here: {self.no_ledger}"
        )
        return f"{released} ({self.guarantee}; {books})"


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
        start: the released model that the run begins with; None: a fresh one.
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
    start: StartedFrom | None = None
    arithmetic: Mapping[str, str] = field(default_factory=dict)


def software_versions() -> dict[str, str]:
    """Versions of what a result depends on, without importing any of it."""
    versions = {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "sumus": __version__,
    }
    found = {name: _installed(name) for name in _VERSIONED}
    return versions | {name: number for name, number in found.items() if number is not None}


@functools.cache  # of a process: its packages are loaded once
def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
