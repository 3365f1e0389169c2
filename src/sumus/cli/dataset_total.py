"""What a data set has spent already, beside every new guarantee about it."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from sumus.books import Budget, Ledger, dataset_of, rounded_up, without_bound
from sumus.cli.terminal import Hanging
from sumus.plan import TrainingPlan

if TYPE_CHECKING:
    from sumus.books import DatasetTotal
    from sumus.guarantee import Account

__all__ = ["after_text", "before_text", "ledger_text", "spent_so_far", "spent_text"]


def spent_so_far(plan: TrainingPlan) -> dict[str, Any] | None:
    """The total on the ledger of the plan's data set, for what the plan protects; None where
    nothing was released from here.
    """
    return _spent(Ledger.of_dataset(dataset_of(plan)), plan.privacy.unit)


def _spent(ledger: Ledger, unit: str) -> dict[str, Any] | None:
    if not ledger.path.exists():
        return None
    total = asdict(ledger.total(unit))
    del total["reserved"]  # of what is spent nothing is
    return {"dataset": ledger.dataset} | total


def spent_text(plan: TrainingPlan) -> Hanging:
    """The same in a line that stands below an account."""
    line = _line(dataset_of(plan), spent_so_far(plan))
    return Hanging(Text(f"  ledger       {line}"))


def before_text(
    plan: TrainingPlan, account: Account, *, asked: float | None = None, run: str | None = None
) -> Hanging:
    """What the data set has spent before a run and will have with it, and how much it may.

    Args:
        asked: what `--max-epsilon` says.
        run: that is resumed.
    """
    ledger = Ledger.of_dataset(dataset_of(plan))
    before = ledger.total(account.unit, without=run)
    held = ledger.committed(account.unit, without=run).reserved
    own = max(account.epsilon, account.tuning_epsilon or 0.0) + (account.metrics_epsilon or 0.0)
    budget = Budget.of(plan, ledger, asked=asked)
    runs = "1 run" if before.runs == 1 else f"{before.runs} runs"
    first = (
        f"{ledger.dataset} has no bound so far, {runs}"
        if math.isinf(before.epsilon)
        else f"{ledger.dataset} has spent ε ≤ {rounded_up(before.epsilon)} so far, {runs}"
        f"{_doubled(ledger, account.unit, run)}"
        if before.runs
        else f"nothing was released from {ledger.dataset} here so far"
    )
    if held:
        first += f"; ε ≤ {rounded_up(held)} is set aside by runs that have not ended"
    both = before.epsilon + held + own
    with_it = "" if math.isinf(both) else f"; ε ≤ {rounded_up(both)} with this one"
    most = (
        ""
        if budget is None or math.isinf(budget.max_epsilon)
        else f", of at most {budget.max_epsilon:g} ({budget.said_by})"
    )
    return Hanging(Text(f"  ledger       {first}{with_it}{most}"))


def _doubled(ledger: Ledger, unit: str, without: str | None) -> str:
    """Why runs that protect persons or silos count twice for one record."""
    others = {spent.unit for spent in ledger.runs() if spent.run != without} - {unit}
    if not others:
        return ""
    more = sorted(others)[0]
    why = f"another {unit} makes another {more}, which is one less and one more"
    return f" (those that protect {more}s count twice for one {unit}: {why})"


def after_text(spent: DatasetTotal) -> str:
    """What the data set has spent, a run and all before it."""
    runs = "1 run" if spent.runs == 1 else f"{spent.runs} runs"
    if math.isinf(spent.epsilon):
        why = without_bound(spent.unit)
        return f"{spent.dataset}: no bound for one {spent.unit} after {runs}: {why}"
    proved = "" if spent.proved else ", NOT PROVED in part"
    bound = f"ε ≤ {rounded_up(spent.epsilon)} at δ = {spent.delta:.3g} for one {spent.unit}"
    earlier = spent.before
    before = (
        f"; ε ≤ {rounded_up(earlier.epsilon)} before"
        if earlier is not None and earlier.runs
        else ""
    )
    return (
        f"{spent.dataset}: {bound}, {runs} by simple addition{before}{proved} (sumus ledger show)"
    )


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
