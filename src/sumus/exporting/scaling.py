"""What a plan does to a record between its columns and the model, in plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, final

import numpy as np

from sumus.errors import PlanError
from sumus.features import bias_feature, bounded
from sumus.predicting import Model

__all__ = ["Scaling"]


@final
@dataclass(frozen=True)
class Scaling:
    """x ↦ [x·room/max(‖x‖, L), b], the records of bounded norm of `features.bounded`.

    Args:
        room: length of a record without its bias feature.
        bias: b.
        longest: L; 0: every record gets one length.
    """

    room: float
    bias: float
    longest: float

    @classmethod
    def of(cls, model: Model, format_name: str) -> Self | None:
        """That of a model; None where records are not scaled. Refuses public feature maps, which
        are no part of the format.
        """
        facts = model.facts
        if facts.features != "none":
            rule = f"does not hold training.features = {facts.features!r:.60}"
            raise PlanError("--format", format_name, rule, "Use --format torch.")
        if facts.feature_bound is None:
            return None
        room = float(bounded(np.ones((1, 1)), facts.feature_bound)[0, 0])
        longest = facts.feature_norm
        return cls(room, bias_feature(facts.feature_bound), 0.0 if longest is None else longest)
