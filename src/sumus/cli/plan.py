"""`sumus plan`: from a target and a trust assumption to noise, modulus, bandwidth, and what every
algorithm would cost.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sumus.cli.options import AsJson, Overrides, console, guarantee_text, load_plan, print_json
from sumus.errors import PlanError, StorageError

if TYPE_CHECKING:
    from sumus.guarantee import Account, AlgorithmCost, Comparison, NoiseDesign

__all__ = ["plan_app"]

plan_app = typer.Typer(add_completion=False)


@plan_app.command()
def plan(
    path: Annotated[str, typer.Argument(metavar="PLAN", help="A plan file.")],
    overrides: Overrides = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="DIR", help="Draw ε against rounds and noise against silos."
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="OUT.toml", help="Write the resolved plan with its noise."),
    ] = None,
    advise: Annotated[
        bool,
        typer.Option("--advise", help="Name the algorithm that suits the plan, by public facts."),
    ] = False,
    skew: Annotated[
        str | None,
        typer.Option(
            "--skew",
            metavar="none|some|strong",
            help="For --advise: how much labels differ between silos.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Calibrate a plan: the noise every silo must add, what it costs on the wire, and what other
    algorithms would need.
    """
    from sumus.cli.advice import show_advice
    from sumus.cli.dataset_total import spent_so_far
    from sumus.guarantee import calibrated, certify, compare

    chosen = load_plan(path, overrides, needs_records=False)
    if advise:
        show_advice(chosen, skew, path=path, as_json=as_json)
        return
    if skew is not None:
        raise PlanError("--skew", skew, "is for --advise", "Add --advise, or leave it out.")
    design = calibrated(chosen if write is None else chosen.moved_to(write.parent))
    account = certify(design)
    comparison = compare(design)
    costs = comparison.costs() if comparison else []
    files = _draw(plot, design, account, comparison, costs) if plot and comparison else []
    if write is not None:
        _write(write, design.plan.to_toml())
        files.append(str(write))
    if as_json:
        print_json(
            {
                "account": account.as_json(),
                "design": _facts(design, account),
                "algorithms": [dataclasses.asdict(c) for c in costs],
                "ledger": spent_so_far(design.plan),
                "files": files,
            }
        )
        return
    _show(design, account)
    if comparison is not None:
        console().print()
        console().print(_table(costs, account, comparison.own))
    for path in files:
        console().print(f"wrote {path}", style="green")


def _facts(design: NoiseDesign, account: Account) -> dict[str, Any]:
    """The public numbers of a design, as plain values."""
    made, mechanism = design.plan, design.mechanism
    bits = made.aggregation.modulus_bits
    can_wrap = mechanism.can_wrap
    return {
        "noise_multiplier": made.noise.noise_multiplier,
        "local_noise_multiplier": account.local_noise_multiplier,
        "local_noise_std_grid": mechanism.share_std_grid,
        "noise_contributors": made.noise_contributors,
        "mechanism": made.noise.mechanism,
        "dimension": made.training.dimension,
        "sensitivity_grid": max(silo.l2_grid for silo in design.silos),
        "resolution": design.grid.resolution,
        "modulus_bits": bits,
        "bits_per_silo_and_round": bits * design.resolved.coordinates,
        "saturation_clip_norms": design.clamp_grid / design.grid.resolution if can_wrap else None,
        "overflow_probability_bound": 2.0**-40 if can_wrap else None,
        "queries_per_round": design.queries_per_round,
        "surge_rate": max(silo.overfull_rate for silo in design.silos),
        "plan_hash": made.hash,
    }


def _show(design: NoiseDesign, account: Account) -> None:
    from sumus.cli.dataset_total import spent_text

    screen, facts = console(), _facts(design, account)
    screen.print(guarantee_text(account), soft_wrap=True)
    screen.print(spent_text(design.plan))
    screen.print()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan")
    grid.add_column()
    queries = (
        f" in each of {facts['queries_per_round']} steps"
        if facts["queries_per_round"] > 1
        else " once per round"
    )
    steps = (
        ""
        if facts["local_noise_std_grid"] is None
        else f" (std {facts['local_noise_std_grid']:,.0f} grid steps)"
    )
    grid.add_row(
        "  each silo adds",
        f"{facts['mechanism']} noise of {facts['local_noise_multiplier']:.4g} clip "
        f"norms{steps}{queries}",
    )
    grid.add_row(
        "  on the wire",
        f"{_size(facts['bits_per_silo_and_round'])} per silo and round ({design.resolved.coordinates:,} "
        f"numbers mod 2^{facts['modulus_bits']})",
    )
    if facts["overflow_probability_bound"] is not None:
        room = (
            f"a silo may send up to ±{facts['saturation_clip_norms']:,.0f} clip norms per "
            "coordinate, more is clamped"
        )
        grid.add_row("  overflow", f"probability below 2^-40 over all rounds; {room}")
    if facts["surge_rate"] > 0.0:
        grid.add_row(
            "  overfull bins",
            f"probability {facts['surge_rate']:.2g} per record and round, accounted",
        )
    grid.add_row("  plan hash", facts["plan_hash"])
    screen.print(grid)


def _table(costs: list[AlgorithmCost], account: Account, own: str) -> Table:
    title = (
        f"For ε ≤ {account.target_epsilon:g} at δ = {account.delta:g}, {account.neighbours}; "
        f"{account.trust}"
    )
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column("algorithm")
    table.add_column("analysis")
    table.add_column("noise of the average", justify="right")
    table.add_column("noise multiplier", justify="right")
    table.add_column("guarantee")
    for cost in costs:
        proved = (
            f"[green]proved[/green], {cost.remark}"
            if cost.proved
            else f"[red]not proved[/red], {cost.remark}"
        )
        style = "bold" if cost.analysis == own else ""
        table.add_row(
            cost.algorithm,
            cost.analysis,
            f"{cost.average_noise:.4g}",
            f"{cost.noise_multiplier:.4g}",
            proved,
            style=style,
        )
    table.caption = (
        "noise of the average: per coordinate and round, in one record's step γC/b over N; "
        "single-step sees one batch only"
    )
    table.caption_justify = "left"
    return table


def _size(bits: int) -> str:
    size = bits / 8.0
    for unit in ("bytes", "kB", "MB"):
        if size < 1000.0:
            return f"{size:.4g} {unit}"
        size /= 1000.0
    return f"{size:.4g} GB"


def _draw(
    folder: Path,
    design: NoiseDesign,
    account: Account,
    comparison: Comparison,
    costs: list[AlgorithmCost],
) -> list[str]:
    from sumus.cli.plan_plots import draw

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be made: {error.strerror}. Choose another folder for --plot."
        ) from None
    return [str(path) for path in draw(folder, design, account, comparison, costs)]


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror}. Choose another file for --write."
        ) from None
