"""`sumus federation`: make a federation, serve it, train across machines, see who is there."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sumus.cli.federation_deliver import deliver_command, show_delivered
from sumus.cli.federation_start import start_command
from sumus.cli.federation_watch import watch_command, watched_training_across
from sumus.cli.finished_run import finished_page, measured_text
from sumus.cli.logs import LogFile, LogFormat, LogLevel, begin_log
from sumus.cli.notifying import Notify, NotifyWhen
from sumus.cli.options import (
    AsJson,
    Overrides,
    StartFrom,
    guarantee_text,
    load_plan,
    print_json,
)
from sumus.cli.renewal import renew_command
from sumus.cli.terminal import screen
from sumus.cli.watching import Watch as Watched, WatchPort
from sumus.engines import DEFAULT_ENGINE, ENGINES, REQUEST
from sumus.errors import EngineError, PlanError

if TYPE_CHECKING:
    from sumus.engines import FederationFolder, Kit, Watch
    from sumus.parties import Agreement
    from sumus.runs import Start

__all__ = ["federation_app"]

SERVER = "server"
EngineName = Annotated[
    str, typer.Option("--engine", help=f"What carries the messages: {', '.join(ENGINES)}.")
]

federation_app = typer.Typer(
    help="Serve a federation across machines.", no_args_is_help=True, add_completion=False
)


federation_app.command("renew")(renew_command)
federation_app.command("start")(start_command)
federation_app.command("watch")(watch_command)
federation_app.command("deliver")(deliver_command)


@federation_app.command("init")
def init_command(
    folder: Annotated[Path, typer.Argument(help="A new folder for the kits.")],
    silos: Annotated[str, typer.Option(help="Names of the silos, separated by commas.")],
    server: Annotated[
        str, typer.Option(help="host:port where the silos reach the server.")
    ] = "localhost:8002",
    keys: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the silos' .pub and .csr files. Omitted: a trial with keys made here."
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="The plan to train; it is resolved, calibrated and put into the kits."),
    ] = None,
    engine: EngineName = DEFAULT_ENGINE,
    set_: Overrides = None,
    json_: AsJson = False,
) -> None:
    """Make a kit for the server, for every silo and for the operator, and the roster that says who
    is who.
    """
    from sumus.cli.keys import fingerprint, read_public, require_silos_of
    from sumus.engines import Address, make_federation, requests_in
    from sumus.parties import agree_on

    names = [name.strip() for name in silos.split(",") if name.strip()]
    if len(set(names)) < len(names):
        raise PlanError("--silos", silos, "must name every silo once", "Remove the repeated name.")
    agreement = None if plan is None else agree_on(load_plan(str(plan), set_))
    if agreement is not None:
        require_silos_of(
            [silo.name for silo in agreement.design.silos], named=names, where="--silos"
        )
    if keys is not None and not keys.is_dir():
        raise PlanError(
            "--keys", str(keys), "must be a folder", "Collect the silos' .pub files in it."
        )
    lines = None if keys is None else [read_public(path) for path in sorted(keys.glob("*.pub"))]
    requests = {} if keys is None else requests_in(keys, (*names, SERVER))
    federation = make_federation(
        folder,
        engine=engine,
        silos=names,
        address=Address.parse(server),
        public_keys=lines,
        agreement=agreement,
        requests=requests,
    )
    ours = [name for name in names if name not in requests]
    if json_:
        print_json(
            {
                "folder": str(folder),
                "kits": {party: str(federation.kit(party)) for party in federation.parties},
                "roster_fingerprint": fingerprint(federation.roster),
                "plan_hash": None if agreement is None else agreement.plan.hash,
                "trial_keys": keys is None,
                "tls_keys_made_here": ours,
            }
        )
    else:
        _show_kits(federation, agreement, trial_keys=keys is None, made_here=ours)


def _show_kits(
    federation: FederationFolder,
    agreement: Agreement | None,
    *,
    trial_keys: bool,
    made_here: Sequence[str],
) -> None:
    """What was made, what everybody compares, and what comes next."""
    from sumus.cli.keys import fingerprint

    console = screen()
    console.print(
        f"kits for {', '.join(federation.roster.names)}, server and admin are in "
        f"{federation.folder / 'kits'}",
        soft_wrap=True,
    )
    console.print(f"roster fingerprint  {fingerprint(federation.roster)}", soft_wrap=True)
    if agreement is not None:
        console.print(f"plan hash           {agreement.plan.hash}", soft_wrap=True)
        console.print(guarantee_text(agreement.account))
    if trial_keys:
        console.print(
            "[bold red]trial keys: this machine made every silo's key, so it could speak for all "
            "of them. Use --keys for real."
        )
    elif made_here:
        console.print(
            f"TLS keys of {', '.join(made_here)} were made here, for want of NAME{REQUEST}: send "
            "these kits as you would send a password.",
            soft_wrap=True,
        )
    console.print(
        "next: copy each kit to its party; `sumus federation start` on the server, `sumus join KIT "
        "…` at every silo"
    )


@federation_app.command("train")
def train_command(
    plan: Annotated[
        Path | None,
        typer.Argument(help="Plan file. Omitted with --local: the embedded digits data."),
    ] = None,
    kit: Annotated[Path | None, typer.Option(help="The operator's kit (kits/admin).")] = None,
    local: Annotated[
        int | None,
        typer.Option(
            help="Bring up a server and so many silos as processes on this machine.", min=2
        ),
    ] = None,
    start_from: StartFrom = None,
    out: Annotated[Path, typer.Option(help="Where the run folder is copied to.")] = Path("runs"),
    rounds_per_job: Annotated[
        int, typer.Option(help="Rounds of one job of the engine.", min=1)
    ] = 50,
    keep: Annotated[
        Path | None,
        typer.Option(help="With --local: a new folder to keep kits, states and logs in."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help=f"With --local: what carries the messages, {', '.join(ENGINES)} "
            f"[default: {DEFAULT_ENGINE}]."
        ),
    ] = None,
    log: LogFile = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    watch: Watched = False,
    watch_port: WatchPort = 0,
    notify: Notify = None,
    alert: NotifyWhen = None,
    set_: Overrides = None,
    json_: AsJson = False,
) -> None:
    """Train a plan across machines; stopped at any moment, the same command goes on after the last
    finished round.
    """
    from sumus.books import RunFolder
    from sumus.cli.federation_progress import progress
    from sumus.engines import Kit, train_across
    from sumus.events import TrainingEnded, TrainingStarted, tell

    if (kit is None) == (local is None):
        raise PlanError(
            "--kit",
            str(kit),
            "or --local must be given, and not both",
            "For a trial on this machine: --local 3.",
        )
    if kit is not None and engine is not None:
        raise PlanError(
            "--engine", engine, "is for --local", "Leave it out: a kit says which engine it is for."
        )
    opened = None if kit is None else Kit.open(kit, "admin")
    begin_log(log, log_level, log_format, party="operator", process="train")
    console = screen(stderr=json_)
    agreement, start = _started(_agreed(plan, set_, local), start_from, out)
    console.print(guarantee_text(agreement.account))
    if start is not None:
        start.require_fit(agreement.design, void=None)
        console.print(f"starts from {start.origin}", highlight=False, markup=False)
    began, delivered = time.monotonic(), dict[str, Any]()
    tell(TrainingStarted(plan=agreement.plan.hash, rounds=agreement.plan.federation.rounds))
    with (
        progress(agreement, console, quiet=json_) as shown,
        watched_training_across(
            watch,
            port=watch_port,
            say=lambda line: console.print(line, highlight=False, soft_wrap=True, markup=False),
            agreement=agreement,
            name="this machine" if opened is None else str(opened.address),
            shown=shown,
            notify=notify,
            when=alert,
            kit=opened,
            out=out,
        ) as (told, watcher),
    ):
        heard = partial(_heard, told, delivered)
        if opened is not None:
            operator = opened.engine.operator(opened.path)
            try:
                path = train_across(
                    operator,
                    agreement,
                    out=out,
                    watch=heard,
                    rounds_per_job=rounds_per_job,
                    start=start,
                )
            finally:
                operator.close()
        else:
            path = _train_locally(
                agreement, out, heard, rounds_per_job, keep, engine or DEFAULT_ENGINE, start
            )
        page = finished_page(path, watcher)
    run = RunFolder.open(path)
    run.verify()
    tell(TrainingEnded(rounds=run.last_round, seconds=time.monotonic() - began))
    if run.plan.describes:
        from sumus.cli.describe import show_run

        show_run(console, run, as_json=json_)
        return
    summary = {**(run.summary or {}), "run": str(path), "void": run.void}
    summary |= {"delivered": delivered} if delivered else {}
    if json_:
        print_json(summary)
        return
    console.print(f"{summary['rounds']} rounds, {summary['lost_rounds']} lost")
    console.print(measured_text(run, summary))
    if "model_hash" in summary:
        console.print(f"model   {summary['model_hash']}", soft_wrap=True)
    console.print(f"run     {path}", soft_wrap=True)
    if page is not None:
        console.print(f"report  {page}", soft_wrap=True)
    show_delivered(console, delivered or None)


def _heard(watch: Watch, delivered: dict[str, Any], news: Mapping[str, Any]) -> None:
    """Pass news on, and remember who was handed the run."""
    delivered.update(news.get("delivered") or {})
    watch(news)


def _started(
    agreement: Agreement, given: Path | None, runs: Path
) -> tuple[Agreement, Start | None]:
    """The plan with the released model that it starts from: the one that is given, or the one that
    the plan names if a run of this machine has released it; otherwise the server looks among its
    own runs.
    """
    from sumus.parties import agree_on

    if given is None and agreement.plan.training.start_from is None:
        return agreement, None
    from sumus.runs import Start, find_start, with_start

    if given is not None:
        start = Start.read(given)
        plan = with_start(agreement.plan, start)
        return agreement if plan == agreement.plan else agree_on(plan), start
    try:
        return agreement, find_start(agreement.plan, runs)
    except PlanError:
        return agreement, None


def _agreed(plan: Path | None, set_: list[str] | None, local: int | None) -> Agreement:
    from sumus.parties import agree_on
    from sumus.plan import DEFAULT_PLAN

    if plan is None:
        if local is None:
            raise PlanError(
                "plan",
                None,
                "must be given with --kit",
                "Give the plan that the silos have approved.",
            )
        return agree_on(
            load_plan(
                DEFAULT_PLAN,
                [f"federation.silos={local}", "evaluation.metrics=secure", *(set_ or [])],
            )
        )
    proposed = load_plan(str(plan), set_)
    if local is not None and proposed.data.path is None:
        proposed = proposed.replace("federation", silos=local)
    agreement = agree_on(proposed)
    if local is not None and local != len(agreement.design.silos):
        raise PlanError(
            "--local",
            local,
            f"must be the {len(agreement.design.silos)} silos of the plan",
            "Correct the number.",
        )
    return agreement


def _train_locally(
    agreement: Agreement,
    out: Path,
    watch: Watch,
    rounds_per_job: int,
    keep: Path | None,
    engine: str,
    start: Start | None,
) -> Path:
    from sumus.data import locate
    from sumus.engines import LocalProcesses, train_across

    data = agreement.plan.data
    with tempfile.TemporaryDirectory(prefix="sumus-local-") as temporary:
        root = keep or Path(temporary) / "federation"
        source = (
            str(locate(data.path, agreement.plan.folder)[0].resolve())
            if data.path is not None
            else data.name or "digits"
        )
        with LocalProcesses(root, agreement, data=source, engine=engine) as processes:
            watch({"phase": "starting", "rounds": [], "refusals": {}})
            operator = processes.start_all()
            try:
                return train_across(
                    operator,
                    agreement,
                    out=out,
                    watch=watch,
                    rounds_per_job=rounds_per_job,
                    start=start,
                )
            finally:
                operator.close()


@federation_app.command("status")
def status_command(
    kit: Annotated[Path, typer.Option(help="The operator's kit (kits/admin).")],
    plan: Annotated[
        Path | None, typer.Option(help="The plan whose rounds need silos; omitted: the kit's.")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Which silos are connected, and what the latest jobs did; exit code 6 unless a round could
    begin.
    """
    from sumus.engines import Kit

    opened = Kit.open(kit, "admin")
    operator = opened.engine.operator(opened.path)
    needed, names = _needed(opened, plan)
    try:
        system = operator.system()
    finally:
        operator.close()
    there = [name for name in system["silos"] if name in names or not names]
    enough = len(there) >= needed
    if json_:
        print_json({**system, "needed": needed, "enough": enough})
        raise typer.Exit(0 if enough else EngineError.exit_code)
    console = screen()
    console.print(f"server  {system['server']}")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("silo")
    table.add_column("last heard of")
    for name, when in sorted(system["silos"].items()):
        table.add_row(name, when)
    console.print(table)
    for job in system["jobs"]:
        ended = job.get("outcome") or job["status"]
        console.print(
            f"job     {job['job_name']}  {ended}  {job['submit_time']}",
            markup=False,
            soft_wrap=True,
        )
    if not enough:
        absent = [name for name in names if name not in there]
        missing = f" Missing: {', '.join(absent)}." if absent else ""
        raise EngineError(
            f"{len(there)} of {len(names) or 'the'} silos are connected, a round needs "
            f"{needed}.{missing}"
        )


def _needed(kit: Kit, plan: Path | None) -> tuple[int, tuple[str, ...]]:
    """How many silos a round needs and which there are: by the plan, otherwise all of the roster,
    otherwise anybody.
    """
    from sumus.parties import ROSTER, agree_on, read_rosters

    kits_plan = kit.state / "plan.toml"
    if plan is not None or kits_plan.is_file():
        agreement = agree_on(load_plan(plan or kits_plan, None))
        return agreement.terms.minimum_survivors, tuple(
            silo.name for silo in agreement.design.silos
        )
    there = (kit.state / ROSTER).is_file()
    names = read_rosters(kit.state).current.names if there else ()
    return max(1, len(names)), names
