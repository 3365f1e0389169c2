"""`sumus describe`: private statistics of a federation's records, and bounds for its plan."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sumus.cli.options import AsJson, MaxEpsilon, Overrides, guarantee_text, load_plan, print_json
from sumus.cli.terminal import screen
from sumus.errors import PlanError, StorageError
from sumus.files import replace_atomically

if TYPE_CHECKING:
    from sumus.books import RunFolder
    from sumus.data import FederatedData
    from sumus.describing import Description
    from sumus.guarantee import Account, NoiseDesign
    from sumus.plan import TrainingPlan

__all__ = ["describe_app", "show_run"]

describe_app = typer.Typer(add_completion=False)


@describe_app.command()
def describe_command(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="PLAN or RUN",
            help="A plan, for training or describing; or the folder of a run that has described. "
            "Omitted: the embedded digits.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="ε of the description. Default: a quarter of the training plan's."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[,NAME…]",
            help="Describe only these; noise grows with the root of their number. Repeatable.",
        ),
    ] = None,
    numbers: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[,NAME…]",
            help="Columns of numbers without bounds. Default: read off the file. Repeatable.",
        ),
    ] = None,
    bins: Annotated[
        int | None, typer.Option(help="Of a column with bounds. Default: describe.bins, 32.")
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the describing plan, for `sumus federation`, and count nothing.",
        ),
    ] = None,
    fill: Annotated[
        bool,
        typer.Option("--fill", help="Write the bounds that are learned into PLAN; the rest stays."),
    ] = False,
    resume: Annotated[
        Path | None, typer.Option(help="Continue this run folder exactly where it stopped.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("runs"),
    name: Annotated[str | None, typer.Option(help="First part of the run folder's name.")] = None,
    threads: Annotated[
        int, typer.Option(min=0, help="Silos that compute at the same time; 0: one per core.")
    ] = 0,
    seed: Annotated[
        int | None,
        typer.Option(help="Public seed of a reproducible simulation. VOIDS THE GUARANTEE."),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="A silo's own policy file, enforced before anything else.")
    ] = None,
    ledger: Annotated[
        bool, typer.Option(help="Enter the release into the ledger of the data set.")
    ] = True,
    max_epsilon: MaxEpsilon = None,
    report: Annotated[
        bool, typer.Option(help="Write description.html into the run folder.")
    ] = True,
    set_: Overrides = None,
    json_: AsJson = False,
) -> None:
    """Histograms, means, quantiles, missing values and categories of all silos' records, with
    differential privacy and secure aggregation; and bounds for the plan.
    """
    from sumus.books import RunFolder
    from sumus.cli.dataset_total import before_text
    from sumus.data import left_out_lines, public_facts
    from sumus.plan import DEFAULT_PLAN

    asked = _Asked(epsilon, _split(columns), _split(numbers), bins)
    _check_fill(fill, path, write, seed)
    console = screen(stderr=json_)
    if path is not None and path.is_dir():
        _refuse_beside("PLAN or RUN", path, set_, asked, write, resume)
        show_run(console, RunFolder.open(path), report=report, as_json=json_)
        return
    if resume is not None:
        _refuse_beside("--resume", resume, set_, asked, write, path)
        plan = None
    else:
        plan = asked.plan(load_plan(path or DEFAULT_PLAN, set_))
    if write is not None and plan is not None:
        _write_plan(plan, write, as_json=json_)
        return
    if plan is not None:
        public_facts(plan)  # torch takes seconds to import: what is wrong is said before
    from sumus.runs import RunOptions, Simulation, describe

    def begun(design: NoiseDesign, account: Account | None, data: FederatedData) -> None:
        if account is not None:
            console.print(guarantee_text(account))
        for line in left_out_lines(data):
            console.print(f"[dim]  left out     {escape(line)} (said here only)", highlight=False)
        if seed is not None:
            console.print(
                "[bold red]  --seed makes the noise public: the guarantee above is void for this "
                "run (simulation)"
            )
        elif account is not None and ledger:
            going_on = None if resume is None else resume.resolve().name
            console.print(before_text(design.plan, account, asked=max_epsilon, run=going_on))

    description = describe(
        plan,
        options=RunOptions(
            root=out,
            name=name,
            resume=resume,
            ledger=ledger,
            policy=policy,
            max_epsilon=max_epsilon,
            threads=threads or os.cpu_count() or 1,
        ),
        simulation=None if seed is None else Simulation(seed),
        begun=begun,
    )
    filled = None
    if fill and path is not None:
        from sumus.describing import fill_bounds

        filled = fill_bounds(path, description)
    _show(console, description, report=report, as_json=json_, filled=filled)


def _check_fill(fill: bool, path: Path | None, write: Path | None, seed: int | None) -> None:
    """Before anything is counted: bounds go into a plan's own file, and only where they are
    private.
    """
    if fill and (path is None or path.is_dir() or write is not None):
        rule = "needs a plan's file to write into"
        raise PlanError("--fill", None if path is None else str(path), rule, "Name a plan.")
    if fill and seed is not None:
        rule = "cannot stand beside --seed (bounds from public noise are not private)"
        raise PlanError("--fill", None, rule, "Remove one of them.")


@final
@dataclass(frozen=True)
class _Asked:
    """What the options say about the description."""

    epsilon: float | None
    columns: tuple[str, ...] | None
    numbers: tuple[str, ...] | None
    bins: int | None

    def plan(self, plan: TrainingPlan) -> TrainingPlan:
        """The describing plan."""
        from sumus.describing import describing_plan

        return describing_plan(
            plan,
            epsilon=self.epsilon,
            bins=self.bins,
            columns=self.columns,
            numbers=self.numbers,
        )


def _split(given: list[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    return tuple(name.strip() for each in given for name in each.split(",") if name.strip())


def _refuse_beside(what: str, path: Path, *others: object) -> None:
    """A run has its plan: nothing that would change it can stand beside."""
    if any(
        other is not None and other != [] and other != _Asked(None, None, None, None)
        for other in others
    ):
        rule = (
            "cannot stand beside a plan, --set, --epsilon, --columns, --numbers, --bins or --write"
        )
        raise PlanError(what, str(path), rule, "The run folder holds its plan.")


def _write_plan(plan: TrainingPlan, file: Path, *, as_json: bool) -> None:
    from sumus.describing import written

    if file.exists():
        raise StorageError(f"{file} is there already. Give another name, or remove it.")
    complete, assumptions = written(plan)
    complete = complete.moved_to(file.absolute().parent)
    for line in assumptions:
        typer.echo(f"note: {line}", err=True)
    replace_atomically(file, complete.to_toml().encode())
    if as_json:
        print_json({"plan": str(file), "plan_hash": complete.hash})
    else:
        typer.echo(f"{file}: run it with `sumus describe`, or across machines like any plan")


def show_run(
    console: Console, run: RunFolder, *, report: bool = True, as_json: bool = False
) -> None:
    """What a run has described, on the screen and in its folder."""
    from sumus.describing import Description

    _show(console, Description.of_run(run), report=report, as_json=as_json)


def _show(
    console: Console,
    description: Description,
    *,
    report: bool,
    as_json: bool,
    filled: dict[str, tuple[float, float]] | None = None,
) -> None:
    from sumus.books import DatasetTotal, RunFolder
    from sumus.cli.dataset_total import after_text

    bounds = description.write()
    page = _write_page(description) if report else None
    if as_json:
        shown = description.as_json()
        files = {"bounds_file": str(bounds), "page": None if page is None else str(page)}
        added = {} if filled is None else {"filled": {k: list(v) for k, v in filled.items()}}
        print_json(shown | files | added)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("column", "missing", "typical", "bounds"):
        table.add_column(title)
    for row in description.rows():
        table.add_row(*map(escape, row))
    console.print()
    console.print(f"[bold]{escape(description.headline)}", highlight=False)
    console.print(table, highlight=False)
    if description.survivors < description.silos:
        gone = description.silos - description.survivors
        console.print(f"[yellow]{gone} of {description.silos} silos dropped out and are not in it")
    if description.void:
        console.print(f"[bold red]VOID[/bold red]: {escape(description.void)}")
    console.print(
        "[dim]± and intervals hold with 95 % each, noise and the width of cells included; a value "
        "beyond its bounds counts as the bound",
        highlight=False,
    )
    if filled is not None:
        told = ", ".join(filled) or "none could be told from the noise"
        console.print(f"bounds written into the plan: {told}", highlight=False, markup=False)
    console.print()
    console.print(f"bounds  {bounds}", highlight=False, soft_wrap=True, markup=False)
    spent = (RunFolder.open(description.path).summary or {}).get("ledger")
    if isinstance(spent, dict):
        total = DatasetTotal(**(spent | {"before": None}))
        console.print(f"ledger  {after_text(total)}", highlight=False, soft_wrap=True, markup=False)
    console.print(f"run     {description.path}", highlight=False, soft_wrap=True, markup=False)
    if page is not None:
        console.print(f"page    {page}", highlight=False, soft_wrap=True, markup=False)


def _write_page(description: Description) -> Path | None:
    from sumus.books import RunFolder

    if importlib.util.find_spec("jinja2") is None:
        return None  # the report extra is not installed
    from sumus.cli.report import evidence_of
    from sumus.report import write_description

    page, run = description.path / "description.html", RunFolder.open(description.path)
    write_description(description, page, evidence=evidence_of([run]).get(run.path))
    return page
