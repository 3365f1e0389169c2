"""How the training of a federation is shown: a bar over the rounds with live ε, who is waited for,
and who refused.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sumus.books import rounded_up
from sumus.cli.terminal import animates
from sumus.tasks import Task

if TYPE_CHECKING:
    from sumus.engines import Watch
    from sumus.parties import Agreement

__all__ = ["Waiting", "progress"]

_LATE_SECONDS = 2.0  # who answers before is not waited for
_AGAIN_SECONDS = 15.0  # between two lines about the same silos


@final
class Waiting:
    """Says who is waited for: soon after somebody is lost or the only one missing, then now and
    then.

    Args:
        silos: N. While all of them compute nobody is missing.
    """

    def __init__(self, silos: int) -> None:
        self._silos, self._told, self._when = silos, frozenset[str](), -math.inf

    def line(self, awaited: Sequence[Mapping[str, Any]], now: float) -> str | None:
        """The line for those who are awaited at a moment, None if there is nothing new to say."""
        late = [
            silo
            for silo in awaited
            if silo["seconds"] >= _LATE_SECONDS and (silo["away"] or len(awaited) < self._silos)
        ]
        names = frozenset(str(silo["silo"]) for silo in late)
        if not late or (names == self._told and now - self._when < _AGAIN_SECONDS):
            self._told = names
            return None
        self._told, self._when = names, now
        who = ", ".join(
            f"{silo['silo']} ({'not connected' if silo['away'] else 'no answer yet'})"
            for silo in late
        )
        limits = [silo["left"] for silo in late if silo["left"] is not None]
        more = f"{max(limits):.0f} s more at most" if limits else "until enough silos are there"
        return f"waiting for {who}: {max(silo['seconds'] for silo in late):.0f} s so far, {more}"


@contextmanager
def progress(agreement: Agreement, console: Console, *, quiet: bool) -> Iterator[Watch]:
    """A bar over the rounds with live ε, and every refusal once."""
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    target = rounded_up(agreement.account.epsilon)
    waiting = Waiting(len(agreement.design.silos))
    told: set[str] = set()
    with Progress(*columns, console=console, disable=quiet or not animates(console)) as bar:
        task = bar.add_task("round", total=agreement.plan.federation.rounds, state="")

        def watch(news: Mapping[str, Any]) -> None:
            line = waiting.line(news.get("waiting", ()), time.monotonic())
            if not news["rounds"]:
                bar.update(task, state=str(news["phase"]))
            if line is not None:
                console.print(line, style="yellow", soft_wrap=True)
            for record in news["rounds"]:
                state = _state_after(agreement.plan.task, record, target)
                bar.update(task, completed=record["round"], state=state)
                if not animates(console) and not quiet:
                    console.print(f"round {record['round']:>3}  {state}")
                for note in record.get("notes", ()):
                    line = f"round {record['round']}: {note}"
                    console.print(line, style="yellow", markup=False, soft_wrap=True)
            for name, reason in news["refusals"].items():
                if f"{name}: {reason}" not in told:
                    told.add(f"{name}: {reason}")
                    console.print(f"[red]silo {name} refused:[/red] {reason}", soft_wrap=True)

        yield watch


def _state_after(task: Task, record: Mapping[str, Any], target: str) -> str:
    """A round in words: the headline measure, ε spent, who is missing."""
    measured = task.headline_text(record["metrics"], record["metrics_plus_minus"])
    spent = record["epsilon_spent"]
    bound = "no guarantee" if spent is None else f"ε ≤ {rounded_up(spent)} of {target}"
    missing = f"  without {', '.join(record['dropped'])}" if record["dropped"] else ""
    return f"{measured}  {bound}{missing}" if measured else f"{bound}{missing}"
