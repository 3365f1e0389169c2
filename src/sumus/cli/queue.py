"""`sumus federation queue`: plans that a federation runs one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sumus.cli.logs import LogFile, LogFormat, LogLevel, begin_log
from sumus.cli.options import AsJson, Overrides, load_plan, print_json
from sumus.cli.terminal import screen
from sumus.cli.watching import Watch as Watched, WatchPort
from sumus.errors import EngineError, PlanError

if TYPE_CHECKING:
    from sumus.engines import Kit, Operator, PlanQueue, QueuedPlan
    from sumus.parties import Agreement
    from sumus.plan import TrainingPlan

__all__ = ["federation_app"]

queue_app = typer.Typer(
    help="Plans that run one after the other.", no_args_is_help=True, add_completion=False
)
federation_app = typer.Typer(add_completion=False)
federation_app.add_typer(queue_app, name="queue")

_Kit = Annotated[Path, typer.Option("--kit", help="The operator's kit (kits/admin).")]
_Number = Annotated[int, typer.Argument(help="Of the plan, as `list` shows it.", min=1)]


def _queue(kit: Path) -> tuple[Kit, PlanQueue]:
    from sumus.engines import Kit, PlanQueue

    opened = Kit.open(kit, "admin")
    return opened, PlanQueue(opened.queue)


@queue_app.command("add")
def add_plans(
    plan: Annotated[list[Path], typer.Argument(help="Plan files, in the order in which they run.")],
    kit: _Kit,
    start_from: Annotated[
        int | None,
        typer.Option(
            "--start-from",
            metavar="NUMBER",
            help="Begin with the model that this plan of the queue will have released; of several "
            "plans each goes on from the one before.",
            min=1,
        ),
    ] = None,
    set_: Overrides = None,
    json_: AsJson = False,
) -> None:
    """Put plans at the end of the queue. Each is resolved now: what is written into the queue's
    folder is what the silos approve.
    """
    from sumus.books import plan_words
    from sumus.cli.options import guarantee_text

    opened, queue = _queue(kit)
    console = screen(stderr=json_)
    before = None if start_from is None else queue.entry(start_from).plan_hash
    agreements = []
    for path in plan:
        agreement = _agreed(load_plan(str(path), set_), before)
        before = None if before is None else agreement.plan.hash
        agreements.append(agreement)
    _require_roster(opened, agreements)
    added = queue.add(*(each.plan for each in agreements), words=plan_words)
    files = [queue.file_of(entry) for entry in added]
    if json_:
        told = [
            _told(entry) | {"file": str(file)} for entry, file in zip(added, files, strict=True)
        ]
        print_json({"added": told})
        return
    for entry, agreement, file in zip(added, agreements, files, strict=True):
        console.print(f"plan {entry.number} of the queue: {entry.plan_hash}", soft_wrap=True)
        console.print(guarantee_text(agreement.account))
        console.print(f"  file         {file}", soft_wrap=True, markup=False)
    console.print(
        "next: every silo approves the files (`sumus silo approve`); `sumus federation queue run`",
        soft_wrap=True,
    )


def _agreed(proposed: TrainingPlan, before: str | None) -> Agreement:
    """A plan as it runs, from the model of the plan `before` if there is one."""
    from sumus.parties import agree_on

    if before is None:
        return agree_on(proposed)
    named = proposed.training.start_from
    if named not in (None, f"plan:{before}"):
        rule = "names another start than --start-from"
        raise PlanError("training.start_from", named, rule, "Leave one of them out.")
    return agree_on(proposed.replace("training", start_from=f"plan:{before}"))


def _require_roster(kit: Kit, agreements: Sequence[Agreement]) -> None:
    """Refuse plans of other silos than the federation has."""
    from sumus.cli.keys import require_silos_of
    from sumus.parties import ROSTER, read_rosters

    if not (kit.state / ROSTER).is_file():
        return
    members = read_rosters(kit.state).current.names
    for agreement in agreements:
        require_silos_of(list(agreement.names), named=members, where="the kit's roster")


def _told(entry: QueuedPlan) -> dict[str, Any]:
    return {key: value for key, value in asdict(entry).items() if key != "text"}


@queue_app.command("list")
def list_plans(kit: _Kit, json_: AsJson = False) -> None:
    """The plans of the queue in their order, and what became of each."""
    _, queue = _queue(kit)
    entries, is_run = queue.entries(), queue.is_run
    if json_:
        print_json({"plans": [_told(entry) for entry in entries], "is_run": is_run})
        return
    console = screen()
    if not entries:
        console.print("the queue is empty")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("", "plan", "what", "rounds", "state"):
        table.add_column(heading, no_wrap=heading in ("", "plan", "rounds"))
    for entry in entries:
        state = entry.state + (f": {entry.why}" if entry.why else "")
        if entry.state == "running" and not is_run:
            state = "interrupted: goes on with `queue run`"
        rounds = f"{entry.done} of {entry.rounds}"
        table.add_row(str(entry.number), entry.plan_hash[:16], entry.words, rounds, state)
    console.print(table)
    if not is_run and any(each.state in ("waiting", "running") for each in entries):
        console.print("nothing runs it: `sumus federation queue run`")


@queue_app.command("remove")
def remove_plan(number: _Number, kit: _Kit, json_: AsJson = False) -> None:
    """Take a plan out of the queue; what it has released stays, with the server and on ledgers."""
    _, queue = _queue(kit)
    removed = queue.remove(number)
    if json_:
        print_json({"removed": _told(removed)})
        return
    typer.echo(f"plan {number} ({removed.plan_hash[:8]}, {removed.state}) is out of the queue")


@queue_app.command("move")
def move_plan(
    number: _Number,
    place: Annotated[int, typer.Argument(help="Among the plans that wait; 1: it runs next.")],
    kit: _Kit,
    json_: AsJson = False,
) -> None:
    """Give a plan that waits another place."""
    _, queue = _queue(kit)
    queue.move(number, place)
    order = [each.number for each in queue.entries() if each.state == "waiting"]
    if json_:
        print_json({"waiting": order})
        return
    typer.echo(f"waiting, in this order: {', '.join(map(str, order))}")


@queue_app.command("retry")
def retry_plans(
    kit: _Kit,
    number: Annotated[
        list[int] | None, typer.Argument(help="Of plans that were set aside. Omitted: all.")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Have plans that were set aside wait again, for example once silos have approved them."""
    _, queue = _queue(kit)
    again = queue.retry(*(number or ()))
    if json_:
        print_json({"waiting": [_told(entry) for entry in again]})
        return
    listed = ", ".join(str(entry.number) for entry in again) or "none"
    typer.echo(f"waiting again: {listed}")


