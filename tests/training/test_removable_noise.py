"""Noise that is drawn for drop-outs and taken back when they do not happen, through the whole
pipeline.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from sumus.errors import PlanError
from support.small_data import small_data

OPTIONS = {
    "training.algorithm": "single-step",
    "federation.local_steps": 1,
    "training.sampling_rate": 1e-9,  # no records: the sum is noise
    "federation.dropouts": 2,
    "federation.rounds": 24,
    "noise.removable": True,
    "privacy.epsilon": "none",
    "noise.noise_multiplier": 3.0,
}

WIDE = small_data(silos=6, features=34)  # 105 numbers a round


def noise_variance(run, gone: dict[str, frozenset[int]]) -> tuple[float, int]:
    """Mean square of the summed noise over many rounds, in units of what the plan accounts for; and
    the number of draws.
    """
    run.vanishing = dict.fromkeys(range(run.design.plan.federation.rounds), gone)
    squares = [np.square(outcome.summed.total_grid.astype(np.float64)) for outcome in run.rounds()]
    accounted = (3.0 * run.design.grid.resolution) ** 2
    return float(np.mean(squares)) / accounted, int(np.size(squares))


@pytest.mark.parametrize(
    "gone",
    [
        {},
        {"masked": frozenset({1})},
        {"masked": frozenset({1, 4})},
        {"consistency": frozenset({2})},
        {"unmask": frozenset({0, 3})},
    ],
    ids=["nobody drops", "one drops", "two drop", "one after its input", "two before unmasking"],
)
def test_what_stays_is_exactly_what_is_accounted(federation, gone) -> None:
    """Whoever drops, whenever: the noise of the sum has variance σ²r², in a chi-square interval
    (0.84 to 1.18) of false-alarm rate 1e-9.
    """
    run = federation(OPTIONS, data=WIDE)
    ratio, draws = noise_variance(run, gone)
    low, high = chi2.ppf([5e-10, 1 - 5e-10], draws) / draws
    assert low < ratio < high


def test_without_removal_the_tolerated_drop_outs_are_paid_for(federation) -> None:
    """The comparison that makes the test above meaningful: fixed shares leave N/(N − D) of the
    accounted variance.
    """
    run = federation(OPTIONS | {"noise.removable": False}, data=WIDE)
    ratio, draws = noise_variance(run, {})
    low, high = chi2.ppf([5e-10, 1 - 5e-10], draws) / draws
    assert 1.5 * low < ratio < 1.5 * high


def test_removal_needs_a_guarantee_that_rests_on_the_sum_alone(federation) -> None:
    for change in (
        {"training.algorithm": "split-noise"},
        {"federation.dropouts": 0},
        {"noise.mechanism": "discrete-gaussian"},
    ):
        with pytest.raises(PlanError, match=r"noise\.removable"):
            federation(OPTIONS | {"training.sampling_rate": 0.5} | change, data=WIDE)


@pytest.mark.parametrize("algorithm", ["single-step", "dp-sgd"])
def test_no_silo_draws_removable_noise_in_several_steps(federation, algorithm: str) -> None:
    """A seed is expanded once a round: further steps of one silo would repeat its noise, and rest
    on a share of which a part is opened.
    """
    change = {
        "training.algorithm": algorithm,
        "training.sampling_rate": 0.5,
        "silo.silo-1.local_steps": 3,
    }
    with pytest.raises(PlanError, match=r"noise\.removable .*one noisy query per round"):
        federation(OPTIONS | change, data=WIDE)
    federation(OPTIONS | change | {"noise.removable": False}, data=WIDE)
