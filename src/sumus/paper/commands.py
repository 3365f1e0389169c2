"""`sumus reproduce` and `sumus audit theorem`: Heikkilä 2025 on the command line.

Table 1 and the figures of the paper, the same with proved guarantees, the aggregators that it
mentions, and the attack on its theorem 4.5.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sumus.cli.options import AsJson, Confidence, PlotFolder, console, print_json
from sumus.errors import DataError, PlanError
from sumus.paper.experiments import NAMES

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from sumus.paper.experiments.comparison import PaperLine
    from sumus.paper.experiments.reproduce import Options, Reproduction, Watch
    from sumus.paper.theorem.theorem import TheoremAudit

__all__ = ["audit_app", "reproduce_app"]

reproduce_app = typer.Typer(add_completion=False)
audit_app = typer.Typer(add_completion=False)

_AGGREGATORS = "aggregators"


@reproduce_app.command(name="reproduce")
def reproduce_command(
    name: Annotated[
        str,
        typer.Argument(help=f"{', '.join(NAMES)}, all of these, or {_AGGREGATORS}."),
    ],
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per setting: 0, 1, …")] = 5,
    rounds: Annotated[
        str | None,
        typer.Option(help="Numbers of rounds, separated by commas, instead of the paper's."),
    ] = None,
    epsilons: Annotated[
        str | None, typer.Option(help="Values of ε, separated by commas, instead of the paper's.")
    ] = None,
    silos: Annotated[
        str | None,
        typer.Option(help="Numbers of silos, separated by commas, instead of the paper's."),
    ] = None,
    quick: Annotated[
        bool, typer.Option(help="One seed and two rounds: shows that everything runs.")
    ] = False,
    only: Annotated[
        str | None, typer.Option(help="Names of settings, separated by commas; omitted: all.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Results go here; what is finished there is not measured again.")
    ] = Path("results"),
    threads: Annotated[int, typer.Option(min=1, help="Silos that compute at the same time.")] = 1,
    length: Annotated[
        int, typer.Option(min=1, help="aggregators: numbers in the vector of a silo.")
    ] = 26_010,
    as_json: AsJson = False,
) -> None:
    """Measure an experiment of the paper: tables, figures and JSON, with the noise really drawn.
    Resumable.

    Of several lists (--rounds, --epsilons, --silos) one varies at a time
    while the others stay at the paper's value: a frontier.
    aggregators runs the secure sum and its alternatives
    once each, on --silos and --length, and shows cost and secrecy.
    """
    if name not in (*NAMES, "all", _AGGREGATORS):
        raise PlanError(
            "NAME",
            name,
            f"must be one of {', '.join(NAMES)}, all, {_AGGREGATORS}",
            "For example: sumus reproduce table1.",
        )
    if name == _AGGREGATORS:
        _show_aggregators(_counts("--silos", silos, "10,100") or (20,), length, as_json=as_json)
        return
    if name == "all" and silos:
        raise PlanError(
            "--silos",
            silos,
            "needs one experiment: the silos of income are the data's own",
            "Name fashion-mnist or cifar10.",
        )
    folder = out / "quick" if quick else out
    lists = {
        "rounds": _counts("--rounds", rounds, "5,20"),
        "silos": _counts("--silos", silos, "2,10,100"),
    }
    from sumus.paper.experiments.reproduce import Options

    options = Options(
        out=folder,
        seeds=seeds,
        **lists,
        epsilons=_epsilons(epsilons),
        quick=quick,
        only=_names(only),
        threads=threads,
    )
    screen, finished, missing = console(), [], []
    for experiment in NAMES if name == "all" else (name,):
        try:
            reproduction = _reproduced(experiment, options, quiet=as_json)
        except DataError as error:
            if name != "all":
                raise
            missing.append(f"{experiment}: {error}")
            continue
        finished.append(reproduction)
        missing += [f"{experiment}, {line}" for line in reproduction.left_out]
        if not as_json:
            screen.print(f"\n[bold]{experiment}[/bold]")
            screen.print(reproduction.table, soft_wrap=True, markup=False)
            for path in reproduction.files:
                screen.print(f"wrote {path}", style="green", soft_wrap=True)
    for line in missing:
        screen.print(f"left out: {line}", style="red", soft_wrap=True, markup=False)
    if as_json:
        bodies = {
            reproduction.name: reproduction.summary
            | {"files": [str(path) for path in reproduction.files]}
            for reproduction in finished
        }
        print_json({"results": bodies, "left_out": missing})
    if not finished:
        raise DataError(
            "nothing could be measured: no data set is on this machine. See `sumus data`."
        )


def _reproduced(name: str, options: Options, *, quiet: bool) -> Reproduction:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from sumus.paper.experiments.reproduce import (
        reproduce,
        reproduce_averaging,
        reproduce_table1,
    )

    if name == "table1":
        return reproduce_table1(options)
    if name == "averaging":
        return reproduce_averaging(options)
    screen = console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(
        *columns, TimeElapsedColumn(), console=screen, disable=quiet or not screen.is_terminal
    ) as bar:
        return reproduce(
            name, options, watch=None if quiet else _watch(bar, lines=not screen.is_terminal)
        )


def _watch(bar: Progress, *, lines: bool) -> Watch:
    """A bar per setting; plain lines, one per finished seed, where there is no terminal."""
    tasks: dict[tuple[str, int], TaskID] = {}

    def watch(setting: PaperLine, seed: int, number: int, accuracy: float | None) -> None:
        rounds, key = setting.plan.federation.rounds, (setting.key, seed)
        state = "" if accuracy is None else f"accuracy {accuracy:.1%}"
        if key not in tasks:
            tasks[key] = bar.add_task(f"{setting.label}, seed {seed}", total=rounds, state="")
        bar.update(tasks[key], completed=number, state=state)
        if lines and number == rounds:
            bar.console.print(f"{setting.key}, seed {seed}: {state}", soft_wrap=True)

    return watch


def _counts(option: str, given: str | None, example: str) -> tuple[int, ...]:
    try:
        counts = tuple(int(text) for text in given.split(",")) if given else ()
    except ValueError:
        counts = (0,)
    if any(count < 1 for count in counts):
        raise PlanError(
            option,
            given,
            "must be whole numbers from 1, separated by commas",
            f"For example {example}.",
        )
    return counts


def _epsilons(given: str | None) -> tuple[float, ...]:
    try:
        values = tuple(float(text) for text in given.split(",")) if given else ()
    except ValueError:
        values = (0.0,)
    if not all(0.0 < value < float("inf") for value in values):
        raise PlanError(
            "--epsilons",
            given,
            "must be positive numbers, separated by commas",
            "For example 0.1,1,8.",
        )
    return values


def _names(given: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in given.split(",")) if given else ()


def _show_aggregators(silos: tuple[int, ...], length: int, *, as_json: bool) -> None:
    """A row per aggregator and number of silos."""
    from sumus.paper.aggregators.comparison import compare_aggregators

    rows = [row for count in silos for row in compare_aggregators(silos=count, length=length)]
    if as_json:
        print_json({"aggregators": [row.as_json() for row in rows]})
        return
    screen = console()
    screen.print(
        f"vectors of {length:,} words of 32 bits; all parties in this process, one after the other"
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("aggregator", "silos", "time", "up", "down"):
        table.add_column(heading, justify="left" if heading == "aggregator" else "right")
    for heading in ("exchanges", "a lying server learns", "may vanish"):
        table.add_column(heading)
    for row in rows:
        table.add_row(
            row.name,
            str(row.silos),
            f"{row.milliseconds:.1f} ms",
            f"{row.vectors_up:.2f}",
            f"{row.vectors_down:.2f}",
            row.exchanges,
            row.reveals,
            row.tolerates,
        )
    screen.print(table)
    screen.print("up, down: of one silo, in packed vectors, key set-up included", style="dim")


class Model(StrEnum):
    """What the silos of `sumus audit theorem` train."""

    logistic = "logistic"
    least_squares = "least-squares"
    both = "both"


@audit_app.command("theorem")
def theorem_command(
    silos: Annotated[int, typer.Option(min=2, help="Silos that train, N.")] = 10,
    local_steps: Annotated[int, typer.Option(min=2, help="Local steps of a round, S.")] = 2,
    epsilon: Annotated[
        float, typer.Option(min=0.01, help="What the per-step accounting claims.")
    ] = 1.0,
    delta: Annotated[
        float, typer.Option(min=1e-9, max=0.1, help="δ of the claim and of every bound.")
    ] = 1e-5,
    model: Annotated[Model, typer.Option(help="What the silos train.")] = Model.both,
    confidence: Confidence = 0.999,
    trials: Annotated[
        int, typer.Option(min=10_000, help="Of attack A's vectorised recursion, per model.")
    ] = 20_000_000,
    code_trials: Annotated[
        int,
        typer.Option(min=2, help="Of attack A on the silos' own code, per model; whole rounds."),
    ] = 49_152,
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0: one per processor.")] = 0,
    plot: PlotFolder = None,
    as_json: AsJson = False,
) -> None:
    """Attack the accounting of several local steps with the noise of all silos, and the proved
    analyses with the same data.
    """
    from sumus.paper.theorem.regression import REGRESSIONS
    from sumus.paper.theorem.theorem import audit_theorem
    from sumus.paper.theorem.theorem_plot import draw_theorem

    screen = console()
    audit = audit_theorem(
        silos=silos,
        local_steps=local_steps,
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        models=tuple(REGRESSIONS) if model is Model.both else (model.value,),
        trials=trials,
        code_trials=code_trials,
        workers=workers or os.cpu_count() or 1,
        progress=lambda line: None if as_json else screen.print(f"… {line}", style="dim"),
    )
    written = draw_theorem(plot, audit, trials=max(2000, trials // 40)) if plot is not None else []
    if as_json:
        print_json(audit.as_json())
        return
    _print_theorem(screen, audit)
    for path in written:
        screen.print(f"plot: {path}", style="dim")


def _print_theorem(screen: Console, audit: TheoremAudit) -> None:
    """What is stated, what leaks, analysis by analysis."""
    screen.print(
        f"\n[bold]{audit.silos} silos, {audit.local_steps} local steps, one round[/bold]; protects "
        "one record of one silo, add or remove"
    )
    screen.print("counts on honest silos; the server sees only the sum over silos")
    screen.print(
        "exact ε: of the attack; ε ≥: measured by the vectorised recursion; code ε ≥: on the "
        "silos' own code and the secure sum"
    )
    rows = [("per-step (theorem 4.5)", "not proved", audit.claimed_epsilon, audit.attacks)]
    rows += [(proof.analysis, "proved", proof.epsilon, proof.attacks) for proof in audit.proved]
    for analysis, standing, stated, attacks in rows:
        screen.print(f"\n[bold]{analysis}[/bold], {standing}: states ε ≤ {stated:.4g}")
        table = Table(box=None, pad_edge=False)
        for heading, width in (("attack", 14), ("model", 13)):
            table.add_column(heading, min_width=width)
        for heading, width in (
            ("exact ε", 7),
            ("ε ≥", 6),
            ("trials", 10),
            ("code ε ≥", 8),
            ("trials", 7),
        ):
            table.add_column(heading, min_width=width, justify="right")
        for measured in attacks:
            bounds = [
                f"[bold red]{bound:.3f}[/bold red]" if bound > stated else f"{bound:.3f}"
                for bound in (measured.lower_bound, measured.code_lower_bound)
            ]
            code = f"{measured.code_trials:,}" + (
                "" if measured.code_agrees else " [red](rates differ)[/red]"
            )
            table.add_row(
                measured.attack,
                measured.model,
                f"{measured.exact_epsilon:.3f}",
                bounds[0],
                f"{measured.trials:,}",
                bounds[1],
                code,
            )
        screen.print(table)
    verdict = "exceeds the claim" if audit.refuted else "does not exceed the claim"
    with_confidence = f"at δ = {audit.delta:g} with {100 * audit.confidence:g} % confidence"
    screen.print(
        f"\nlower bound ε ≥ {audit.lower_bound:.3f} {with_confidence}: {verdict} of "
        f"{audit.claimed_epsilon:.4g}"
    )
    screen.print(f"on the silos' own code alone: ε ≥ {audit.code_lower_bound:.3f}")
    screen.print(f"worst case over all data sets, exact: ε = {audit.worst_case_epsilon:.3f}")
