"""Writes what the benchmarks gave into docs/performance.md, and their curves into docs/figures/."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from measuring import Measured
from rows import Curve, Row
from suite import BENCHMARKS, Benchmark
from sumus.report import blank_figure, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["BEGIN", "END", "draw_curves", "figure_name", "page_with", "written"]

BEGIN = "<!-- written by `make bench` from benchmarks/stored.json: begin -->"
END = "<!-- end -->"
_WIDE = 10.0  # sizes that span more than this factor are drawn on logarithmic axes


def page_with(page: str, stored: Mapping[str, Measured]) -> str:
    """The page with everything between the two markers written anew.

    Raises:
        ValueError: the page does not have both markers, once each and in this order.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ValueError(f"the page needs one line {BEGIN!r} and, after it, one line {END!r}")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{written(stored)}\n{END}{after}"


def written(stored: Mapping[str, Measured]) -> str:
    """One table of all rows, what is short of its bound, and the figures."""
    lines = [
        "| figure | measured | bound | held | benchmark | load |",
        "|---|---:|---:|---|---|---:|",
    ]
    short: list[str] = []
    figures: list[str] = []
    for benchmark, measured in _in_order(stored):
        load = f"{measured.load_before:.1f}, others {measured.others:.1f}"
        for row in measured.rows:
            lines.append(
                f"| {_cell(row.name)} | {_number(row.ratio)} {_cell(row.unit)} | {_bound(row)} | "
                f"{'yes' if row.met else 'no'} | `{benchmark.name}` | {load} |"
            )
            if not row.met:
                short.append(
                    f"| {_cell(row.name)} | {_cell(row.floor) or 'not known'} | "
                    f"{_cell(row.where) or 'not known'} |"
                )
        if measured.curves:
            name = figure_name(benchmark)
            figures.append(f"![{_alternative(benchmark, measured)}](figures/{name}.svg)")
    if short:
        lines += ["", "### Bounds that are not held", ""]
        lines += ["| figure | the best that is possible | where the time goes |", "|---|---|---|"]
        lines += short
    if figures:
        lines += ["", "### Cost against size", "", "\n\n".join(figures)]
    return "\n".join(lines) + "\n"


def figure_name(benchmark: Benchmark) -> str:
    """Of the figure's files, without what tells their kind."""
    return f"performance-{benchmark.name.replace('_', '-')}"


def draw_curves(folder: Path, benchmark: Benchmark, measured: Measured) -> list[Path]:
    """One panel for each pair of axes; nothing without curves."""
    if not measured.curves:
        return []
    panels: dict[tuple[str, str], list[Curve]] = {}
    for curve in measured.curves:
        panels.setdefault((curve.size, curve.cost), []).append(curve)

    def draw() -> Figure:
        figure, axes = blank_figure(f"{benchmark.title}: cost against size", len(panels))
        for panel, ((size, cost), curves) in zip(axes, panels.items(), strict=True):
            for curve in curves:
                points = sorted(zip(curve.sizes, curve.costs, strict=True))
                panel.plot(*zip(*points, strict=True), marker="o", label=curve.name)
            panel.set(xlabel=size, ylabel=cost)
            if _spans([each for curve in curves for each in curve.sizes]):
                panel.set_xscale("log")
            if _spans([each for curve in curves for each in curve.costs]):
                panel.set_yscale("log")
            panel.legend(fontsize=8)
        return figure

    return save(folder, figure_name(benchmark), draw)


def _in_order(stored: Mapping[str, Measured]) -> Iterator[tuple[Benchmark, Measured]]:
    for benchmark in BENCHMARKS:
        if benchmark.name in stored:
            yield benchmark, stored[benchmark.name]


def _alternative(benchmark: Benchmark, measured: Measured) -> str:
    axes = dict.fromkeys(f"{curve.cost} against {curve.size}" for curve in measured.curves)
    return f"{benchmark.title}: {'; '.join(axes)}"


def _bound(row: Row) -> str:
    return f"{'≤' if row.better == 'less' else '≥'} {_number(row.target)}"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "no number"
    if value == 0.0 or abs(value) >= 100.0:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def _cell(text: str) -> str:
    return text.replace("|", "/").strip()


def _spans(values: list[float]) -> bool:
    """Whether logarithmic axes show positive values better."""
    return min(values) > 0.0 and max(values) / min(values) > _WIDE
