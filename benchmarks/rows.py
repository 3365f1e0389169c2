"""What a benchmark says in its last line, so that `make bench` can collect it.

A benchmark prints what it likes and ends with `print(last_line(...))`, one line of JSON:

    rows = [at_most("clipped step over plain step, CNN", 1.31, 1.2, "plain steps",
                    floor="1.1: the gradient itself", where="norms 12 %, rounding 8 %")]
    curves = [Curve("clipped step", "records a batch", "ms", (64, 512), (1.0, 7.9))]
    print(last_line(rows, curves))

A row's `ratio` should be taken side by side in one run (ours over theirs, or over the least that is
possible), because ratios are what `make bench-check` compares across machines and days. A time in
seconds is a row too, if a target is in seconds: `unit` says so. Names are stable: they are the keys
of benchmarks/stored.json.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Curve", "Row", "at_least", "at_most", "last_line", "read_last_line"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure with its target.

    Args:
        name: stable and unique among all benchmarks, in words.
        ratio: what was measured, in `unit`.
        target: what `ratio` should reach.
        better: which direction is better.
        unit: of ratio and target: "plain steps", "s", "ms", "× faster than Flower".
        floor: the least (or most) that is possible, with its reason; shown where a target is missed.
        where: where the time goes; shown where a target is missed.
    """

    name: str
    ratio: float
    target: float
    better: Literal["less", "more"]
    unit: str
    floor: str = ""
    where: str = ""

    @property
    def met(self) -> bool:
        """Whether the target is reached; a figure that is not a number reaches none."""
        return self.ratio <= self.target if self.better == "less" else self.ratio >= self.target


@dataclass(frozen=True)
class Curve:
    """Cost against size: one line of a plot; curves with equal `size` and `cost` share axes.

    Args:
        name: what is measured, the line's label.
        size: what grows, with its unit: "silos", "parameters".
        cost: what it costs, with its unit: "ms a round".
        sizes: of each point.
        costs: of each point.
    """

    name: str
    size: str
    cost: str
    sizes: tuple[float, ...]
    costs: tuple[float, ...]


def at_most(
    name: str, ratio: float, target: float, unit: str, *, floor: str = "", where: str = ""
) -> Row:
    """A figure that should be small."""
    return Row(
        name=name, ratio=ratio, target=target, better="less", unit=unit, floor=floor, where=where
    )


def at_least(
    name: str, ratio: float, target: float, unit: str, *, floor: str = "", where: str = ""
) -> Row:
    """A figure that should be large."""
    return Row(
        name=name, ratio=ratio, target=target, better="more", unit=unit, floor=floor, where=where
    )


def last_line(rows: Sequence[Row], curves: Sequence[Curve] = (), **more: Any) -> str:
    """One line of JSON: rows, curves, and whatever else the benchmark wants to say."""
    return json.dumps(
        {
            **more,
            "rows": [asdict(row) | {"met": row.met} for row in rows],
            "curves": [asdict(curve) for curve in curves],
        }
    )


def read_last_line(printed: str) -> tuple[list[Row], list[Curve]]:
    """Rows and curves of what a benchmark printed.

    Raises:
        ValueError: its last line is no object with rows.
    """
    lines = printed.strip().splitlines() or [""]
    try:
        said = json.loads(lines[-1])
        rows = [
            Row(**{key: value for key, value in row.items() if key != "met"})
            for row in said["rows"]
        ]
        curves = [
            Curve(
                curve["name"],
                curve["size"],
                curve["cost"],
                tuple(curve["sizes"]),
                tuple(curve["costs"]),
            )
            for curve in said.get("curves", [])
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        raise ValueError(
            f"the last line must be `print(last_line(rows, curves))`, got {lines[-1][:80]!r} "
            f"({type(reason).__name__}: {reason})"
        ) from None
    return rows, curves
