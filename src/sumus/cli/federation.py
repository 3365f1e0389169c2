"""`sumus federation`: make a federation, serve it, train across machines, see who is there."""

from __future__ import annotations

import importlib.util
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, final

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from sumus.books import RunFolder, rounded_up
from sumus.cli.keys import fingerprint, read_public, require_silos_of
from sumus.cli.options import AsJson, Overrides, guarantee_text, load_plan, print_json
from sumus.cli.terminal import animates, screen
from sumus.data import locate
from sumus.engines.nvflare.federation_folder import make_federation
from sumus.engines.nvflare.jobs import Operator
from sumus.engines.nvflare.kits import Address, close_down_server, server_command
from sumus.engines.nvflare.on_this_machine import LocalProcesses
from sumus.engines.nvflare.training import DEFAULT_PATIENCE, train_across
from sumus.engines.processes import supervise
from sumus.errors import EngineError, PlanError
from sumus.parties import Agreement, agree_on
from sumus.plan import DEFAULT_PLAN
from sumus.secagg import Roster
from sumus.tasks import CONFIDENCE

__all__ = ["federation_app"]

_LATE_SECONDS = 2.0  # who answers before is not waited for
_AGAIN_SECONDS = 15.0  # between two lines about the same silos

federation_app = typer.Typer(
    help="Serve a federation across machines.", no_args_is_help=True, add_completion=False
)


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
            help="Folder with the silos' .pub files. Omitted: a trial with keys made here."
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="The plan to train; it is resolved, calibrated and put into the kits."),
    ] = None,
    set_: Overrides = None,
    json_: AsJson = False,
) -> None:
    """Make a kit for the server, for every silo and for the operator, and the roster that says who
    is who.
    """
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
    made = make_federation(
        folder, silos=names, address=Address.parse(server), public_keys=lines, agreement=agreement
    )
    told = {
        "folder": str(folder),
        "kits": {party: str(made.kit(party)) for party in ("server", *made.roster.names, "admin")},
        "roster_fingerprint": fingerprint(made.roster),
        "plan_hash": None if agreement is None else agreement.plan.hash,
        "trial_keys": keys is None,
    }
    if json_:
        print_json(told)
        return
    console = screen()
    console.print(
        f"kits for {', '.join(made.roster.names)}, server and admin are in {folder / 'kits'}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(
        f"roster fingerprint  {fingerprint(made.roster)}", highlight=False, soft_wrap=True
    )
    if agreement is not None:
        console.print(f"plan hash           {agreement.plan.hash}", highlight=False, soft_wrap=True)
        console.print(guarantee_text(agreement.account))
    if keys is None:
        console.print(
            "[bold red]trial keys: this machine made every silo's key, so it could speak for all "
            "of them. Use --keys for real."
        )
    console.print(
        "next: copy each kit to its party; `sumus federation start` on the server, `sumus join KIT "
        "…` at every silo",
        highlight=False,
    )


