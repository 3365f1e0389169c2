"""Which figures have become worse than those in benchmarks/stored.json.

Ratios are compared as they are. Seconds are compared as multiples of a fixed piece of work that is
timed before and after every benchmark (`machine_ms`), so that a slower machine is no regression.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isnan

from measuring import Measured
from rows import Row

__all__ = ["TOLERATED", "Regression", "best_of", "regressions"]

TOLERATED = 1.2
_TIMES = ("s", "ms", "µs", "ns")


@dataclass(frozen=True)
class Regression:
    """A row that is worse than the stored one, by a factor; None: it is no longer measured."""

    name: str
    stored: float
    now: float | None
    factor: float

    def __str__(self) -> str:
        if self.now is None:
            return f"{self.name}: was {self.stored:.4g}, is no longer measured"
        return (
            f"{self.name}: was {self.stored:.4g}, is {self.now:.4g}: worse by a factor of "
            f"{self.factor:.2f}, {TOLERATED:g} is tolerated"
        )


def regressions(stored: Measured, now: Measured, *, all_rows: bool) -> list[Regression]:
    """Rows that are worse by more than what is tolerated, a figure that is no number among them.

    Args:
        stored: of the same benchmark, in full.
        all_rows: a stored row that was not measured now counts as well.
    """
    measured = {row.name: row for row in now.rows}
    found = []
    for row in stored.rows:
        again = measured.get(row.name)
        if again is None:
            if all_rows:
                found.append(Regression(row.name, row.ratio, None, float("inf")))
            continue
        machine = now.machine_ms / stored.machine_ms if _is_time(row) else 1.0
        factor = _worse_by(row, again.ratio / machine)
        if not factor <= TOLERATED:
            found.append(Regression(row.name, row.ratio, again.ratio, factor))
    return found


def best_of(runs: Iterable[Measured]) -> Measured:
    """The last run, with each row's best figure of all runs: a busy machine makes figures worse,
    seldom better.
    """
    runs = list(runs)
    machine = min(run.machine_ms for run in runs)
    best: dict[str, Row] = {}
    for run in runs:
        for row in run.rows:
            so_far = best.get(row.name)
            if so_far is None or isnan(so_far.ratio) or _worse_by(so_far, row.ratio) < 1.0:
                best[row.name] = row
    last = runs[-1]
    return Measured(
        rows=tuple(best.values()),
        curves=last.curves,
        load_before=last.load_before,
        load_after=last.load_after,
        others=last.others,
        machine_ms=machine,
        seconds=last.seconds,
    )


def _worse_by(row: Row, ratio: float) -> float:
    """The factor by which a figure is worse than a row's; below 1: better."""
    old, new = (row.ratio, ratio) if row.better == "less" else (ratio, row.ratio)
    if old <= 0.0:  # nothing is left of it, or a difference that is lost in noise
        return 1.0 if new <= 0.0 else float("inf")
    return new / old


def _is_time(row: Row) -> bool:
    return row.unit.split(" ")[0] in _TIMES
