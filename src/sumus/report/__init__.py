"""What people read: a self-contained page per run, loggers, and the one style for plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.report.loggers import open_loggers as open_loggers
    from sumus.report.page import write_report as write_report
    from sumus.report.plots import (
        GRID as GRID,
        INK as INK,
        SOFT as SOFT,
        blank_figure as blank_figure,
        colour_scale as colour_scale,
        plain_figure as plain_figure,
        save as save,
        tidy as tidy,
        whole_numbers as whole_numbers,
    )

__getattr__, __dir__, __all__ = door(
    __name__,
    loggers="open_loggers",
    page="write_report",
    plots="GRID INK SOFT blank_figure colour_scale plain_figure save tidy whole_numbers",
)
