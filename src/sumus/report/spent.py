"""What a data set has spent: before a run, by the run, and with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from sumus.books import RunFolder, rounded_up, without_bound

__all__ = ["SpentView", "spent_of"]


@final
@dataclass(frozen=True, kw_only=True)
class SpentView:
    """The ledger as a report may tell it: totals, no other run's name, nothing about a record.

    Args:
        caption: of which data set and for what unit the totals are.
        rows: (when, bound, how many runs).
        notes: how it is added up, or why there is no total.
        own_books: every silo has a ledger of its own, whose totals only the silo knows.
    """

    caption: str
    rows: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]
    own_books: bool = False


def spent_of(run: RunFolder) -> SpentView:
    """From the run's record; a run that is on no ledger says why."""
    total = (run.summary or {}).get("ledger")
    if isinstance(total, dict):
        return _totals(run, total)
    reason = run.header.no_ledger
    if reason is None:
        note = (
            "Every round is on the ledger before it is released; the total is known when the run "
            "is finished, and “sumus ledger show” has it at any time."
            if run.summary is None
            else "The record of this run holds no total; “sumus ledger show” has it."
        )
        return SpentView(caption="", rows=(), notes=(note,))
    own = run.has_evidence
    note = f"No ledger is kept here: {reason}."
    if own:
        note += " What a silo's records have spent in all only that silo can tell."
    return SpentView(caption="", rows=(), notes=(note,), own_books=own)


def _totals(run: RunFolder, total: Mapping[str, Any]) -> SpentView:
    unit, before = str(total["unit"]), total.get("before")
    rows = []
    if isinstance(before, dict):
        rows.append(("Before this run", _bound(before), _runs(before)))
    rows.append(("With this run", _bound(total), _runs(total)))
    guarantee = run.guarantee
    if guarantee is not None and run.void is None:
        own = f"ε\u00a0≤\u00a0{rounded_up(guarantee.epsilon)} at δ\u00a0=\u00a0{guarantee.delta:g}"
        if guarantee.metrics_epsilon is not None:
            own += f"; metrics ε\u00a0≤\u00a0{rounded_up(guarantee.metrics_epsilon)}"
        rows.insert(len(rows) - 1, ("This run", own, "1"))
    notes = ["Added up by simple addition over runs, which holds however they were chosen."]
    if math.isinf(float(total["epsilon"])):
        notes = [f"There is no bound for one {unit}: {without_bound(unit)}."]
    if not total["proved"]:
        notes.append("Some of it is NOT PROVED.")
    return SpentView(
        caption=f"Ledger of {total['dataset']}: what everything released from it has spent for one "
        f"{unit}",
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _bound(total: Mapping[str, Any]) -> str:
    epsilon = float(total["epsilon"])
    if math.isinf(epsilon):
        return "no bound"
    if not int(total["runs"]):
        return "nothing"
    delta = float(total["delta"])
    return f"ε\u00a0≤\u00a0{rounded_up(epsilon)} at δ\u00a0=\u00a0{delta:.3g}"


def _runs(total: Mapping[str, Any]) -> str:
    return f"{int(total['runs'])}"
