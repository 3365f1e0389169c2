"""Real records as canaries: the slope against plain autograd, silence on the real pipeline, and a
loud run when the noise is missing.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from oracles.naive_gradients import record_gradients
from sumus.audit.real_records import _CanaryLosses, audit_real_records
from sumus.data import FederatedData, Records, from_arrays
from sumus.errors import GuaranteeError
from sumus.guarantee import calibrated
from sumus.noise import Skellam
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.tasks import TASKS
from sumus.training import Prepared, flat_parameters


@pytest.mark.parametrize("outputs", [1, 3])
def test_slopes_are_gradients_along_a_direction(outputs: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, outputs)).double()
    generator = np.random.default_rng(1)
    x, y = generator.normal(size=(9, 5)), generator.integers(0, max(outputs, 2), 9)
    theta = flat_parameters(model).double().numpy()
    direction = generator.normal(size=len(theta))
    losses = _CanaryLosses(
        TASKS["classification"],
        Prepared(FederatedData.__new__(FederatedData), model, theta),
        Records(x, y),
    )
    expected = record_gradients(model, torch.from_numpy(x), torch.from_numpy(y)) @ direction
    assert losses.slopes(theta, direction) == pytest.approx(expected, rel=1e-9)
    change = (losses.at(theta + 1e-6 * direction) - losses.at(theta - 1e-6 * direction)) / 2e-6
    assert change == pytest.approx(expected, rel=1e-5, abs=1e-8)


def _plan_and_data(records: int = 120) -> tuple[TrainingPlan, FederatedData]:
    """More features than records: every record leaves its own trace."""
    generator = np.random.default_rng(0)
    silos = [
        (generator.normal(size=(records, 3000)), generator.integers(0, 2, records))
        for _ in range(2)
    ]
    plan = TrainingPlan.from_toml(
        "[privacy]\nepsilon=1.0\ndelta=1e-4\n[federation]\nsilos=2\nrounds=10\nlocal_steps=16\n[training]\nlearning_rate=0.5\n"
        '[aggregation]\nprotocol="trusted"\nmodulus_bits=56\n'
    )
    return plan, from_arrays(silos, test_fraction=0.2)


def test_missing_noise_is_found_in_both_views_and_real_noise_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same coins, the same confidence; only the noise differs."""
    plan, data = _plan_and_data()
    built = calibrated(plan, data.facts())
    for view in audit_real_records(
        built, data, canaries=40, confidence=0.9, source=RandomSource.simulation(3)
    ):
        assert (view.canaries, view.guesses) == (40, 8)
        assert view.lower_bound <= 1.0
    monkeypatch.setattr(
        Skellam, "sample", lambda self, size, source: np.zeros(size, dtype=np.int64)
    )
    for view in audit_real_records(
        built, data, canaries=40, confidence=0.9, source=RandomSource.simulation(3)
    ):
        assert view.correct == view.guesses
        assert view.lower_bound > 1.0


def test_a_silo_with_too_few_records_is_refused() -> None:
    plan, data = _plan_and_data(records=4)
    built = calibrated(plan, data.facts())
    with pytest.raises(GuaranteeError, match="at least 4"):
        audit_real_records(built, data, canaries=40, confidence=0.9)
