"""What is said of one column: its counts, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import numpy.typing as npt

from sumus.describing.estimates import (
    Estimate,
    quantile,
    ratio,
    significant,
    spread,
)
from sumus.plan import ColumnCells
from sumus.tasks import kaplan_meier

__all__ = ["LEVELS", "ColumnStatistics", "statistics_of"]

Vector = npt.NDArray[np.float64]

_TOLD = 0.9  # of the records must be in cells that noise alone would hardly make

LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Of the quantiles that are told; never the smallest or the largest value."""


@final
@dataclass(frozen=True, kw_only=True)
class ColumnStatistics:
    """A column as a private sum shows it. Every estimate has the interval of its noise.

    Args:
        kind: "bounded" or "wide" numbers, "categories", "text" without a list, or "survival": times
            with their events.
        cells: (name, noisy count) of every cell, in order.
        plus_minus: of every count, 95 %.
        edges: of numbers, between the cells that are neither beyond them nor missing.
        missing: share of the records without a value; for numbers also with one that is none.
        mean: of values clipped to their bounds; None without bounds, and where records are too few
            for the noise; likewise `std`.
        quantiles: by level.
        below: share of the values under their lower bound; `above`: over the upper one.
        shares: of categories, among all records.
        survival: (cut point, share without an event by then), Kaplan–Meier; its interval holds the
            choice of people too.
        bounds: for the plan: those that it declares, or learned ones; None where nothing is known.
        learned: whether the bounds follow from the sum.
    """

    name: str
    kind: str
    cells: tuple[tuple[str, float], ...]
    plus_minus: float
    edges: tuple[float, ...] = ()
    missing: Estimate | None = None
    mean: Estimate | None = None
    std: Estimate | None = None
    quantiles: Mapping[float, Estimate] = field(default_factory=dict)
    below: Estimate | None = None
    above: Estimate | None = None
    shares: Mapping[str, Estimate] = field(default_factory=dict)
    survival: tuple[tuple[float, Estimate], ...] = ()
    bounds: tuple[float, float] | None = None
    learned: bool = False

    @property
    def counts(self) -> Vector:
        """Of all cells, in order."""
        return np.array([count for _, count in self.cells])

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "kind": self.kind,
            "cells": [[name, count] for name, count in self.cells],
            "count_plus_minus": self.plus_minus,
            "edges": list(self.edges),
            **{name: _plain(getattr(self, name)) for name in ("missing", "mean", "std")},
            "quantiles": {f"{level:g}": _plain(each) for level, each in self.quantiles.items()},
            "below": _plain(self.below),
            "above": _plain(self.above),
            "shares": {name: _plain(each) for name, each in self.shares.items()},
            "survival": [[time, _plain(each)] for time, each in self.survival],
            "bounds": None if self.bounds is None else list(self.bounds),
            "learned": self.learned,
        }


def statistics_of(
    cells: ColumnCells, counts: Vector, sigma: float, *, records: float | None = None
) -> ColumnStatistics:
    """What noisy counts say of a column.

    Args:
        counts: of its cells.
        sigma: standard deviation of the noise in each.
        records: how many there are, where other columns know better than this one's total.
    """
    every = np.ones(cells.count)
    common: dict[str, Any] = {
        "name": cells.name,
        "kind": cells.kind,
        "plus_minus": 1.96 * sigma,
        "missing": _share(cells.missing, every, counts, sigma),
    }
    if cells.kind == "text":
        return ColumnStatistics(cells=_named(("there", "missing"), counts), **common)
    if cells.kind == "survival":
        return ColumnStatistics(
            cells=_named(_outcomes(cells.edges), counts),
            edges=cells.edges,
            survival=_kaplan_meier(cells, counts, sigma),
            **common,
        )
    if cells.kind == "categories":
        names = (*cells.names, "other", "missing")
        shares = {
            name: share
            for place, name in enumerate(names[:-1])
            if (share := _share(place, every, counts, sigma)) is not None
        }
        return ColumnStatistics(cells=_named(names, counts), shares=shares, **common)
    there = float(counts[:-1].sum()) if records is None else records - float(counts[-1])
    return _numbers(cells, counts, sigma, there, common)


