"""Search for hyper-parameters, accounted on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.tuning.accounted import accounted_tuning
    from sumus.tuning.plots import draw_tuning
    from sumus.tuning.search import Tuned, TuneOptions, tune
    from sumus.tuning.space import SearchSpace, default_space

__all__ = [
    "SearchSpace",
    "TuneOptions",
    "Tuned",
    "accounted_tuning",
    "default_space",
    "draw_tuning",
    "tune",
]

__getattr__, __dir__ = door(
    __name__,
    accounted="accounted_tuning",
    plots="draw_tuning",
    search="TuneOptions Tuned tune",
    space="SearchSpace default_space",
)
