"""A reader of released sums wants to know whether one record was there, and looks at its second
moment and its gradient at once: both stand in the same sum, and either alone is as long as a record
may be anywhere else.

The noise covers one length for both together. The control gives each part the whole length.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from sumus import TrainingPlan
from sumus.audit.canaries import CanaryRounds
from sumus.guarantee import NewtonParts, NoiseDesign, calibrated
from sumus.guarantee.algorithms import newton
from sumus.plan import PublicFacts, ResolvedPlan
from sumus.tasks import LabelFacts
from support.repeatable_sources import repeatable_sources


def _design() -> NoiseDesign:
    plan = TrainingPlan.from_table(
        {
            "privacy": {"epsilon": 20.0, "delta": 1e-5},
            "federation": {"silos": 2, "rounds": 1},
            "training": {"algorithm": "newton", "matrix_share": 0.5},
            "aggregation": {"protocol": "trusted", "modulus_bits": 56},
        }
    )
    labels = LabelFacts(("0", "1", "2"))
    facts = PublicFacts("reader", ("a", "b"), (200, 200), (32,), labels)
    return calibrated(plan, facts)


def _gap(built: NoiseDesign) -> float:
    """How far the reader's best score of a record lies above that of an absent one, in standard
    deviations of the noise.
    """
    rounds = CanaryRounds(built, 16, view="sum", new_source=repeatable_sources())
    found = [rounds.run() for _ in range(40)]
    scores = np.concatenate([run.scores for run in found])
    included = np.concatenate([run.included for run in found])
    return float(scores[included].mean() - scores[~included].mean())


def _whole_length_each(resolved: ResolvedPlan, resolution: int) -> NewtonParts:
    return NewtonParts(resolution, resolution)


def test_both_together_show_no_more_than_is_accounted() -> None:
    """640 coins: the gap has a standard deviation of 0.08, and a false alarm is below 1e-6."""
    built = _design()
    accounted = built.silos[0].l2_grid / (built.noise_multiplier * built.grid.resolution)
    assert _gap(built) < accounted + 0.4


def test_control_a_whole_length_each_shows_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """√2 times as much, which the same bound does not hold."""
    built = _design()
    accounted = built.silos[0].l2_grid / (built.noise_multiplier * built.grid.resolution)
    for module in ("sumus.training.local.newton", "sumus.audit.canaries"):
        monkeypatch.setattr(f"{module}.newton_parts", _whole_length_each)
    monkeypatch.setattr(newton, "newton_parts", _whole_length_each)
    gap = _gap(built)
    assert accounted * (math.sqrt(2.0) - 1.0) > 0.8, "the attack can tell"
    assert gap > accounted + 0.4
