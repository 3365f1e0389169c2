"""An adversary climbs through what a silo runs: it changes a record, its company, the model and who
shares a bin, and keeps whatever moves the vector that would be sent further.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pytest

from sumus.data import Records
from sumus.guarantee import NoiseDesign, calibrated, tangent_bounds
from sumus.noise import Skellam
from sumus.plan import PublicFacts, TrainingPlan
from sumus.randomness import RandomSource
from sumus.tasks import LabelFacts
from sumus.training import local_updater
from sumus.training.local.update import in_round
from sumus.training.models import flat_parameters
from sumus.training.preparation import PublicFeatures, model_behind

FEATURES, CLASSES, RECORDS = 5, 3, 8
FACTS = PublicFacts(
    "test", ("a", "b"), (RECORDS, RECORDS), (FEATURES,), LabelFacts(("x", "y", "z"))
)
COMMON: Mapping[str, Any] = {
    "privacy.epsilon": 4.0,
    "privacy.delta": 1e-4,
    "federation.rounds": 2,
    "training.model": "mlp",
    "training.hidden": (3,),
    "evaluation.metrics": "none",
    "aggregation.modulus_bits": 60,
}
MAPPED = {"training.preconditioner": "kronecker", "training.damping": 0.01}
STEP = {"training.algorithm": "single-step", "training.sampling_rate": 1.0}
TANGENT = {
    "training.algorithm": "tangent-pass",
    "federation.local_steps": 4,
    "training.passes": 2,
    "training.residual_cap": 0.3,
    "training.learning_rate": 2.0,
}
CASES: Mapping[str, Mapping[str, Any]] = {
    "single-step behind a map": STEP | MAPPED,
    "single-step behind a map, summed": STEP | MAPPED | {"noise.rounding": "sum"},
    "tangent-pass behind a map": TANGENT | MAPPED,
    "tangent-pass, a slower round": TANGENT | {"training.rate_schedule": "linear"},
    "newton": {
        "training.algorithm": "newton",
        "training.model": "softmax",
        "training.matrix_share": 0.4,
    },
}


class Chosen:
    """Bins that the adversary chooses, so that neighbours share them; every coin shows heads."""

    def __init__(self, bins: np.ndarray) -> None:
        self._bins = bins

    def below(self, bound: int, count: int) -> np.ndarray:
        return self._bins[:count]

    def coins(self, probability: float, count: int) -> np.ndarray:
        return np.ones(count, dtype=np.bool_)


class Silo:
    """One silo of a plan in its last round, without noise."""

    def __init__(self, changes: Mapping[str, Any]) -> None:
        self.design: NoiseDesign = calibrated(
            TrainingPlan().with_overrides(COMMON | changes), FACTS
        )
        self._features = PublicFeatures.of(self.design.plan, FACTS.shape)
        self._model = model_behind(self.design.plan, self._features.shape, FACTS.labels)
        self.round = self.design.in_round(1)
        self.most = self.round.silos[0].l2_grid
        self.first = flat_parameters(self._model).double().numpy()
        self.bins = self.round.silos[0].local_steps

    def _sent(self, x: np.ndarray, y: np.ndarray, model: np.ndarray, bins: np.ndarray) -> Any:
        held = self._features(x.astype(np.float32))
        silo = self.design.silos[0]
        updater = local_updater(self.design, silo, Records(held, y), self._model)
        source = cast(RandomSource, Chosen(bins))
        vector = in_round(updater, self.design, self.round)(model, source).vector
        return vector.astype(object)

    def moved(self, x: np.ndarray, y: np.ndarray, model: np.ndarray, bins: np.ndarray) -> float:
        """How far the last record moves the vector, in accounted lengths."""
        apart = self._sent(x, y, model, bins) - self._sent(x[:-1], y[:-1], model, bins)
        return math.sqrt(sum(int(step) ** 2 for step in apart)) / self.most


def _reached(silo: Silo, seed: int, *, starts: int = 5, climbs: int = 10) -> float:
    rng = np.random.default_rng(seed)
    best, kept = 0.0, None
    for attempt in range(starts + climbs):
        if kept is None or attempt < starts:
            x = 10.0 ** rng.uniform(-3, 3) * rng.normal(size=(RECORDS, FEATURES))
            x[-1] *= 10.0 ** rng.uniform(-3, 12)
            model = 10.0 ** rng.uniform(-1, 2) * rng.normal(size=silo.first.shape)
            bins = rng.permutation(np.arange(RECORDS) % silo.bins)
        else:
            x, model, bins = kept
            x = x * (1.0 + 10.0 ** rng.uniform(-3, 0) * rng.normal(size=x.shape))
            model = model * np.exp(0.5 * rng.normal(size=model.shape))
            bins = rng.permutation(bins) if rng.random() < 0.3 else bins
        found = silo.moved(x, rng.integers(0, CLASSES, RECORDS), model, bins)
        if found >= best:
            best, kept = found, (x, model, bins)
    return best


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Skellam, "sample", lambda law, size, source: np.zeros(size, np.int64))


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("name", list(CASES))
def test_no_climb_through_the_updater_passes_the_declared_sensitivity(name: str) -> None:
    """And it comes near: a search that stays far below would find nothing whatever was wrong."""
    silo = Silo(CASES[name])
    assert 0.9 < max(_reached(silo, seed) for seed in range(2)) <= 1.0


@pytest.mark.long
@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("seed", range(2, 40))
@pytest.mark.parametrize("name", list(CASES))
def test_no_longer_climb_passes_it_either(name: str, seed: int) -> None:
    assert _reached(Silo(CASES[name]), seed, starts=10, climbs=30) <= 1.0


def test_bins_that_the_adversary_chooses_are_not_overfull() -> None:
    """Where they are, twice the length is accounted for."""
    for name in ("tangent-pass behind a map", "tangent-pass, a slower round"):
        round_design = Silo(CASES[name]).round
        rate = round_design.silos[0].learning_rate
        cap = tangent_bounds(round_design.resolved, rate).convex.bin_cap
        assert cap >= RECORDS // TANGENT["federation.local_steps"]
