"""What `sumus new` asks at a terminal: whatever options left open and a table cannot tell.

Enter is an answer wherever there is one without public knowledge, and the one that looks at nothing:
bounds stay to be learned, lists stay open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer
from rich.markup import escape
from rich.table import Table

from sumus.cli.terminal import screen
from sumus.errors import SumusError
from sumus.tasks import TASKS

if TYPE_CHECKING:
    from sumus.drafting import Asked, LookedAt

__all__ = ["answered"]

Answer = TypeVar("Answer")


def answered(looked_at: LookedAt, asked: Asked, *, out: Path | None) -> Asked:
    """The same wishes, with answers for what they left open.

    Args:
        looked_at: the table, read.
        asked: by options.
        out: the plan, to ask before it is overwritten; None: it may be.
    """
    if (
        out is not None
        and out.exists()
        and not typer.confirm(f"{out} is there already. Overwrite it?")
    ):
        raise typer.Abort
    survives = asked.task == "survival" or asked.time is not None or asked.event is not None
    if not asked.silo or (asked.label is None and not survives):
        _show_columns(looked_at)
    if not asked.silo:
        asked = replace(asked, silo=_column(looked_at, "Which column says whose record it is?"))
    asked = _with_survival(looked_at, asked) if survives else _with_label(looked_at, asked)
    asked = _with_person(looked_at, asked)
    return _with_known(looked_at, asked)


def _show_columns(looked_at: LookedAt) -> None:
    from sumus.drafting import shown

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("", "column", "kind"):
        table.add_column(title)
    for place, finding in enumerate(looked_at.findings.values(), start=1):
        table.add_row(str(place), escape(shown(finding.name)), finding.kind)
    screen().print(table, highlight=False)


def _ask(question: str, read: Callable[[str], Answer]) -> Answer:
    """Ask until the answer can be read; what is wrong with one is said in a line."""
    while True:
        answer = typer.prompt(question, default="", show_default=False)
        try:
            return read(answer.strip())
        except SumusError as error:
            typer.echo(f"  {' '.join(str(error).split())}")


def _column(looked_at: LookedAt, question: str) -> str:
    names = list(looked_at.table.columns)

    def read(answer: str) -> str:
        if answer not in names and answer.isdecimal() and 1 <= int(answer) <= len(names):
            return names[int(answer) - 1]
        looked_at.column(answer, "answer")
        return answer

    return _ask(f"{question} (name or number)", read)


def _with_label(looked_at: LookedAt, asked: Asked) -> Asked:
    if asked.label is None:
        asked = replace(asked, label=_column(looked_at, "Which column is to be learned?"))
    label = asked.label or ""
    if asked.task is None:
        looked_at.column(label, "--label")
        suggested = looked_at.task_of(label, asked.known)
        known = " | ".join(name for name in TASKS if name != "survival")

        def read(answer: str) -> str:
            from sumus.drafting import check_task

            check_task(answer or suggested)
            return answer or suggested

        asked = replace(asked, task=_ask(f"Task ({known}) [{suggested}]", read))
    return asked


def _with_survival(looked_at: LookedAt, asked: Asked) -> Asked:
    if asked.time is None:
        asked = replace(asked, time=_column(looked_at, "Which column says how long?"))
    if asked.event is None:
        asked = replace(asked, event=_column(looked_at, "Which one says whether it happened?"))
    if asked.intervals is None:
        from sumus.drafting import typed_numbers

        question = "Public cut points of time, such as 30,90,365"
        asked = replace(asked, intervals=_ask(question, lambda text: typed_numbers(text, question)))
    return asked


def _with_person(looked_at: LookedAt, asked: Asked) -> Asked:
    taken = (asked.silo, asked.label, asked.time, asked.event)
    persons = [name for name in looked_at.persons if name not in taken]
    if asked.person is not None or asked.unit is not None or not persons:
        return asked
    whole = typer.confirm(
        f"Values of {persons[0]} repeat. Protect a person with all rows?", default=True
    )
    return replace(asked, person=persons[0]) if whole else replace(asked, unit="record")


def _with_known(looked_at: LookedAt, asked: Asked) -> Asked:
    """Bounds and lists that somebody knows."""
    from sumus.drafting import Known, typed_bounds, typed_names

    label = asked.label if asked.task is not None else None
    target = TASKS[asked.task].label_declaration if label and asked.task else None
    bounds: dict[str, tuple[float, float]] = {}
    lists: dict[str, tuple[str, ...]] = {}

    def ask_bounds(name: str) -> None:
        question = f"  {name}: low,high (Enter: not known)"
        ends = _ask(question, lambda text: typed_bounds(text, name) if text else None)
        if ends is not None:
            bounds[name] = ends

    def ask_names(name: str) -> None:
        question = f"  {name}: values with commas between (Enter: not known)"
        names = _ask(question, lambda text: typed_names(text, name) if text else None)
        if names is not None:
            lists[name] = names

    if label and target == "bounds" and label not in asked.known:
        question = f"Public bounds of {label}, which is learned: low,high"
        bounds[label] = _ask(question, lambda text: typed_bounds(text, label))
    if label and target == "categories" and label not in (*asked.known.categories, *asked.listed):
        typer.echo(f"Public classes of {label}; Enter: read off the records when training.")
        ask_names(label)
    taken = {asked.silo, asked.label, asked.time, asked.event, asked.person, *asked.unwanted}
    features = [
        finding
        for name, finding in looked_at.findings.items()
        if name not in taken and name not in asked.known and finding.left_out is None
    ]
    numbers = [finding.name for finding in features if finding.is_number]
    texts = [f.name for f in features if f.kind == "category" and f.name not in asked.listed]
    for names, what, ask in (
        (numbers, "bounds of columns of numbers", ask_bounds),
        (texts, "values of columns of text", ask_names),
    ):
        if names and typer.confirm(f"Type public {what} ({len(names)}) one by one?", default=False):
            for name in names:
                ask(name)
    return replace(asked, known=asked.known.joined(Known(bounds, lists)))
