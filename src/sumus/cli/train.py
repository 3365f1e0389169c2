"""`sumus train`: a whole federation in this process, with the real protocol and the real noise."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from sumus.cli.logs import LogFile, LogFormat, LogLevel, begin_log
from sumus.cli.notifying import Notify, NotifyWhen
from sumus.cli.options import (
    AsJson,
    MaxEpsilon,
    Overrides,
    StartFrom,
    guarantee_text,
    load_plan,
    modules_of_current_folder,
    print_json,
)
from sumus.cli.terminal import animates, screen
from sumus.cli.watching import Watch, WatchPort, watched_training
from sumus.errors import PlanError

if TYPE_CHECKING:
    from sumus.books import RoundEntry
    from sumus.data import FederatedData
    from sumus.guarantee import Account, NoiseDesign
    from sumus.runs import TrainedRun
    from sumus.watching import TrainingWatcher

__all__ = ["train_app"]

train_app = typer.Typer(add_completion=False)


@train_app.command()
def train_command(
    plan: Annotated[
        Path | None,
        typer.Argument(help="Plan file. Omitted: the embedded digits data, in seconds."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue this run folder exactly where it stopped.")
    ] = None,
    start_from: StartFrom = None,
    out: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("runs"),
    name: Annotated[str | None, typer.Option(help="First part of the run folder's name.")] = None,
    compare: Annotated[
        bool | None,
        typer.Option(
            help="Beside it a constant answer, a tuned model without privacy and each silo alone, "
            "with intervals. Simulations only."
        ),
    ] = None,
    threads: Annotated[
        int, typer.Option(min=0, help="Silos that compute at the same time; 0: one per core.")
    ] = 0,
    seed: Annotated[
        int | None,
        typer.Option(help="Public seed of a reproducible simulation. VOIDS THE GUARANTEE."),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="Simulate drop-outs: ROUND:STAGE:SILO[,SILO…]; repeatable."),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="A silo's own policy file, enforced before the first round.")
    ] = None,
    ledger: Annotated[
        bool, typer.Option(help="Enter every release into the ledger of the data set.")
    ] = True,
    max_epsilon: MaxEpsilon = None,
    report: Annotated[bool, typer.Option(help="Write report.html into the run folder.")] = True,
    watch: Watch = False,
    watch_port: WatchPort = 0,
    notify: Notify = None,
    alert: NotifyWhen = None,
    log: LogFile = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    set_: Overrides = None,
    json_: AsJson = False,
) -> None:
    """Train a model across silos with differential privacy and secure aggregation."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from sumus.books import RunFolder, rounded_up
    from sumus.cli.dataset_total import before_text
    from sumus.data import left_out_lines, public_facts
    from sumus.plan import DEFAULT_PLAN

    if resume is not None and (plan is not None or set_ or start_from is not None):
        raise PlanError(
            "--resume",
            str(resume),
            "cannot stand beside a plan, --set or --start-from",
            "The run folder holds its plan.",
        )
    begin_log(log, log_level, log_format, party="operator", process="train")
    console = screen(stderr=json_)
    chosen = None if resume is not None else load_plan(plan or DEFAULT_PLAN, set_)
    vanishing = _vanishing(drop or [])
    described = RunFolder.open(resume).plan if chosen is None and resume else chosen
    if described is not None and described.describes:
        rule = "must train a model: this plan counts records"
        raise PlanError("training.algorithm", "describe", rule, "Run `sumus describe`.")
    if chosen is not None:
        # torch takes seconds to import: what is wrong with plan and table is said before
        facts = public_facts(chosen)
        _require_there(drop or [], vanishing, rounds=chosen.federation.rounds, silos=facts.silos)
    modules_of_current_folder()
    from sumus.runs import RunOptions, Simulation, train

    options = RunOptions(
        root=out,
        name=name,
        resume=resume,
        start_from=start_from,
        vanishing=vanishing,
        compare=plan is None and resume is None if compare is None else compare,
        ledger=ledger,
        policy=policy,
        max_epsilon=max_epsilon,
        threads=threads or os.cpu_count() or 1,
    )
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )
    with (
        watched_training(
            watch,
            port=watch_port,
            say=lambda line: console.print(line, highlight=False, soft_wrap=True, markup=False),
            options=options,
            simulated=seed is not None,
            notify=notify,
            when=alert,
        ) as watchers,
        Progress(*columns, console=console, disable=json_ or not animates(console)) as bar,
    ):
        task = bar.add_task("round", total=None, state="")
        bound: str | None = None

        def begun(design: NoiseDesign, account: Account | None, data: FederatedData) -> None:
            nonlocal bound
            console.print(
                "no privacy guarantee: fedavg adds no noise"
                if account is None
                else guarantee_text(account)
            )
            for line in left_out_lines(data):
                console.print(
                    f"[dim]  left out     {escape(line)} (said here only)", highlight=False
                )
            for line in data.remarks:
                console.print(
                    f"  notice       {line} (said here only)",
                    style="dim",
                    highlight=False,
                    markup=False,
                )
            for line in data.assumptions if account is None else ():
                console.print(f"  assumed      {line}", style="dim", highlight=False, markup=False)
            if seed is not None:
                console.print(
                    "[bold red]  --seed makes the noise public: the guarantee above is void for "
                    "this run (simulation)"
                )
            elif account is not None:
                bound = rounded_up(account.epsilon)
                if ledger:
                    going_on = None if resume is None else resume.resolve().name
                    console.print(
                        before_text(design.plan, account, asked=max_epsilon, run=going_on)
                    )
            bar.update(task, total=design.plan.federation.rounds)

        def comparing(done: int, models: int) -> None:
            state = "models without privacy, for comparison"
            bar.update(task, description="compare", completed=done, total=models, state=state)

        def progress(design: NoiseDesign, record: RoundEntry) -> None:
            told = design.plan.task.headline_text(record.metrics, record.metrics_plus_minus)
            spent = (
                "no guarantee"
                if bound is None
                else f"ε ≤ {rounded_up(record.epsilon_spent)} of {bound}"
            )
            state = f"{told}  {spent}" if told else spent
            bar.update(task, completed=record.round, state=state)
            if not animates(console) and not json_:
                console.print(f"round {record.round:>3}  {state}", highlight=False)

        run = train(
            chosen,
            options=options,
            simulation=None if seed is None else Simulation(seed),
            progress=progress,
            begun=begun,
            comparing=comparing,
            callbacks=watchers,
        )
        page = _write_report(run, watchers) if report else None
    if json_:
        print_json(run.summary())
    else:
        _show(console, run, page)