@federation_app.command("start")
def start_command(
    folder: Annotated[Path, typer.Argument(help="The server's kit, or the folder of `init`.")],
) -> None:
    """Serve: runs until it is stopped, and starts the server again when it dies."""
    kit = folder / "kits" / "server" if (folder / "kits" / "server").is_dir() else folder
    if not (kit / "startup" / "fed_server.json").is_file():
        raise EngineError(
            f"{folder} holds no server kit (startup/fed_server.json). Give the folder kits/server "
            "of `init`."
        )
    close_down_server(kit)
    Console(stderr=True).print(
        f"serving from {kit}; log in {kit / 'server.log'}", highlight=False, soft_wrap=True
    )
    raise typer.Exit(supervise(server_command(kit), log=kit / "server.log"))


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
    out: Annotated[Path, typer.Option(help="Where the run folder is copied to.")] = Path("runs"),
    rounds_per_job: Annotated[
        int, typer.Option(help="Rounds of one job of the engine.", min=1)
    ] = 50,
    keep: Annotated[
        Path | None,
        typer.Option(help="With --local: a new folder to keep kits, states and logs in."),
    ] = None,
    set_: Overrides = None,
    json_: AsJson = False,
) -> None:
    """Train a plan across machines; stopped at any moment, the same command goes on after the last
    finished round.
    """
    if (kit is None) == (local is None):
        raise PlanError(
            "--kit",
            str(kit),
            "or --local must be given, and not both",
            "For a trial on this machine: --local 3.",
        )
    console = screen(stderr=json_)
    agreement = _agreed(plan, set_, local)
    console.print(guarantee_text(agreement.account))
    with _progress(agreement, console, quiet=json_) as watch:
        if kit is not None:
            operator = Operator(kit)
            try:
                path = train_across(
                    operator, agreement, out=out, watch=watch, rounds_per_job=rounds_per_job
                )
            finally:
                operator.close()
        else:
            path = _train_locally(agreement, out, watch, rounds_per_job, keep)
    run = RunFolder.open(path)
    run.verify()
    page = _report(run)
    summary = {**(run.summary or {}), "run": str(path), "void": run.void}
    if json_:
        print_json(summary)
        return
    measure = run.plan.task.headline
    value = summary.get(measure.name)
    console.print(f"{summary['rounds']} rounds, {summary['lost_rounds']} lost", highlight=False)
    if value is not None:
        measured = measure.text(value, summary.get(f"{measure.name}_plus_minus"))
        console.print(
            f"{measure.name} of the released model {measured} ({CONFIDENCE}; noisy count of test "
            "records, accounted)",
            highlight=False,
        )
    else:
        why = (
            "its last secure sum was lost"
            if run.plan.evaluation.metrics == "secure"
            else 'set evaluation.metrics = "secure"'
        )
        console.print(
            f"{measure.name} of the released model was not measured: {why}", highlight=False
        )
    console.print(f"run     {path}", highlight=False, soft_wrap=True)
    if page is not None:
        console.print(f"report  {page}", highlight=False, soft_wrap=True)


def _report(run: RunFolder) -> Path | None:
    """The run's page, where the report extra is installed."""
    if importlib.util.find_spec("jinja2") is None:
        return None
    from sumus.report import write_report

    write_report([run], run.path / "report.html")
    return run.path / "report.html"


def _agreed(plan: Path | None, set_: list[str] | None, local: int | None) -> Agreement:
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
    chosen = load_plan(str(plan), set_)
    if local is not None and chosen.data.path is None:
        chosen = chosen.replace("federation", silos=local)
    agreement = agree_on(chosen)
    if local is not None and local != len(agreement.design.silos):
        raise PlanError(
            "--local",
            local,
            f"must be the {len(agreement.design.silos)} silos of the plan",
            "Correct the number.",
        )
    return agreement