def _outcomes(cuts: tuple[float, ...]) -> tuple[str, ...]:
    """Names of the cells of times: as `Survival.encode` numbers them, and missing."""
    starts = (0.0, *cuts[:-1])
    events = [f"event in {low:g} – {high:g}" for low, high in zip(starts, cuts, strict=True)]
    followed = ["not followed", *(f"followed to {cut:g}, no event" for cut in cuts)]
    codes = [followed[0]]
    for event, later in zip(events, followed[1:], strict=True):
        codes += [event, later]
    return (*codes, "missing")


def _kaplan_meier(
    cells: ColumnCells, counts: Vector, sigma: float
) -> tuple[tuple[float, Estimate], ...]:
    points = kaplan_meier(counts[:-1], noise_variance=sigma**2)
    told = [
        Estimate(
            point.value,
            point.value - (point.plus_minus or 0.0),
            point.value + (point.plus_minus or 0.0),
        ).within(0.0, 1.0)
        for point in points
    ]
    return tuple(zip(cells.edges, told, strict=True))


def _numbers(
    cells: ColumnCells, counts: Vector, sigma: float, there: float, common: Mapping[str, Any]
) -> ColumnStatistics:
    edges, present = np.array(cells.edges), counts[:-1]
    known = np.ones(cells.count)
    known[cells.missing] = 0.0
    names = ("below", *(f"{low:g} – {high:g}" for low, high in _pairs(edges)), "above", "missing")
    made: dict[str, Any] = {
        "cells": _named(names, counts),
        "edges": cells.edges,
        "below": _share(0, known, counts, sigma),
        "above": _share(cells.count - 2, known, counts, sigma),
    }
    if cells.kind == "bounded":
        low, high = cells.edges[0], cells.edges[-1]
        # a value beyond counts as its bound, one inside as the middle of its cell
        values = np.array([low, *((edges[:-1] + edges[1:]) / 2.0), high])
        half = float(np.diff(edges).max()) / 2.0
        ends = np.array([low, *edges, high])
        levels = {level: quantile(level, ends, present, sigma) for level in LEVELS}
        mean = ratio(values, np.ones(len(values)), present, sigma)
        deviation = spread(values, present, sigma)
        made |= {
            "mean": None if mean is None else mean.widened(half).within(low, high),
            "std": None if deviation is None else deviation.widened(half).within(0.0, math.inf),
            "quantiles": levels if mean is not None else {},
            "bounds": (low, high),
        }
    else:
        sure = significant(present, sigma)
        ends = np.array([-math.inf, *edges, math.inf])
        enough = float(sure.sum()) >= _TOLD * there > 0.0
        if enough and ratio(known, np.ones(cells.count), counts, sigma) is not None:
            made["quantiles"] = {
                level: quantile(level, ends, present, sigma, shown=sure) for level in LEVELS
            }
            made |= {"bounds": _learned(ends, sure), "learned": True}
    return ColumnStatistics(**made, **common)


def _learned(ends: Vector, sure: Vector) -> tuple[float, float]:
    """Bounds that hold the middle 98 % of the records that can be told from noise, rounded outwards
    to the grid, and to zero where that adds a tenth or less.
    """
    share = np.cumsum(sure) / sure.sum()
    first = int(np.searchsorted(share, 0.01, side="right"))
    last = int(np.searchsorted(share, 0.99, side="left"))
    largest = float(ends[-2])  # beyond it there is no edge
    low, high = max(float(ends[first]), -largest), min(float(ends[last + 1]), largest)
    return (
        0.0 if 0.0 < low <= high / 10.0 else low,
        0.0 if low / 10.0 <= high < 0.0 else high,
    )


def _share(place: int, among: Vector, counts: Vector, sigma: float) -> Estimate | None:
    one = np.zeros(len(counts))
    one[place] = 1.0
    share = ratio(one, among, counts, sigma)
    return None if share is None else share.within(0.0, 1.0)


def _named(names: tuple[str, ...], counts: Vector) -> tuple[tuple[str, float], ...]:
    return tuple(zip(names, map(float, counts), strict=True))


def _pairs(edges: Vector) -> list[tuple[float, float]]:
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def _plain(estimate: Estimate | None) -> dict[str, float] | None:
    if estimate is None:
        return None
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}
