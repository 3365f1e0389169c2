"""What people read: a self-contained page per run, loggers, and the one style for plots.

| module | has |
|---|---|
| `page` | the HTML page of one run or of several: no network, no file beside it |
| `description`, `histograms` | the page of a description, and its bars |
| `history`, `history_page`, `lineage`, `timeline` | the runs of a folder over time |
| `words` | the guarantee in sentences: what it protects, counts on, and does not cover |
| `figures`, `charts`, `scales` | which charts a page has, how they are drawn, numbers as text |
| `loggers` | the same numbers for TensorBoard and MLflow |
| `style` | the style sheet that all pages share |
| `plots` | the style of every matplotlib figure |

What a model is measured by comes from the plan's task: names, order, per cent or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.report.description import write_description as write_description
    from sumus.report.history import History as History, PastRun as PastRun
    from sumus.report.history_page import (
        Row as Row,
        rows_of as rows_of,
        spent_words as spent_words,
        write_history as write_history,
    )
    from sumus.report.loggers import open_loggers as open_loggers
    from sumus.report.measures import view_of as view_of
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
    from sumus.report.style import house_style as house_style
    from sumus.report.words import brief_of as brief_of, statement_of as statement_of

__getattr__, __dir__, __all__ = door(
    __name__,
    description="write_description",
    history="History PastRun",
    history_page="Row rows_of spent_words write_history",
    loggers="open_loggers",
    measures="view_of",
    page="write_report",
    plots="GRID INK SOFT blank_figure colour_scale plain_figure save tidy whole_numbers",
    style="house_style",
    words="brief_of statement_of",
)
