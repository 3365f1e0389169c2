"""The ε of a ledger, composed where the releases of its runs are known, added up where not.

    ε = ε_composed(δ_1 + … + δ_k) + ε_(k+1) + … + ε_n        at δ = δ_1 + … + δ_n

Runs 1 … k have folders that say what was released, models and metrics alike. The rest (a search, a
folder that is gone, a run of another unit, a run that is not proved) is added as the ledger has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from sumus.books import Ledger, RunFolder, RunSpending
from sumus.errors import StorageError, SumusError

__all__ = ["Composed", "composed"]


@final
@dataclass(frozen=True, kw_only=True)
class Composed:
    """A total for one unit.

    Args:
        epsilon: at the ledger's total δ, never above simple addition.
        runs: names of those that were composed with each other.
        added: (name, why) of those that were added.
        measured: whether metrics are among what was composed.
    """

    unit: str
    epsilon: float
    delta: float
    proved: bool
    runs: tuple[str, ...]
    added: tuple[tuple[str, str], ...]
    measured: bool


def composed(ledger: Ledger, unit: str, root: Path) -> Composed:
    """The total for one unit.

    Guarantee: an upper bound on what everything on the ledger has spent, if no plan of a composed
        run was chosen by what an earlier one released. A folder that holds another plan than the
        ledger names is a `StorageError`: the ledger or the folder was changed.

    Args:
        root: where the run folders are.
    """
    from sumus.guarantee import PastRun, joint_epsilon

    known: list[RunSpending] = []
    past: list[PastRun] = []
    rest: list[tuple[RunSpending, str]] = []
    for spent in ledger.runs():
        why = _why_not(spent, unit, root)
        if why is not None:
            rest.append((spent, why))
            continue
        run = RunFolder.open(root / spent.run)
        if run.plan_hash != spent.plan_hash:
            raise StorageError(
                f"{run.path} is of plan {run.plan_hash[:8]}, the ledger says "
                f"{spent.plan_hash[:8]}. Find the right folder."
            )
        of_models = spent.purpose == "model"
        release = PastRun(
            plan=run.plan,
            silos=run.silos,
            rounds=spent.releases if of_models else 0,
            measurements=0 if of_models else spent.releases,
            numbers=spent.rounds if of_models else None,
        )
        try:
            joint_epsilon([release], delta=spent.delta)
        except SumusError as error:
            rest.append((spent, str(error)))
            continue
        known.append(spent)
        past.append(release)
    total, by_addition = ledger.total(unit), ledger.sum_of([each for each, _ in rest], unit)
    simple = ledger.sum_of(known, unit)
    joint = joint_epsilon(past, delta=simple.delta) if past else 0.0
    return Composed(
        unit=unit,
        epsilon=min(total.epsilon, joint + by_addition.epsilon),
        delta=total.delta,
        proved=total.proved,
        runs=tuple(dict.fromkeys(spent.run for spent in known)),
        added=tuple(dict.fromkeys((spent.run, why) for spent, why in rest)),
        measured=any(spent.purpose == "metrics" for spent in known),
    )


def _why_not(spent: RunSpending, unit: str, root: Path) -> str | None:
    if spent.unit != unit:
        return f"protects one {spent.unit}"
    if not spent.proved:
        return "not proved"
    if spent.purpose not in ("model", "metrics"):
        return f"a release for {spent.purpose}"
    if not (root / spent.run / "journal.jsonl").is_file():
        return f"no folder in {root}"
    return None
