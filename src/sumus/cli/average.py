"""`sumus average`: N separately trained private models, the ε of their average, and the average
itself (post-hoc averaging of Heikkilä 2025).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sumus.cli.options import AsJson, console, print_json
from sumus.errors import PlanError

if TYPE_CHECKING:
    from sumus.accounting import AveragedModels

__all__ = ["average_app"]

average_app = typer.Typer(add_completion=False)


@average_app.command(name="average")
def average_command(
    local_epsilon: Annotated[float, typer.Option(help="ε of every model on its own.")] = 5.0,
    delta: Annotated[float, typer.Option(help="δ of every model and of their average.")] = 1e-5,
    sampling_rate: Annotated[
        float, typer.Option(help="Poisson probability that a record joins a step.")
    ] = 1.0,
    steps: Annotated[int, typer.Option(help="Noisy steps that trained each model.")] = 1,
    parties: Annotated[
        str, typer.Option(help="Numbers of models to average, separated by commas.")
    ] = "1,2,5,10",
    accountant: Annotated[
        str, typer.Option(help="pld, renyi or renyi-mironov (the paper's).")
    ] = "pld",
    mechanism: Annotated[
        str, typer.Option(help="skellam, discrete-gaussian or gaussian.")
    ] = "skellam",
    checkpoints: Annotated[
        str | None,
        typer.Option(help="Files to average (.pt state dicts or .npz), separated by commas."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where the averaged checkpoint goes.")] = None,
    as_json: AsJson = False,
) -> None:
    """Account for the average of N models that were trained apart, and average their
    checkpoints.
    """
    from sumus.accounting import average

    files = [Path(each.strip()) for each in checkpoints.split(",")] if checkpoints else []
    if bool(files) != (out is not None):
        raise PlanError(
            "--out",
            str(out),
            "must come with --checkpoints, and --checkpoints with --out",
            "Give both or neither.",
        )
    counts = [len(files)] if files else _counts(parties)
    rows = average(
        local_epsilon=local_epsilon,
        delta=delta,
        sampling_rate=sampling_rate,
        steps=steps,
        parties=counts,
        accountant=accountant,
        mechanism=mechanism,
        rounded=bool(files),
    )
    if files and out is not None:
        from sumus.cli.checkpoints import average_checkpoints

        average_checkpoints(files, out)
    if as_json:
        print_json(
            {
                "rows": [dataclasses.asdict(row) for row in rows],
                "out": None if out is None else str(out),
            }
        )
        return
    _show(rows, delta=delta, steps=steps, accountant=accountant)
    if out is not None:
        console().print(f"wrote {out}: the mean of {len(files)} checkpoints", style="green")


def _counts(parties: str) -> list[int]:
    try:
        return [int(each) for each in parties.split(",")]
    except ValueError:
        raise PlanError(
            "--parties",
            parties,
            "must be whole numbers separated by commas",
            "For example 1,2,5,10.",
        ) from None


def _show(rows: list[AveragedModels], *, delta: float, steps: int, accountant: str) -> None:
    from sumus.books import rounded_up

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("models", "noise multiplier", "ε of the average", "guarantee", "proved ε"):
        table.add_column(heading, justify="left" if heading == "guarantee" else "right")
    for row in rows:
        reason = "files are rounded" if row.rounded else "paper's theorem 4.5"
        verdict = "[green]proved[/green]" if row.proved else f"[red]not proved[/red]: {reason}"
        noise, found, proved = (
            f"{row.noise_multiplier:.4g}",
            rounded_up(row.epsilon),
            rounded_up(row.proved_epsilon),
        )
        table.add_row(str(row.parties), noise, found, verdict, proved)
    table.caption = (
        f"δ = {delta:g}; one record of one model's data, add or remove; {steps} "
        f"step{'s' if steps > 1 else ''}; all parties honest, "
        f"only the average is released; accountant {accountant}"
    )
    table.caption_justify = "left"
    console().print(table)
