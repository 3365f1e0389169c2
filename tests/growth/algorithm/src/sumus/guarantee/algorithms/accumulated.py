"""`accumulated`: S batches a round, all of them at the global model.

Σ_s (g_s + ξ_s) is a function of S noisy sums, each at a model that everybody knows and each under
the noise of all counted silos. No local state carries a silo's own noise alone, so all T·S sums
count with everybody's noise: the accounting of Heikkilä 2025 (theorem 4.5) is proved where the
state stands still.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, final

from sumus.guarantee.algorithms.noisy_steps import NoisySteps
from sumus.guarantee.claims import LOCAL_STEPS_ALONE, PER_STEP, Setting
from sumus.plan import RULES

__all__ = ["ALGORITHMS"]


@final
class Accumulated(NoisySteps):
    """Noisy sums of clipped gradients at one model, added up."""

    rules = RULES["accumulated"]
    statements: ClassVar = (
        replace(
            PER_STEP,
            name="accumulated",
            text="every batch of a round is taken at the public model; the noise of all counted "
            "silos protects each",
            brief="every batch at the public model",
            remark=None,
            proved_for=None,
        ),
        replace(LOCAL_STEPS_ALONE, remark=None),
    )

    def proved(self, setting: Setting) -> Mapping[str, bool]:
        return {"accumulated": True, "local": True}


ALGORITHMS = (Accumulated,)
