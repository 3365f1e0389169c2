"""`sumus pretrain`: a public start, made from made-up pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sumus.cli.options import AsJson, Overrides, load_plan, print_json

__all__ = ["pretrain_app"]

pretrain_app = typer.Typer(add_completion=False)


@pretrain_app.command("pretrain")
def pretrain(
    plan: Annotated[Path, typer.Argument(help="The plan, as TOML.")],
    out: Annotated[Path, typer.Option("--out", help="File for the model.")] = Path("start.json"),
    seed: Annotated[int, typer.Option(min=0, help="Public seed.")] = 0,
    set_: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Teach the plan's network with made-up pictures: a start that holds nothing of any record."""
    from sumus.runs import make_public_start

    start = make_public_start(load_plan(plan, set_), out, seed=seed)
    if as_json:
        print_json({"start": str(out), "model": start.hash, "parameters": len(start.parameters)})
        return
    typer.echo(f"start   {out}")
    typer.echo(f"model   {start.hash}")
    typer.echo("costs   nothing: made from public things alone")
    typer.echo(f"use     sumus train {plan} --start-from {out}")
