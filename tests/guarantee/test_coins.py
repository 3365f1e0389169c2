"""The Poisson-binomial mechanism as a plan: calibrated, certified, trained, and refused where it
has no guarantee.
"""

from __future__ import annotations

import numpy as np
import pytest

from sumus.accounting import ORDERS, poisson_binomial_curve
from sumus.accounting.renyi import epsilon_cks
from sumus.errors import PlanError
from sumus.guarantee import account_of, calibrated, certify
from sumus.plan import TrainingPlan
from sumus.training import prepare
from support.small_data import small_data
from support.small_federation import simulated

PLAN = """
[privacy]
epsilon = 4.0
delta = 1e-4
unit = "silo"
accountant = "renyi"
[federation]
rounds = 2
local_steps = 2
[training]
algorithm = "silo"
sampling_rate = 0.5
clip_norm = 0.5
[noise]
mechanism = "poisson-binomial"
trials = 16
[evaluation]
metrics = "none"
"""


def built(**overrides: object):
    data = small_data(silos=4)
    plan = TrainingPlan.from_toml(PLAN).with_overrides({"federation.colluding": 0} | overrides)
    return calibrated(plan, data.facts()), data


@pytest.mark.deep
def test_calibration_lands_on_the_safe_side_and_close() -> None:
    design, _ = built()
    account = certify(design)
    assert account.analysis == "silo"
    assert account.proved
    assert 0.99 * 4.0 < account.epsilon <= 4.0
    assert account.unit == "silo"


def test_epsilon_is_that_of_the_published_mechanism() -> None:
    design, _ = built(**{"privacy.epsilon": "none", "noise.noise_multiplier": 3.0})
    coins = design.coins
    # σ is the standard deviation of a decoded coordinate over the clip norm
    assert coins.std_of_sum(4) == pytest.approx(3.0 * 0.5)
    curve = poisson_binomial_curve(silos=4, trials=16, theta=coins.theta, dimension=21)
    assert account_of(design).epsilon == pytest.approx(
        epsilon_cks(ORDERS, 2 * curve(ORDERS), 1e-4), rel=1e-9
    )


@pytest.mark.deep
@pytest.mark.parametrize("protocol", ["trusted", "secagg"])
def test_a_round_estimates_the_mean_of_the_clipped_updates(protocol: str) -> None:
    design, data = built(
        **{
            "aggregation.protocol": protocol,
            "privacy.epsilon": "none",
            "noise.noise_multiplier": 0.5,
            "noise.trials": 128,
        }
    )
    updates, bench = [], prepare(design.plan, data)
    for number in range(12):
        run = simulated(design, bench, number)
        outcome = run.round(0)
        updates.append(outcome.update)
        assert outcome.summed.total_grid.min() >= 0
        assert outcome.summed.total_grid.max() <= 4 * 128
    noise = np.std(np.array(updates), axis=0).mean() * 4  # of the decoded sum; batches add a little
    assert 0.8 * 0.5 * 0.5 < noise < 1.6 * 0.5 * 0.5


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"privacy.accountant": "pld"}, r"privacy\.accountant"),
        ({"noise.trials": 2048}, r"noise\.trials"),
        ({"privacy.epsilon": "none", "noise.noise_multiplier": 0.01}, r"noise\.noise_multiplier"),
        ({"noise.removable": True}, r"noise\.mechanism"),
    ],
)
def test_what_has_no_guarantee_is_refused(overrides, field: str) -> None:
    with pytest.raises(PlanError, match=field):
        account_of(built(**overrides)[0])
