"""`sumus new`: a commented plan for somebody's own table."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from sumus.cli.options import AsJson, known_encoding, print_json
from sumus.cli.terminal import Hanging, screen
from sumus.errors import PlanError, StorageError
from sumus.files import replace_atomically

if TYPE_CHECKING:
    from sumus.drafting import Draft, Known, LookedAt

__all__ = ["new_app"]

new_app = typer.Typer(add_completion=False)

_SAID_BELOW = ("  assumed", "  columns", "  records")
_COLUMNS = "COLUMN[,COLUMN…]"


@new_app.command()
def new_command(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A table with a row per record.")],
    silo: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Says whose record it is.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="What is to be learned.")
    ] = None,
    person: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Says whose row it is: persons are protected whole."),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="record|person",
            help="What is protected. Default: persons where a column of them repeats.",
        ),
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Survival: how long somebody was followed.")
    ] = None,
    event: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Survival: whether it happened then.")
    ] = None,
    intervals: Annotated[
        str | None, typer.Option(metavar="T[,T…]", help="Survival: public cut points of time.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="classification|regression|survival|counts", help="Default: by the label."
        ),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="The target for everything training releases.")] = (
        1.0
    ),
    delta: Annotated[
        float | None, typer.Option(help="Default: a power of ten, by the number of records.")
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Public bounds and categories of columns, TOML or JSON; a plan or the bounds.toml "
            "of a description will do.",
        ),
    ] = None,
    bounds: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=LOW,HIGH", help="Public bounds of a column. Repeatable."),
    ] = None,
    categories: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=NAME,NAME…", help="Public list of a column. Repeatable."),
    ] = None,
    list_: Annotated[
        list[str] | None,
        typer.Option(
            "--list",
            metavar=_COLUMNS,
            help="Read the values of these off the table and WRITE THEM INTO THE PLAN: only where "
            "everybody may know them. Repeatable.",
        ),
    ] = None,
    leave_out: Annotated[
        list[str] | None, typer.Option(metavar=_COLUMNS, help="No features. Repeatable.")
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of a text table. Default: utf-8, or by its mark."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The plan.")] = Path("plan.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the plan.")] = False,
    json_: AsJson = False,
) -> None:
    """Write a commented plan for a table: names and kinds of columns, an algorithm, rounds and noise
    for its size, with the reason for each.

    Asks what it cannot know where input and output are a terminal, and never otherwise.
    """
    from sumus.data import locate
    from sumus.drafting import Asked, as_json, draft, look_at, plan_text, typed_numbers

    asks = sys.stdin.isatty() and sys.stdout.isatty() and not json_
    _check_free(out, force=force or asks)
    known = _known(schema, bounds, categories)
    file, _ = locate(str(table), None)
    folder = out.absolute().parent
    path = os.path.relpath(os.path.realpath(file), _real(folder))
    written = None if encoding is None else known_encoding(encoding)
    looked_at = look_at(file, folder, path, written)
    _check_typed_lists(looked_at, categories)
    asked = Asked(
        silo=silo or "",
        label=label,
        person=person,
        unit=unit,
        time=time,
        event=event,
        task=task,
        epsilon=epsilon,
        delta=delta,
        intervals=None if intervals is None else typed_numbers(intervals, "--intervals"),
        known=known,
        listed=_split(list_),
        unwanted=_split(leave_out),
    )
    if asks:
        from sumus.cli.new_questions import answered

        asked = answered(looked_at, asked, out=None if force else out)
    if not asked.silo:
        names = list(looked_at.table.columns)
        shown = f"{', '.join(names[:20])}{', …' if len(names) > 20 else ''}"
        rule = "must name the column that says whose record it is"
        raise PlanError("--silo", None, rule, f"Columns: {shown}.")
    drafted = draft(looked_at, asked)
    replace_atomically(out, plan_text(drafted, out.name).encode())
    if json_:
        print_json({"plan": str(out), "plan_hash": drafted.plan.hash, **as_json(drafted)})
        return
    _show(screen(), drafted, out)


def _real(folder: Path) -> str:
    if not folder.is_dir():
        raise StorageError(f"{folder} is no folder. Make it first, or give another --out.")
    return os.path.realpath(folder)


def _check_free(out: Path, *, force: bool) -> None:
    if out.is_dir():
        raise StorageError(f"{out} is a folder. Give --out a file.")
    if out.exists() and not force:
        raise StorageError(f"{out} is there already. Give --force, or another --out.")


def _known(schema: Path | None, bounds: list[str] | None, categories: list[str] | None) -> Known:
    from sumus.drafting import Known, typed_bounds, typed_names

    known = Known() if schema is None else Known.load(schema)
    ends = dict(_pair("--bounds", each) for each in bounds or ())
    lists = dict(_pair("--categories", each) for each in categories or ())
    return known.joined(
        Known(
            {name: typed_bounds(value, name) for name, value in ends.items()},
            {name: typed_names(value, name) for name, value in lists.items()},
        )
    )


def _check_typed_lists(looked_at: LookedAt, categories: list[str] | None) -> None:
    from sumus.data import as_text
    from sumus.drafting import check_commas, typed_names

    for name, value in (_pair("--categories", each) for each in categories or ()):
        if name in looked_at.table.columns:
            values = as_text(looked_at.table.columns[name]).values
            check_commas(typed_names(value, name), values, name)


def _pair(option: str, given: str) -> tuple[str, str]:
    name, separator, value = given.partition("=")
    if not separator or not name.strip():
        rule = "must look like COLUMN=VALUES"
        raise PlanError(option, given, rule, "For example --bounds age=0,110.")
    return name.strip(), value


def _split(given: list[str] | None) -> tuple[str, ...]:
    return tuple(name.strip() for each in given or () for name in each.split(",") if name.strip())


def _show(console: Console, draft: Draft, out: Path) -> None:
    from sumus.drafting import read_off, shown

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("column", "kind", "what becomes of it"):
        table.add_column(title)
    for used in draft.used:
        table.add_row(escape(shown(used.finding.name)), used.finding.kind, escape(used.how))
    for left in draft.left_out:
        table.add_row(
            escape(shown(left.name)), left.kind, f"[yellow]left out[/yellow]: {left.left_out}"
        )
    console.print(table, highlight=False)
    console.print()
    for choice in draft.choices:
        value = escape(f"{choice.key} = {choice.value}")
        console.print(f"  {value.ljust(44)} [dim]{escape(choice.reason)}", highlight=False)
    console.print()
    told = str(draft.account).splitlines()
    for line in (each for each in told if not each.startswith(_SAID_BELOW)):
        console.print(Hanging(Text(line)))
    console.print()
    for line in draft.remarks:
        console.print(f"[dim]  {escape(line)} (said here only)", highlight=False)
    console.print("Training reads off the records, and takes as public:", highlight=False)
    for fact, fix in read_off(draft):
        console.print(f"  {escape(fact)} [dim]({escape(fix)})", highlight=False)
    if draft.plan.protects_persons:
        console.print(
            f"Persons are protected with all rows, by column {escape(shown(draft.asked.person or ''))} "
            "(--unit record protects single rows).",
            highlight=False,
        )
    if draft.unlisted:
        names = f"{', '.join(map(shown, draft.unlisted[:6]))}{', …' if draft.unlisted[6:] else ''}"
        console.print(
            f"Text without a list ({escape(names)}) cannot go into an export for scikit-learn, and "
            "makes an ONNX export begin behind the encoding: --list COLUMN or --categories lists it.",
            highlight=False,
        )
    console.print()
    plan = shlex.quote(str(out))
    console.print(f"plan      {plan}", highlight=False, soft_wrap=True, markup=False)
    if draft.unbounded:
        console.print(
            f"better    sumus describe {plan} --fill      learns bounds of "
            f"{', '.join(map(shown, draft.unbounded[:6]))}{', …' if len(draft.unbounded) > 6 else ''}",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
    console.print(f"next      sumus train {plan}", highlight=False, soft_wrap=True, markup=False)