def _patience(operator: Operator, seconds: float | None) -> Mapping[str, float]:
    """With silos, in the words of `Operator.PATIENCE`."""
    usual = dict(operator.PATIENCE)
    if seconds is None:
        return usual
    return usual | {"update_seconds": seconds, "stage_seconds": min(60.0, seconds)}


@queue_app.command("run")
def run_queue(
    kit: _Kit,
    out: Annotated[Path, typer.Option(help="Where run folders are copied to.")] = Path("runs"),
    stay: Annotated[
        bool, typer.Option("--stay", help="Wait for further plans when none is left.")
    ] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="End at the first plan that is not finished.")
    ] = False,
    rounds_per_job: Annotated[
        int, typer.Option(help="Rounds of one job of the engine.", min=1)
    ] = 50,
    patience: Annotated[
        float | None,
        typer.Option(
            help="Seconds that silos have for their local steps, and at most a minute of them for "
            "every other answer. Omitted: as the engine says.",
            min=1.0,
        ),
    ] = None,
    log: LogFile = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    watch: Watched = False,
    watch_port: WatchPort = 0,
    json_: AsJson = False,
) -> None:
    """Run the plans of the queue, one after the other; stopped or killed at any moment, the same
    command goes on where it was. A plan that silos refuse is set aside, and the next one runs.
    """
    from sumus.cli.queue_progress import queue_watchers
    from sumus.engines import QueueRunner

    opened, queue = _queue(kit)
    begin_log(log, log_level, log_format, party="operator", process="queue")
    console = screen(stderr=json_)
    operator = opened.engine.operator(opened.path)
    try:
        with (
            queue.running(),
            queue_watchers(
                queue, opened, console, quiet=json_, watch=watch, port=watch_port
            ) as watcher,
        ):
            QueueRunner(
                queue=queue,
                operator=operator,
                out=out,
                watcher=watcher,
                rounds_per_job=rounds_per_job,
                patience=_patience(operator, patience),
                stop_at_first=stop,
                stay=stay,
            ).run()
    finally:
        operator.close()
    entries = queue.entries()
    left = [each for each in entries if each.state != "finished"]
    if json_:
        print_json({"plans": [_told(entry) for entry in entries], "out": str(out)})
    if left:
        first = left[0]
        why = f": {first.why}" if first.why else ""
        raise EngineError(
            f"{len(left)} of {len(entries)} plans of the queue are not finished. The first is plan "
            f"{first.number}, {first.state}{why}"
        )
    console.print(f"every plan of the queue is finished; runs are in {out}", soft_wrap=True)
