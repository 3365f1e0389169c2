"""`sumus account`: ε of a plan, or of what a run really released, every analysis side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from sumus.cli.options import (
    AsJson,
    Overrides,
    console,
    guarantee_text,
    load_plan,
    print_json,
    with_overrides,
)
from sumus.cli.terminal import Hanging
from sumus.errors import GuaranteeError, PlanError

if TYPE_CHECKING:
    from sumus.guarantee import Account, NoiseDesign

__all__ = ["account_app"]

account_app = typer.Typer(add_completion=False)

# what may be asked of a run afterwards: where its curve is read, and by whom
_FREE = ("privacy.delta", "privacy.accountant")


@account_app.command()
def account(
    path: Annotated[
        str, typer.Argument(metavar="PLAN or RUN", help="A plan file, or the folder of a run.")
    ],
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """The guarantee of a plan, or of the rounds of a run so far."""
    from sumus.cli.dataset_total import spent_so_far, spent_text
    from sumus.guarantee import account_of, calibrated, refuse_large_delta

    folder = Path(path)
    void: str | None = None
    if folder.is_dir():
        design, completed, asked, void = _from_run(folder, overrides)
        if asked == 0:
            raise GuaranteeError(
                f"{folder} has completed no round yet: nothing was released, so there is nothing "
                "to account for."
            )
    else:
        design, completed, asked = (
            calibrated(load_plan(path, overrides, needs_records=False)),
            None,
            0,
        )
        refuse_large_delta(design.plan)  # of a run that is over a large δ is told, not refused
    made = account_of(design)
    if folder.is_dir():
        made = _as_begun(made, folder)
    if as_json:
        extra = (
            {}
            if completed is None
            else {"rounds_completed": completed, "rounds_accounted": asked, "void": void}
        )
        print_json(made.as_json() | extra | {"ledger": spent_so_far(design.plan)})
        return
    screen = console()
    screen.print(guarantee_text(made), soft_wrap=True)
    screen.print(spent_text(design.plan))
    if folder.is_dir():
        _say_start(screen, folder)
    if completed is not None:
        screen.print(f"  [cyan]rounds[/cyan]       {completed} completed, {asked} accounted")
    if void is not None:
        screen.print(f"[bold red]The guarantee is void for this run:[/bold red] {void}")


def _say_start(screen: Console, folder: Path) -> None:
    """The released model that a run began with, whose ε comes before the run's own."""
    from sumus.books import RunFolder

    start = RunFolder.open(folder).start
    if start is not None:
        screen.print(Hanging(Text(f"  starts from  {start}")))


def _as_begun(made: Account, folder: Path) -> Account:
    """With what the record's header says about the records: they need not be here any more."""
    from sumus.books import RunFolder

    begun = RunFolder.open(folder).guarantee
    if begun is None:
        return made
    return replace(
        made,
        records_per_silo=begun.records_per_silo,
        columns=begun.columns,
        assumptions=begun.assumptions,
    )


def _from_run(
    folder: Path, overrides: list[str] | None
) -> tuple[NoiseDesign, int, int, str | None]:
    """The design of a run with as many rounds as silos were asked for, how many it completed, were
    asked for, and why it is void if it is.

    A round that ended without a sum counts: the server may have seen one all the same.
    """
    from sumus.books import RunFolder
    from sumus.guarantee import NoiseDesign
    from sumus.plan import ResolvedPlan

    run = RunFolder.open(folder)
    names = run.silos
    if not names:
        from sumus.data import public_facts

        names = public_facts(run.plan).silo_names
    for each in overrides or ():
        if each.partition("=")[0].strip() not in _FREE:
            rule = (
                f"must name {' or '.join(_FREE)} for a run: noise, trust and the rest are what "
                "they were"
            )
            raise PlanError("--set", each, rule, "Account for a plan to try other numbers.")
    plan = with_overrides(run.plan, overrides).replace("federation", rounds=max(run.last_asked, 1))
    return NoiseDesign.of(ResolvedPlan.of(plan, names)), run.last_round, run.last_asked, run.void
