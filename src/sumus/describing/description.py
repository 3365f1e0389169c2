"""A run's one noisy sum, read as statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from sumus.books import RunFolder, rounded_up
from sumus.describing.columns import ColumnStatistics, statistics_of
from sumus.describing.estimates import Estimate
from sumus.errors import DataError, PlanError, dotted
from sumus.files import replace_atomically, toml_value
from sumus.guarantee import Account, NoiseDesign, as_table
from sumus.plan import ColumnCells, ResolvedPlan, TrainingPlan, cells_of
from sumus.tasks import number_text, percent_text

__all__ = ["Description"]


@final
@dataclass(frozen=True, kw_only=True)
class Description:
    """What a federation's records look like, as far as its guarantee lets anybody see.

    Args:
        path: the run's folder.
        plan: that described them.
        account: what the run guarantees.
        records: how many there are in all silos of the sum; persons where they are the unit.
        columns: by name, in the order of the plan.
        noise_std: standard deviation of the noise in every count.
        survivors: silos that are in the sum; `silos`: silos of the plan.
        void: why the guarantee does not hold, if it does not.
    """

    path: Path
    plan: TrainingPlan
    account: Account | None
    records: Estimate
    columns: Mapping[str, ColumnStatistics]
    noise_std: float
    survivors: int
    silos: int
    void: str | None = None

    @classmethod
    def of_run(cls, run: RunFolder) -> Description:
        """Read the sum that a run has released."""
        run.verify()
        if not run.plan.describes:
            rule = "must be describe: a training run has a model, not statistics"
            raise PlanError(
                "training.algorithm", run.plan.training.algorithm, rule, "Use `sumus report`."
            )
        stored, rounds = run.read_checkpoint(), run.rounds()
        if stored is None or not rounds:
            raise DataError(f"{run.path} has released no sum yet. Finish the run first.")
        counts = np.asarray(stored[0]["iterate"], dtype=np.float64)
        if not counts.any():  # noise makes no sum of zeros
            why = "; ".join(rounds[-1].notes) or "its sum is empty"
            raise DataError(f"{run.path} has no statistics: {why}. Run it anew.")
        design = NoiseDesign.of(ResolvedPlan.of(run.plan, run.silos))
        places = [run.silos.index(name) for name in rounds[-1].survivors]
        sigma = noise_std(design, places)
        cells = cells_of(run.plan)
        scale = counted_as(run.plan)
        records = _records(cells, scale * counts, scale * sigma)
        return cls(
            path=run.path,
            plan=run.plan,
            account=run.guarantee,
            records=records,
            columns={
                each.name: statistics_of(
                    each, scale * counts[each.place], scale * sigma, records=records.value
                )
                for each in cells
            },
            noise_std=scale * sigma,
            survivors=len(places),
            silos=len(run.silos),
            void=run.void,
        )

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """For `data.bounds` of a plan, declared and learned."""
        return {
            name: column.bounds
            for name, column in self.columns.items()
            if column.bounds is not None
        }

    @property
    def bounds_toml(self) -> str:
        """The bounds as a table of a plan: learned ones hold the middle 98 % of what can be told
        from noise, rounded outwards.
        """
        lines = [f"# From {self.path.name}: post-processing of a released sum, at no further cost."]
        lines += ["[data.bounds]"]
        for name, column in self.columns.items():
            if column.bounds is None:
                number = column.kind in ("bounded", "wide")
                why = "too few for the noise" if number else "no number"
                lines += [f"# {toml_value(name)}: no bounds ({why})"]
                continue
            ends = toml_value(list(column.bounds))
            whence = "learned" if column.learned else "declared"
            lines += [f"{toml_value(name)} = {ends}  # {whence}"]
        return "\n".join(lines) + "\n"

    @property
    def unit(self) -> str:
        """What is counted."""
        mean = self.plan.protects_persons and self.plan.data.person_weighting == "mean"
        return "persons" if mean else "records"

    def as_json(self) -> dict[str, Any]:
        """Plain values; a void run has no ε."""
        promised = None if self.void is not None else self.account
        return {
            "run": str(self.path),
            "epsilon": None if promised is None else promised.epsilon,
            "delta": None if promised is None else promised.delta,
            "proved": promised is not None and promised.proved,
            "analysis": None if promised is None else promised.analysis,
            "void": self.void,
            "counts": self.unit,
            "records": {
                "value": self.records.value,
                "low": self.records.low,
                "high": self.records.high,
            },
            "noise_std": self.noise_std,
            "survivors": self.survivors,
            "silos": self.silos,
            "columns": {name: column.as_json() for name, column in self.columns.items()},
            "bounds": {name: list(ends) for name, ends in self.bounds.items()},
        }

    def write(self) -> Path:
        """Write `bounds.toml` into the run's folder; returns its path."""
        file = self.path / "bounds.toml"
        replace_atomically(file, self.bounds_toml.encode())
        return file

    def rows(self) -> list[tuple[str, str, str, str]]:
        """(column, missing, what is typical, bounds or what to do) for people."""
        return [_row(column) for column in self.columns.values()]

    def __str__(self) -> str:
        rows = [("column", "missing", "typical", "bounds"), *self.rows()]
        widths = [max(len(row[place]) for row in rows) for place in range(4)]
        lines = [
            "  ".join(each.ljust(width) for each, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([self.headline, *lines])

    @property
    def headline(self) -> str:
        """How many there are, and at which ε."""
        told = number_text(self.records.value, self.records.plus_minus)
        promised = (
            "no guarantee"
            if self.account is None or self.void
            else f"ε ≤ {rounded_up(self.account.epsilon)} at δ = {self.account.delta:g}"
        )
        return f"{told} {self.unit} of {self.survivors} silos, {promised}"

    def _repr_html_(self) -> str:
        return as_table(self.headline, [(row[0], "; ".join(row[1:])) for row in self.rows()])


def noise_std(design: NoiseDesign, survivors: list[int]) -> float:
    """σ of the noise in every count of a sum of these silos (places in the plan), in records."""
    variance = (
        design.resolved.contributors * design.share.variance_grid
        if design.plan.noise.removable
        else math.fsum(design.drawn_by(design.silos[place]).variance_grid for place in survivors)
    )
    return math.sqrt(variance) * design.grid.granularity


def counted_as(plan: TrainingPlan) -> float:
    """Records that one unit of the sum stands for: under "sum" a row of a person adds 1/M."""
    sums = plan.protects_persons and plan.data.person_weighting == "sum"
    return float(plan.rows_per_person) if sums else 1.0


def _records(
    cells: tuple[ColumnCells, ...], counts: npt.NDArray[np.float64], sigma: float
) -> Estimate:
    """Every column counts all records: the mean of their totals, weighed by what noise each has."""
    weights = np.array([1.0 / each.count for each in cells])
    totals = np.array([counts[each.place].sum() for each in cells])
    value = float(weights @ totals / weights.sum())
    width = 1.96 * sigma / math.sqrt(float(weights.sum()))
    return Estimate(value, value - width, value + width)


def _row(column: ColumnStatistics) -> tuple[str, str, str, str]:
    missing = "?" if column.missing is None else share_text(column.missing)
    if column.kind == "text":
        listed = f"list {dotted('data.categories', column.name)}"
        return column.name, missing, "text without a list", listed
    if column.kind == "survival":
        ends = [*column.survival[:1], *column.survival[1:][-1:]]
        curve = ", ".join(f"{share_text(each)} without event by {time:g}" for time, each in ends)
        return column.name, missing, curve, "–"
    if column.kind == "categories":
        first = sorted(column.shares.items(), key=lambda pair: -pair[1].value)[:3]
        typical = ", ".join(f"{name} {share_text(share)}" for name, share in first)
        return column.name, missing, typical or "too few for the noise", "–"
    bounds = "–" if column.bounds is None else f"{column.bounds[0]:g} … {column.bounds[1]:g}"
    middle = column.quantiles.get(0.5)
    if middle is None:
        return column.name, missing, "too few for the noise", bounds
    if column.mean is None:
        told = f"median {value_text(middle)}"
    else:
        told = f"mean {value_text(column.mean)}, median {value_text(middle)}"
    return column.name, missing, told, f"{bounds}{' (learned)' if column.learned else ''}"


def share_text(share: Estimate) -> str:
    """A share in per cent with its half-width."""
    return percent_text(share.value, share.plus_minus)


def value_text(estimate: Estimate) -> str:
    """A number with its half-width, or with its interval where that is open or lopsided."""
    low, high = estimate.value - estimate.low, estimate.high - estimate.value
    if math.isfinite(low + high) and max(low, high) <= 3.0 * min(low, high):
        return number_text(estimate.value, estimate.plus_minus)
    return f"{estimate.value:.3g} ({_end(estimate.low)} … {_end(estimate.high)})"


def _end(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "?"
