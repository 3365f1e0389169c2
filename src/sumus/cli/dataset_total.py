"""What a data set has spent already, beside every new guarantee about it."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich.text import Text

from sumus.books import Ledger, dataset_of, rounded_up
from sumus.cli.terminal import Hanging
from sumus.plan import TrainingPlan

__all__ = ["spent_so_far", "spent_text"]


def spent_so_far(plan: TrainingPlan) -> dict[str, Any] | None:
    """The total on the ledger of the plan's data set, for what the plan protects; None where
    nothing was released from here.
    """
    ledger = Ledger.of_dataset(dataset_of(plan))
    return (
        {"dataset": ledger.dataset} | asdict(ledger.total(plan.privacy.unit))
        if ledger.path.exists()
        else None
    )


def spent_text(plan: TrainingPlan) -> Hanging:
    """The same in a line that stands below an account."""
    total = spent_so_far(plan)
    if total is None:
        line = f"nothing was released from {dataset_of(plan)} here so far"
    else:
        runs = "1 run" if total["runs"] == 1 else f"{total['runs']} runs"
        bound = (
            "no bound"
            if math.isinf(total["epsilon"])
            else f"ε ≤ {rounded_up(total['epsilon'])} at δ = {total['delta']:.3g}"
        )
        proved = "" if total["proved"] else ", NOT PROVED in part"
        line = f"{bound}{proved} for {total['dataset']} so far, {runs} (sumus ledger show)"
    return Hanging(Text(f"  ledger       {line}"))
