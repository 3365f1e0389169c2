"""A received run for people: its page and its model card, made here from what was checked."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path

from sumus.books import RunFolder
from sumus.errors import SumusError
from sumus.files import replace_atomically
from sumus.parties.agreement import Agreement
from sumus.parties.evidence import audit_evidence

__all__ = ["CARD", "PAGE", "show_run"]

PAGE = "report.html"
CARD = "card.md"


def show_run(folder: Path, agreement: Agreement) -> None:
    """Write page and card beside a run, where what they need is installed; `sumus report` and
    `sumus export` write them at any time.
    """
    if agreement.plan.describes:
        return  # `sumus describe RUN` tells it
    run, mode = RunFolder.open(folder), folder.stat().st_mode & 0o666
    if importlib.util.find_spec("jinja2") is not None:
        from sumus.report import write_report

        with contextlib.suppress(SumusError):
            audit = audit_evidence(run, agreement)
            write_report([run], folder / PAGE, evidence={run.path: audit})
            (folder / PAGE).chmod(mode)
    from sumus.exporting import model_card
    from sumus.predicting import Model

    with contextlib.suppress(SumusError):
        text = model_card(run, Model.of_run(folder), format_name=None, file="", sha256="")
        replace_atomically(folder / CARD, text.encode())
        (folder / CARD).chmod(mode)
