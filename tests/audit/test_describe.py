"""Canaries of a description: they move the real sum by what is accounted, and no less noise passes."""

from __future__ import annotations

import numpy as np
import pytest

from sumus import TrainingPlan
from sumus.audit.canaries import CanaryRounds
from sumus.audit.run import audit_run
from sumus.data import FederatedData, Records, SiloRecords
from sumus.guarantee import NoiseDesign, calibrated
from sumus.noise import Skellam
from sumus.plan import PublicFacts
from sumus.randomness import RandomSource
from sumus.tasks import LabelFacts
from support.repeatable_sources import repeatable_sources


def design() -> NoiseDesign:
    plan = TrainingPlan().with_overrides(
        {
            "training.algorithm": "describe",
            "federation.rounds": 1,
            "privacy.epsilon": 4.0,
            "data.path": "x.csv",
            "data.silo_column": "site",
            "data.test_fraction": 0.0,
            "data.bounds": {name: [0, 1] for name in ("a", "b", "c", "d")},
            "evaluation.metrics": "none",
            "aggregation.modulus_bits": 48,
        }
    )
    names = ("A", "B", "C")
    facts = PublicFacts(
        "x", names, (200,) * 3, (4,), LabelFacts(), columns=("a", "b", "c", "d"), numbers=()
    )
    return calibrated(plan, facts)


def scores(rounds: CanaryRounds, runs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    found = [rounds.run() for _ in range(runs)]
    return (
        np.concatenate([each.scores for each in found]),
        np.concatenate([each.included for each in found]),
        np.concatenate([each.silent.ravel() for each in found]),
    )


def test_the_canaries_of_a_description_move_the_sum_by_what_is_accounted() -> None:
    """All four columns at once, so the whole of √4 units: 30 canaries in 40 runs are 1,200 coins,
    and a mean has standard deviation 0.041: a false alarm once in 10⁶ times.
    """
    built = design()
    rounds = CanaryRounds(built, 30, view="sum", new_source=repeatable_sources())
    seen, included, silent = scores(rounds, 40)
    assert rounds.separation == pytest.approx(2.0 / built.noise_multiplier, rel=1e-6)
    assert float(seen[included].mean()) == pytest.approx(rounds.separation, abs=0.2)
    assert float(seen[~included].mean()) == pytest.approx(0.0, abs=0.2)
    assert float(silent.std()) == pytest.approx(1.0, abs=0.15)


def test_a_description_with_data_is_audited_by_canaries_alone() -> None:
    draw, built = np.random.default_rng(0), design()
    records = Records(draw.integers(0, 2, (200, 4)), np.zeros(200, dtype=np.int64))
    nothing = records.take(np.arange(0))
    silos = tuple(SiloRecords(name, records, nothing, nothing) for name in ("A", "B", "C"))
    data = FederatedData(
        name="x", silos=silos, shape=(4,), labels=LabelFacts(), columns=("a", "b", "c", "d")
    )
    audit = audit_run(built, data, canaries=20, runs=2)
    assert audit.real_records_sum is audit.final_model is None
    assert audit.released_sum.runs == 2


def test_less_noise_than_declared_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    built = design()
    real = Skellam.sample

    def halved(self: Skellam, size: int, source: RandomSource) -> np.ndarray:
        return np.asarray(real(self, size, source)) // 2

    monkeypatch.setattr(Skellam, "sample", halved)
    _, _, silent = scores(CanaryRounds(built, 30, view="sum", new_source=repeatable_sources()), 20)
    assert float(silent.std()) < 0.6