def _show(console: Console, run: TrainedRun, page: Path | None) -> None:
    from sumus.books import RunFolder
    from sumus.cli.comparison import show_comparison
    from sumus.cli.dataset_total import after_text
    from sumus.tasks import CONFIDENCE

    measure = run.plan.task.headline
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("training")
    table.add_column(measure.shown, justify="right")
    table.add_column("privacy")
    name = "no privacy" if run.account is None else "simulated" if run.void else "private"
    table.add_row(f"[bold]all silos, {name}", f"[bold]{run.score}", _guarantee(run))
    if not run.comparison:
        constant, constant_title = run.plan.task.constant
        if constant in run.baselines:
            # the answer that stands below beside every other measure
            told = run.rounds[-1].metrics_of_constant if run.rounds else {}
            reached = told.get(measure.name, run.baselines[constant])
            table.add_row(constant_title, measure.text(reached), "none")
    console.print()
    console.print(table)
    _show_measures(console, run)
    show_comparison(console, run)
    width = run.rounds[-1].metrics_plus_minus.get(measure.name) if run.rounds else None
    if width is not None:
        console.print(
            f"[dim]± holds with {CONFIDENCE} for the released model, noise and choice of test "
            "records included",
            highlight=False,
        )
    console.print()
    if run.spent is not None:
        console.print(
            f"ledger  {after_text(run.spent)}", highlight=False, soft_wrap=True, markup=False
        )
    stored = RunFolder.open(run.path)
    if stored.start is not None:
        console.print(f"start   {stored.start}", highlight=False, soft_wrap=True, markup=False)
    console.print(f"model   {run.model_hash}", highlight=False, soft_wrap=True)
    console.print(f"run     {run.path}", highlight=False, soft_wrap=True)
    if page is not None:
        console.print(f"report  {page}", highlight=False, soft_wrap=True)


