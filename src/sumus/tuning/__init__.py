"""Search for hyper-parameters, accounted on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.tuning.accounted import accounted_tuning as accounted_tuning
    from sumus.tuning.plots import draw_tuning as draw_tuning
    from sumus.tuning.search import Tuned as Tuned, TuneOptions as TuneOptions, tune as tune
    from sumus.tuning.space import SearchSpace as SearchSpace, default_space as default_space

__getattr__, __dir__, __all__ = door(
    __name__,
    accounted="accounted_tuning",
    plots="draw_tuning",
    search="TuneOptions Tuned tune",
    space="SearchSpace default_space",
)
