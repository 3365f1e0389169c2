"""`sumus account`: ε of a plan, or of what a run really released, every analysis side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sumus.cli.options import AsJson, Overrides, console, guarantee_text, load_plan, print_json, with_overrides
from sumus.design import NoiseDesign, design
from sumus.errors import GuaranteeError
from sumus.guarantee import account_of, calibrated

__all__ = ["account_app"]

account_app = typer.Typer()


@account_app.command()
def account(
    path: Annotated[str, typer.Argument(metavar="PLAN or RUN", help="A plan file, or the folder of a run.")],
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """The guarantee of a plan, or of the rounds that a run completed."""
    folder = Path(path)
    void: str | None = None
    if folder.is_dir():
        built, completed, void = _from_run(folder, overrides)
        if completed == 0:
            raise GuaranteeError(f"{folder} has completed no round yet: nothing was released, so there is nothing to account for.")
    else:
        built, completed = calibrated(load_plan(path, overrides)), None
    made = account_of(built)
    if as_json:
        extra = {} if completed is None else {"rounds_completed": completed, "void": void}
        print_json(made.as_json() | extra)
        return
    screen = console()
    screen.print(guarantee_text(made), soft_wrap=True)
    if completed is not None:
        screen.print(f"  [cyan]rounds[/cyan]       {completed} completed, all accounted")
    if void is not None:
        screen.print(f"[bold red]The guarantee is void for this run:[/bold red] {void}")


def _from_run(folder: Path, overrides: list[str] | None) -> tuple[NoiseDesign, int, str | None]:
    """The design of a run with as many rounds as it completed, that number, and why its guarantee is void if it is."""
    from sumus.record import RunFolder

    run = RunFolder.open(folder)
    names = run.silos
    if not names:
        from sumus.data import public_facts

        names = public_facts(run.plan).silo_names
    completed = run.last_round
    plan = with_overrides(run.plan, overrides).replace("federation", rounds=max(completed, 1))
    return design(plan, names), completed, run.void
