"""What is said of a run across machines that is finished: its headline measure, and its page."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sumus.books import RunFolder
    from sumus.watching import FederationWatcher

__all__ = ["finished_page", "measured_text"]


def measured_text(run: RunFolder, summary: Mapping[str, Any]) -> str:
    """The headline measure of the released model, or why it is not known."""
    from sumus.tasks import CONFIDENCE

    measure = run.plan.task.headline
    value = summary.get(measure.name)
    if value is not None:
        measured = measure.text(value, summary.get(f"{measure.name}_plus_minus"))
        return (
            f"{measure.name} of the released model {measured} ({CONFIDENCE}; noisy count of test "
            "records, accounted)"
        )
    why = (
        "its last secure sum was lost"
        if run.plan.evaluation.metrics == "secure"
        else 'set evaluation.metrics = "secure"'
    )
    return f"{measure.name} of the released model was not measured: {why}"


def finished_page(path: Path, watcher: FederationWatcher | None) -> Path | None:
    """The run's page, where there is one and the report extra is installed; whoever watches is told
    where it is.
    """
    from sumus.books import RunFolder

    run = RunFolder.open(path)
    run.verify()
    page = None if run.plan.describes else _report(run)
    if watcher is not None:
        from sumus.watching import Result

        watcher.finished(Result(run=str(path), report="" if page is None else str(page)))
    return page


def _report(run: RunFolder) -> Path | None:
    """The run's page, where the report extra is installed."""
    if importlib.util.find_spec("jinja2") is None:
        return None
    from sumus.cli.report import evidence_of
    from sumus.report import write_report

    write_report([run], run.path / "report.html", evidence=evidence_of([run]))
    return run.path / "report.html"
