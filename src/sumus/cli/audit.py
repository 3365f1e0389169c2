"""`sumus audit`: does a plan leak what it says, and not more?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sumus.cli.options import (
    AsJson,
    Confidence,
    Overrides,
    PlotFolder,
    console,
    guarantee_text,
    load_plan,
    print_json,
)

if TYPE_CHECKING:
    from sumus.audit import RunAudit

__all__ = ["audit_app"]

audit_app = typer.Typer(
    help="Measure leakage and check samplers against their declared law.",
    no_args_is_help=True,
    add_completion=False,
)


@audit_app.command("run")
def run_command(
    plan: Annotated[str, typer.Argument(help="Plan file.")],
    overrides: Overrides = None,
    canaries: Annotated[int, typer.Option(min=2, help="Per run and view.")] = 256,
    runs: Annotated[
        int,
        typer.Option(
            min=0, help="Training runs on canaries; 0: as many as give 4,096 guesses, at most 64."
        ),
    ] = 0,
    final_model: Annotated[
        bool,
        typer.Option(
            "--final-model/--no-final-model",
            help="Also train once on the plan's data with mislabelled records.",
        ),
    ] = True,
    confidence: Confidence = 0.99,
    plot: PlotFolder = None,
    as_json: AsJson = False,
) -> None:
    """Canaries through a plan's real pipeline: measured lower bounds against its proved ε."""
    from sumus.audit import audit_run, draw_bounds
    from sumus.data import load
    from sumus.guarantee import account_of, calibrated

    training_plan, screen = load_plan(plan, overrides), console()
    design = calibrated(training_plan)
    if not as_json:
        screen.print(guarantee_text(account_of(design)))
    audit = audit_run(
        design,
        load(training_plan) if final_model else None,
        canaries=canaries,
        runs=runs or None,
        confidence=confidence,
        progress=lambda line: None if as_json else screen.print(f"… {line}", style="dim"),
    )
    bounds = _bounds_of(audit)
    if plot is not None:
        draw_bounds(
            plot,
            title="Measured from below, proved from above",
            subtitle=(
                f"{Path(plan).name}: δ = {audit.delta:g}, one record, {100 * confidence:g} % "
                "confidence for all bounds together"
            ),
            upper=audit.epsilon,
            upper_name=f"proved ({audit.analysis})"
            if audit.proved
            else f"not proved ({audit.analysis})",
            lower=[(name, value) for name, value, _ in bounds][::-1],
        )
    if as_json:
        print_json(audit.as_json())
    else:
        table = Table(box=None, pad_edge=False)
        table.add_column("measured ε ≥", justify="right")
        table.add_column("from")
        for name, value, counted in bounds:
            table.add_row(f"{value:.3f}", f"{name}: {counted}")
        screen.print(table)
        ratio = audit.released_sum.noise_ratio
        screen.print(
            f"{100 * confidence:g} % confidence for all bounds together; noise of silent "
            f"directions: {ratio:.4f} of the accounted variance"
        )
        for finding in audit.findings:
            screen.print(f"[bold red]contradiction:[/bold red] {finding}")
        if audit.passed:
            screen.print("[green]nothing contradicts the account[/green]")
    if not audit.passed:
        raise typer.Exit(3)


def _bounds_of(audit: RunAudit) -> list[tuple[str, float, str]]:
    """(what was looked at, lower bound, how often) of every bound."""
    canaries = audit.released_sum
    every = f"{canaries.runs} runs with {canaries.canaries} canaries each"
    bounds = [
        ("gradient canaries, all runs", canaries.lower_bound, every),
        (
            "gradient canaries, as a Gaussian",
            canaries.gaussian_lower_bound,
            f"{every}; if the privacy curve is a Gaussian's",
        ),
        (
            "gradient canaries, first run",
            canaries.one_run_lower_bound,
            f"{canaries.canaries} canaries",
        ),
    ]
    views = (
        ("mislabelled records, released sums", audit.real_records_sum),
        ("mislabelled records, final model", audit.final_model),
    )
    return bounds + [
        (
            name,
            view.lower_bound,
            f"{view.correct} of {view.guesses} guesses right, {view.canaries} canaries",
        )
        for name, view in views
        if view is not None
    ]