def _show_measures(console: Console, run: TrainedRun) -> None:
    """Every other measure beside a constant answer, the one to read first in front."""
    task = run.plan.task
    if not run.rounds or len(run.metrics) < 2:
        return
    last = run.rounds[-1]
    first = task.leading(last.metrics, last.metrics_of_constant)
    others = [*task.measures, *([task.spread] if task.spread is not None else [])]
    others.sort(key=lambda measure: measure is not first)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("measure")
    table.add_column("all silos", justify="right")
    table.add_column("constant answer", justify="right")
    for measure in others:
        if measure.name not in last.metrics:
            continue
        width = last.metrics_plus_minus.get(measure.name)
        constant = last.metrics_of_constant.get(measure.name)
        told = measure.text(last.metrics[measure.name], width)
        called = measure.among(run.class_names).shown
        table.add_row(
            Text(called, style="bold" if measure is first else ""),
            told,
            "" if constant is None else measure.text(constant),
        )
    console.print()
    console.print(table)


def _guarantee(run: TrainedRun) -> str:
    """What the score was bought with, in a few words."""
    from sumus.books import rounded_up

    if run.account is None:
        return "none"
    if run.void:
        return f"[bold red]VOID[/bold red]: {run.void}"
    proved = f"proved ({run.account.analysis})" if run.account.proved else "NOT PROVED"
    return f"ε ≤ {rounded_up(run.account.epsilon)}, δ = {run.account.delta:g}, {proved}"


def _write_report(run: TrainedRun, watchers: Sequence[TrainingWatcher]) -> Path | None:
    from sumus.books import RunFolder

    if importlib.util.find_spec("jinja2") is None:
        return None  # the report extra is not installed; `sumus report` says how to get it
    from sumus.report import write_report

    page = run.path / "report.html"
    write_report([RunFolder.open(run.path)], page)
    for watcher in watchers:
        watcher.reported(page)
    return page


def _require_there(
    dropped: list[str], vanishing: dict[int, dict[str, frozenset[int]]], *, rounds: int, silos: int
) -> None:
    """A drop-out of a round or a silo that does not exist would be simulated as none at all."""
    numbers = {silo for stages in vanishing.values() for each in stages.values() for silo in each}
    if not all(0 <= number < rounds for number in vanishing) or not all(
        silo < silos for silo in numbers
    ):
        rule = f"must name rounds 1 to {rounds} and silos 0 to {silos - 1}"
        raise PlanError("--drop", " ".join(dropped), rule, "Correct the numbers.")


def _vanishing(given: list[str]) -> dict[int, dict[str, frozenset[int]]]:
    """ROUND:STAGE:SILO,SILO → what the federation simulates."""
    stages = ("keys", "shares", "masked", "consistency", "unmask")
    out: dict[int, dict[str, frozenset[int]]] = {}
    for each in given:
        parts = each.split(":")
        numbers = parts[2].split(",") if len(parts) == 3 else []
        if (
            len(parts) != 3
            or not parts[0].isdigit()
            or parts[1] not in stages
            or not all(n.isdigit() for n in numbers)
        ):
            raise PlanError(
                "--drop",
                each,
                f"must read ROUND:STAGE:SILO[,SILO…] with a stage of {', '.join(stages)}",
                "For example 2:masked:0,3.",
            )
        out.setdefault(int(parts[0]) - 1, {})[parts[1]] = frozenset(map(int, numbers))
    return out