def _train_locally(
    agreement: Agreement, out: Path, watch: Any, rounds_per_job: int, keep: Path | None
) -> Path:
    data = agreement.plan.data
    with tempfile.TemporaryDirectory(prefix="sumus-local-") as temporary:
        root = keep or Path(temporary) / "federation"
        source = (
            str(locate(data.path, agreement.plan.folder)[0].resolve())
            if data.path is not None
            else data.name or "digits"
        )
        with LocalProcesses(root, agreement, data=source) as processes:
            watch({"phase": "starting", "rounds": [], "refusals": {}})
            operator = processes.start_all()
            try:
                return train_across(
                    operator,
                    agreement,
                    out=out,
                    watch=watch,
                    rounds_per_job=rounds_per_job,
                    patience=DEFAULT_PATIENCE,
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
    operator = Operator(kit)
    needed, names = _needed(kit, plan)
    try:
        found = operator.system()
    finally:
        operator.close()
    there = [name for name in found["silos"] if name in names or not names]
    enough = len(there) >= needed
    if json_:
        print_json({**found, "needed": needed, "enough": enough})
        raise typer.Exit(0 if enough else EngineError.exit_code)
    console = screen()
    console.print(f"server  {found['server']}", highlight=False)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("silo")
    table.add_column("last heard of")
    for name, when in sorted(found["silos"].items()):
        table.add_row(name, when)
    console.print(table)
    for job in found["jobs"]:
        console.print(
            f"job     {job['job_name']}  {job['status']}  {job['submit_time']}", highlight=False
        )
    if not enough:
        absent = [name for name in names if name not in there]
        missing = f" Missing: {', '.join(absent)}." if absent else ""
        raise EngineError(
            f"{len(there)} of {len(names) or 'the'} silos are connected, a round needs "
            f"{needed}.{missing}"
        )


def _needed(kit: Path, plan: Path | None) -> tuple[int, tuple[str, ...]]:
    """How many silos a round needs and which there are: by the plan, otherwise all of the roster,
    otherwise anybody.
    """
    chosen = plan or (kit / "plan.toml" if (kit / "plan.toml").is_file() else None)
    if chosen is not None:
        agreement = agree_on(load_plan(chosen, None))
        return agreement.terms.minimum_survivors, tuple(
            silo.name for silo in agreement.design.silos
        )
    roster = kit / "roster.toml"
    names = Roster.parse(roster.read_text()).names if roster.is_file() else ()
    return max(1, len(names)), names


@final
class _Waiting:
    """Says who is waited for: soon after somebody is lost or the only one missing, then now and
    then.

    Args:
        silos: N. While all of them compute nobody is missing.
    """

    def __init__(self, silos: int) -> None:
        self._silos, self._told, self._when = silos, frozenset[str](), -math.inf

    def line(self, awaited: Sequence[Mapping[str, Any]], now: float) -> str | None:
        """The line for those who are awaited at a moment, None if there is nothing new to say."""
        late = [
            each
            for each in awaited
            if each["seconds"] >= _LATE_SECONDS and (each["away"] or len(awaited) < self._silos)
        ]
        names = frozenset(str(each["silo"]) for each in late)
        if not late or (names == self._told and now - self._when < _AGAIN_SECONDS):
            self._told = names
            return None
        self._told, self._when = names, now
        who = ", ".join(
            f"{each['silo']} ({'not connected' if each['away'] else 'no answer yet'})"
            for each in late
        )
        limits = [each["left"] for each in late if each["left"] is not None]
        more = f"{max(limits):.0f} s more at most" if limits else "until enough silos are there"
        return f"waiting for {who}: {max(each['seconds'] for each in late):.0f} s so far, {more}"


@contextmanager
def _progress(agreement: Agreement, console: Console, *, quiet: bool) -> Iterator[Any]:
    """A bar over the rounds with live ε, and every refusal once."""
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    target = rounded_up(agreement.account.epsilon)
    told: set[str] = set()
    with Progress(*columns, console=console, disable=quiet or not animates(console)) as bar:
        task: TaskID = bar.add_task("round", total=agreement.plan.federation.rounds, state="")

        waiting = _Waiting(len(agreement.design.silos))

        def watch(news: Mapping[str, Any]) -> None:
            line = waiting.line(news.get("waiting", ()), time.monotonic())
            if not news["rounds"]:
                bar.update(task, state=str(news["phase"]))
            if line is not None:
                console.print(line, style="yellow", highlight=False, soft_wrap=True)
            for record in news["rounds"]:
                told_of_model = agreement.plan.task.headline_text(
                    record["metrics"], record["metrics_plus_minus"]
                )
                missing = f"  without {', '.join(record['dropped'])}" if record["dropped"] else ""
                spent = record["epsilon_spent"]
                bound = "no guarantee" if spent is None else f"ε ≤ {rounded_up(spent)} of {target}"
                state = f"{told_of_model}  {bound}{missing}" if told_of_model else bound + missing
                bar.update(task, completed=record["round"], state=state)
                if not animates(console) and not quiet:
                    console.print(f"round {record['round']:>3}  {state}", highlight=False)
            for name, reason in news["refusals"].items():
                if f"{name}: {reason}" not in told:
                    told.add(f"{name}: {reason}")
                    console.print(
                        f"[red]silo {name} refused:[/red] {reason}", highlight=False, soft_wrap=True
                    )

        yield watch
