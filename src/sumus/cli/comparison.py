"""A run's model beside others without privacy, on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from sumus.cli.terminal import Hanging
from sumus.tasks import CONFIDENCE

if TYPE_CHECKING:
    from sumus.runs import TrainedRun

__all__ = ["show_comparison"]


def show_comparison(console: Console, run: TrainedRun) -> None:
    """A table for each measure that is compared, and what it says."""
    if not run.comparison:
        return
    from sumus.comparing import difference_text

    for compared in run.comparison:
        measure = run.plan.task.measure(compared.measure, field="comparison")
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("comparison")
        table.add_column(measure.shown, justify="right", no_wrap=True)
        table.add_column("this run minus it", justify="right", no_wrap=True)
        name = "this run, private" if compared.private else "this run, no privacy"
        name = "this run, simulated" if run.void else name
        table.add_row(f"[bold]{name}", f"[bold]{measure.text(compared.value, compared.plus_minus)}")
        for each in compared.contenders:
            table.add_row(
                escape(each.title),
                measure.text(each.value, each.plus_minus),
                difference_text(each, measure),
            )
        console.print()
        console.print(table, highlight=False)
        for sentence in compared.sentences(measure):
            console.print(Hanging(Text(f"  {sentence}")))
    tested = sum(silo.test for silo in run.comparison[0].silos)
    unit = run.comparison[0].unit
    console.print(
        f"[dim]± holds with {CONFIDENCE} for the choice of the {tested:,} test {unit}s, "
        "differences in pairs; not for another draw of noise or of training records. Models without privacy "
        "were tuned on training records, saw them in the clear and belong to this simulation.",
        highlight=False,
    )
