"""`sumus report`: one self-contained page about one run or several."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sumus.cli.options import AsJson, print_json
from sumus.errors import PlanError, StorageError

if TYPE_CHECKING:
    from sumus.books import RunFolder
    from sumus.parties import EvidenceAudit

__all__ = ["evidence_of", "report_command"]


def report_command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Run folders that `sumus train` wrote; several are compared on one page."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help=(
                "Where the page goes; default: report.html in the run folder; of several runs, "
                "comparison.html in the first."
            ),
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """One self-contained HTML page: the guarantee in words, every round, the plan and the hash
    chain; of a run across machines also who signed. Two sheets on paper. Needs no network.
    """
    from sumus.books import RunFolder

    paths = list(dict.fromkeys(path.resolve() for path in runs))
    folders = [RunFolder.open(path) for path in paths]
    counted = [folder for folder in folders if folder.plan.describes]
    if counted:
        rule = "must be a training run: this one has described records"
        raise PlanError("RUN", counted[0].name, rule, "Use `sumus describe RUN`.")
    page = out or paths[0] / ("report.html" if len(paths) == 1 else "comparison.html")
    if page.is_dir():
        raise StorageError(f"{page} is a folder. Name a file, for example {page / 'report.html'}.")
    from sumus.report import write_report

    write_report(folders, page, evidence=evidence_of(folders))
    if as_json:
        heads = [
            {"run": str(folder.path), "head": folder.head, "rounds": len(folder.rounds())}
            for folder in folders
        ]
        print_json({"page": str(page), "bytes": page.stat().st_size, "runs": heads})
    else:
        typer.echo(f"{page} ({page.stat().st_size / 1000:.0f} kB)")
    if show:
        webbrowser.open(page.resolve().as_uri())


def evidence_of(runs: Sequence[RunFolder]) -> dict[Path, EvidenceAudit]:
    """What the signed certificates of runs across machines prove, by the run's folder."""
    signed = [run for run in runs if run.has_evidence]
    if not signed:
        return {}
    from sumus.parties import agree_on, audit_evidence

    return {run.path: audit_evidence(run, agree_on(run.plan)) for run in signed}
