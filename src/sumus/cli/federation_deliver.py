"""`sumus federation deliver`: hand a run to the silos, and what is said of who has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sumus.cli.logs import LogFile, LogFormat, LogLevel, begin_log
from sumus.cli.options import AsJson, Overrides, load_plan, print_json
from sumus.cli.terminal import screen
from sumus.errors import EngineError

__all__ = ["deliver_command", "show_delivered"]


def deliver_command(
    plan: Annotated[Path, typer.Argument(help="The plan whose run is to be handed out.")],
    kit: Annotated[Path, typer.Option(help="The operator's kit (kits/admin).")],
    out: Annotated[Path, typer.Option(help="Where the run folder is copied to.")] = Path("runs"),
    log: LogFile = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    set_: Overrides = None,
    json_: AsJson = False,
) -> None:
    """Hand a run to the silos that are there: its model, journal and evidence. Finished runs are
    handed out by themselves; this is for silos that were away then, and for a run that was stopped.
    Exit code 6 unless every silo has it.
    """
    from sumus.engines import Kit, deliver_across
    from sumus.parties import agree_on

    opened = Kit.open(kit, "admin")
    begin_log(log, log_level, log_format, party="operator", process="deliver")
    agreement = agree_on(load_plan(str(plan), set_))
    operator = opened.engine.operator(opened.path)
    try:
        outcome = deliver_across(operator, agreement, out=out, watch=lambda news: None)
    finally:
        operator.close()
    said = dict(outcome.delivered or {})
    if json_:
        print_json({**said, "run": None if outcome.run is None else str(outcome.run)})
        raise typer.Exit(EngineError.exit_code if said["missing"] else 0)
    show_delivered(screen(), said)
    if said["missing"]:
        names = ", ".join(sorted(said["missing"]))
        raise EngineError(f"{names} did not get the run. Run this again when they are there.")


def show_delivered(console: Console, said: Mapping[str, Any] | None) -> None:
    """Who has the run, and who has not."""
    if said is None:
        return
    if said["error"]:
        console.print(f"not handed out: {said['error']}", style="yellow", markup=False)
        return
    if said["received"]:
        names = ", ".join(said["received"])
        console.print(f"handed  to {names}", soft_wrap=True, markup=False, highlight=False)
    for name, reason in sorted(said["missing"].items()):
        line = f"        not to {name}: {reason}"
        console.print(line, style="yellow", soft_wrap=True, markup=False, highlight=False)
