"""What people read: a self-contained page per run, loggers, and the one style for plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.report.loggers import open_loggers as open_loggers
    from sumus.report.page import write_report as write_report
    from sumus.report.plots import INK as INK, blank_figure as blank_figure, save as save

__getattr__, __dir__, __all__ = door(
    __name__,
    loggers="open_loggers",
    page="write_report",
    plots="INK blank_figure save",
)
