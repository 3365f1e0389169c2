"""A released model in use: from rows of a table, a frame or an array to named predictions.

`facts` is what a run folder says of its model beside the weights (`model.json`), `rows` turns new
rows into features by the run's own rules and counts what was odd about them, `model` predicts,
`predictions` is what comes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.predicting.facts import ModelFacts as ModelFacts
    from sumus.predicting.model import Model as Model
    from sumus.predicting.predictions import (
        Predictions as Predictions,
        require_kind as require_kind,
    )
    from sumus.predicting.rows import RowCounts as RowCounts

__getattr__, __dir__, __all__ = door(
    __name__,
    facts="ModelFacts",
    model="Model",
    predictions="Predictions require_kind",
    rows="RowCounts",
)
