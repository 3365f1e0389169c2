"""What people read: a self-contained page per run, loggers, and the one style for plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.report.loggers import open_loggers
    from sumus.report.page import write_report
    from sumus.report.plots import INK, blank_figure, save

__all__ = [
    "INK",
    "blank_figure",
    "open_loggers",
    "save",
    "write_report",
]

__getattr__, __dir__ = door(
    __name__,
    loggers="open_loggers",
    page="write_report",
    plots="INK blank_figure save",
)
