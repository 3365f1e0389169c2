"""`sumus reproduce`: table 1 and the figures of the paper, and the same with proved guarantees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from sumus.cli.options import AsJson, console, print_json
from sumus.errors import DataError, PlanError
from sumus.paper.experiments import NAMES

if TYPE_CHECKING:
    from sumus.paper import Options, Reproduction, Setting, Watch

__all__ = ["reproduce_app"]

reproduce_app = typer.Typer(add_completion=False)


@reproduce_app.command(name="reproduce")
def reproduce_command(
    name: Annotated[str, typer.Argument(help=f"The experiment: {', '.join(NAMES)} or all.")],
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
    as_json: AsJson = False,
) -> None:
    """Measure an experiment of the paper: tables, figures and JSON, with the noise really drawn.
    Resumable.

    Of several lists (--rounds, --epsilons, --silos) one varies at a time
    while the others stay at the paper's value: a frontier.
    """
    if name not in (*NAMES, "all"):
        raise PlanError(
            "NAME",
            name,
            f"must be one of {', '.join(NAMES)}, all",
            "For example: sumus reproduce table1.",
        )
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
    from sumus.paper import Options

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
    for each in NAMES if name == "all" else (name,):
        try:
            done = _one(each, options, quiet=as_json)
        except DataError as error:
            if name != "all":
                raise
            missing.append(f"{each}: {error}")
            continue
        finished.append(done)
        missing += [f"{each}, {line}" for line in done.left_out]
        if not as_json:
            screen.print(f"\n[bold]{each}[/bold]")
            screen.print(done.table, soft_wrap=True, markup=False)
            for path in done.files:
                screen.print(f"wrote {path}", style="green", soft_wrap=True)
    for line in missing:
        screen.print(f"left out: {line}", style="red", soft_wrap=True, markup=False)
    if as_json:
        bodies = {
            each.name: each.summary | {"files": [str(path) for path in each.files]}
            for each in finished
        }
        print_json({"results": bodies, "left_out": missing})
    if not finished:
        raise DataError(
            "nothing could be measured: no data set is on this machine. See `sumus data`."
        )


def _one(name: str, options: Options, *, quiet: bool) -> Reproduction:
    from sumus.paper import reproduce, reproduce_averaging, reproduce_table1

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

    def watch(setting: Setting, seed: int, number: int, accuracy: float | None) -> None:
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
        counts = tuple(int(each) for each in given.split(",")) if given else ()
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
        values = tuple(float(each) for each in given.split(",")) if given else ()
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
    return tuple(each.strip() for each in given.split(",")) if given else ()