@audit_app.command("noise")
def noise_command(
    plan: Annotated[
        str | None, typer.Argument(help="Plan file; without one the usual laws are tested.")
    ] = None,
    overrides: Overrides = None,
    draws: Annotated[int, typer.Option(min=100_000, help="Per law.")] = 1_000_000,
    as_json: AsJson = False,
) -> None:
    """Every sampler of a plan against its declared law on this machine; run it before joining a
    federation.
    """
    from sumus.audit import audit_noise, audit_samplers, described, usual_laws
    from sumus.guarantee import calibrated

    design = calibrated(load_plan(plan, overrides)) if plan is not None else None
    audit = (
        audit_samplers(design, draws=draws)
        if design is not None
        else audit_noise(usual_laws(), draws=draws)
    )
    if as_json:
        print_json(audit.as_json())
    else:
        screen = console()
        for line in described(design) if design is not None else ():
            screen.print(line)
        table = Table(box=None, pad_edge=False)
        for heading in ("law", "check", "found", "p", ""):
            table.add_column(heading, justify="right" if heading == "p" else "left")
        for check in audit.checks:
            table.add_row(
                check.law,
                check.check,
                check.detail,
                f"{check.p_value:.2g}",
                "[green]ok[/green]" if check.passed else "[red]fails[/red]",
            )
        screen.print(table)
        verdict = (
            "[green]the samplers have their declared law[/green]"
            if audit.passed
            else "[bold red]a sampler does not have its law[/bold red]"
        )
        screen.print(
            f"\n{verdict}; {audit.draws:,} draws, {audit.seconds:.1f} s; a correct machine fails "
            f"once in {1 / audit.false_alarm_rate:,.0f}"
        )
    if not audit.passed:
        raise typer.Exit(3)


@audit_app.command("membership")
def membership_command(
    target: Annotated[
        str | None,
        typer.Argument(help="Run folder, or a plan to train; the embedded digits plan if omitted."),
    ] = None,
    overrides: Overrides = None,
    shadows: Annotated[int, typer.Option(min=2, help="Shadow models per attack.")] = 16,
    plot: PlotFolder = None,
    as_json: AsJson = False,
) -> None:
    """Membership inference with a few shadow models, against the released model and one trained
    without privacy.
    """
    from sumus.audit import audit_membership, draw_membership, released_of
    from sumus.books import RunFolder
    from sumus.data import load
    from sumus.errors import DataError, PlanError, StorageError
    from sumus.guarantee import calibrated
    from sumus.plan import DEFAULT_PLAN

    screen, released = console(), None
    folder = Path(target) if target is not None and not target.endswith(".toml") else None
    if folder is not None:
        if overrides:
            raise PlanError(
                "--set", overrides[0], "cannot stand beside a run", "The run folder holds its plan."
            )
        run = RunFolder.open(folder.parent if folder.is_file() else folder)
        stored, training_plan = run.read_checkpoint(), run.plan
        if stored is None or not run.last_round:
            raise StorageError(
                f"{folder} has released no model yet. Name a run that has finished a round."
            )
        if run.own_model is not None:
            what = (
                f"trained {run.own_model}, which was given in Python, so no command can train "
                "shadows of it"
            )
            raise DataError(f"{folder} {what}. Audit a run of a model that its plan names.")
        released = released_of(stored[0], training_plan.training.iterate_average)
    else:
        training_plan = load_plan(target or DEFAULT_PLAN, overrides)
    design = calibrated(training_plan)
    progress = (
        (lambda _: None) if as_json else (lambda line: screen.print(f"… {line}", style="dim"))
    )
    audit = audit_membership(
        design, load(training_plan), released, shadows=shadows, progress=progress
    )
    if plot is not None:
        curves = [(curve.name, curve.false_rates, curve.true_rates) for curve in audit.curves]
        draw_membership(
            plot,
            curves,
            subtitle=f"{audit.members} members, {audit.others} others, {shadows} shadow models",
            records=audit.others,
        )
    if as_json:
        print_json(audit.as_json())
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("model", "area under ROC", "TPR at FPR 0.1 %", "at 1 %", "at 10 %"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for curve in audit.curves:
        table.add_row(
            curve.name,
            f"{curve.area:.3f}",
            *(f"{100 * rate:.2f} %" for rate in curve.true_rate_at.values()),
        )
    screen.print(table)
    screen.print(
        f"{audit.members} members, {audit.others} others; a false positive rate below "
        f"{100 / audit.others:.2g} % means none at all"
    )
    screen.print(
        "An attack that finds little proves little; the guarantee is what `sumus account` prints.",
        style="dim",
    )
