"""What a data set has spent already, beside every new guarantee about it."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich.text import Text

from sumus.books import Ledger, dataset_of, rounded_up
from sumus.cli.terminal import Hanging
from sumus.plan import TrainingPlan

__all__ = ["ledger_text", "spent_so_far", "spent_text"]


def spent_so_far(plan: TrainingPlan) -> dict[str, Any] | None:
    """The total on the ledger of the plan's data set, for what the plan protects; None where
    nothing was released from here.
    """
    return _spent(Ledger.of_dataset(dataset_of(plan)), plan.privacy.unit)


def _spent(ledger: Ledger, unit: str) -> dict[str, Any] | None:
    return (
        {"dataset": ledger.dataset} | asdict(ledger.total(unit)) if ledger.path.exists() else None
    )


def spent_text(plan: TrainingPlan) -> Hanging:
    """The same in a line that stands below an account."""
    line = _line(dataset_of(plan), spent_so_far(plan))
    return Hanging(Text(f"  ledger       {line}"))


def ledger_text(ledger: Ledger, unit: str = "record") -> Text:
    """The same of a silo's own ledger, before it agrees to anything."""
    return Text(f"ledger              {_line(ledger.dataset, _spent(ledger, unit))}")


def _line(dataset: str, total: dict[str, Any] | None) -> str:
    if total is None:
        return f"nothing was released from {dataset} here so far"
    runs = "1 run" if total["runs"] == 1 else f"{total['runs']} runs"
    bound = (
        "no bound"
        if math.isinf(total["epsilon"])
        else f"ε ≤ {rounded_up(total['epsilon'])} at δ = {total['delta']:.3g}"
    )
    proved = "" if total["proved"] else ", NOT PROVED in part"
    return f"{bound}{proved} for {total['dataset']} so far, {runs} (sumus ledger show)"
