"""A ledger over time: what each run has spent on top of those before it, and what the sum may reach."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from sumus.books.budget import DEFAULT_MAX_EPSILON, BudgetFile
from sumus.books.ledger import Ledger

__all__ = ["Step", "limit_of", "steps_of"]


@final
@dataclass(frozen=True, kw_only=True)
class Step:
    """One run on a ledger: what was spent before it and what it spent itself; infinite without
    noise.
    """

    run: str
    before: float
    spent: float
    when: str

    @property
    def after(self) -> float:
        return self.before + self.spent


def steps_of(ledger: Ledger, unit: str) -> list[Step]:
    """Runs in the order of their last release, models and metrics of one together."""
    spent_by: dict[str, float] = {}
    last: dict[str, str] = {}
    for spent in ledger.runs():
        epsilon = ledger.sum_of([spent], unit).epsilon
        spent_by[spent.run] = spent_by.get(spent.run, 0.0) + epsilon
        last[spent.run] = max(last.get(spent.run, ""), spent.last)
    steps: list[Step] = []
    for run in sorted(spent_by, key=lambda each: last[each]):
        before = steps[-1].after if steps else 0.0
        steps.append(Step(run=run, before=before, spent=spent_by[run], when=last[run]))
    return steps


def limit_of(ledger: Ledger) -> float:
    """What the sum may reach: of `budget.toml` beside the ledger, or the default."""
    file = ledger.path.parent / "budget.toml"
    if not file.exists():
        return DEFAULT_MAX_EPSILON
    stored = BudgetFile.load(file)
    return math.inf if stored.no_limit else stored.max_epsilon
