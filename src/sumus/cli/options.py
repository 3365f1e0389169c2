"""What every command shares: `--set`, `--json`, and how a guarantee is shown."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from sumus.cli.terminal import Hanging, screen
from sumus.errors import PlanError
from sumus.files import closest

if TYPE_CHECKING:
    from sumus.guarantee import Account
    from sumus.plan import TrainingPlan

__all__ = [
    "AsJson",
    "Confidence",
    "MaxEpsilon",
    "Overrides",
    "PlotFolder",
    "StartFrom",
    "console",
    "guarantee_text",
    "known_encoding",
    "load_plan",
    "modules_of_current_folder",
    "print_json",
    "with_overrides",
]

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.KEY=VALUE", help="Replace a value of the plan; repeatable."
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON object on the last line, for scripts.")
]
PlotFolder = Annotated[
    Path | None, typer.Option("--plot", metavar="DIR", help="Write the plot here, as PNG and SVG.")
]
StartFrom = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN or FILE",
        help="Begin with the model that a run has released last; a file is taken as public.",
    ),
]
MaxEpsilon = Annotated[
    float | None,
    typer.Option(
        metavar="ε",
        help="The most that the data set may have spent after this. Default: budget.toml beside "
        "the ledgers, or 10; inf: no limit.",
    ),
]
Confidence = Annotated[float, typer.Option(min=0.5, max=0.999999, help="Of every lower bound.")]


def load_plan(
    path: str | Path, overrides: Sequence[str] | None, *, needs_records: bool = True
) -> TrainingPlan:
    """The plan of a file with the `--set` overrides applied; says on the error stream what of it
    means nothing.

    Args:
        path: a plan file; that of a run finds the run's records from wherever it is read.
        overrides: `--set` of the command.
        needs_records: refuse a plan that names none; otherwise the embedded digits stand in for
            them, and that is said.
    """
    from sumus.plan import TrainingPlan

    plan = with_overrides(_stored_plan(Path(path)) or TrainingPlan.load(path), overrides)
    if plan.data.name is None and plan.data.path is None and plan.data.objects is None:
        fix = (
            'Below [data] set path to a file of your own, or name = "digits" for a try (`sumus '
            "data list`)."
        )
        if needs_records:
            raise PlanError("data", None, "must say which records are meant", fix)
        typer.echo(
            f"note: the plan has no data: what follows is for the embedded digits. {fix}", err=True
        )
    for line in plan.without_effect():
        typer.echo(f"note: {line}", err=True)
    return plan


def _stored_plan(path: Path) -> TrainingPlan | None:
    """The plan of a run folder, which knows where its records are; None for every other file."""
    if path.name != "plan.toml" or not (path.parent / "journal.jsonl").is_file():
        return None
    from sumus.books import RunFolder

    return RunFolder.open(path.parent).plan


def modules_of_current_folder() -> None:
    """Let training.model = "module:Class" name a module of the current folder, after everything
    that is installed.
    """
    with contextlib.suppress(OSError):  # the folder may be gone
        if os.getcwd() not in sys.path and "" not in sys.path:
            sys.path.append(os.getcwd())


def with_overrides(plan: TrainingPlan, overrides: Sequence[str] | None) -> TrainingPlan:
    """The plan with `section.key=value` overrides applied."""
    changes: dict[str, str] = {}
    for override in overrides or ():
        key, separator, value = override.partition("=")
        if not separator:
            raise PlanError(
                "--set",
                override,
                "must look like section.key=value",
                "For example --set privacy.epsilon=3.",
            )
        changes[key.strip()] = value.strip()
    return plan.with_overrides(changes) if changes else plan


def known_encoding(name: str) -> str:
    """The encoding of a text table that `--encoding` names, or a refusal."""
    from sumus.plan import ENCODINGS

    if name.lower() not in ENCODINGS:
        rule = "must be an encoding of text files"
        raise PlanError("--encoding", name, rule, closest(name.lower(), ENCODINGS))
    return name.lower()


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on a line of its own; infinities and NaN become null, and what the stream
    cannot encode is escaped, never changed.
    """
    line = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        line = json.dumps(_finite(value), allow_nan=False)
    typer.echo(line)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value


def console() -> Console:
    """Standard output as `screen` opens it."""
    return screen()


def guarantee_text(account: Account) -> Hanging:
    """An account in colour: ε bold, proved in green and not proved in red, comparisons dim."""
    text = Text()
    for number, line in enumerate(str(account).splitlines()):
        styled = Text(line + "\n", style="dim" if line.startswith("  for comparison") else "")
        if number == 0:
            styled.stylize("bold")
            styled.highlight_regex(r"NOT PROVED.*", style="bold red")
            styled.highlight_regex(r"(?<!NOT )\bproved \(.*\)", style="green")
        else:
            labels = (
                "protects|counts on|releases|accountant|noise|δ times "
                "n|participant|metrics|records|columns|assumed|warning"
            )
            styled.highlight_regex(rf"^  ({labels})", style="cyan")
            styled.highlight_regex(r"^  caution .*", style="bold yellow")
            styled.highlight_regex(r"not proved.*", style="red")
        text.append_text(styled)
    text.rstrip()
    return Hanging(text)
