"""The cost of tuning against dp-accounting's own accountant."""

from __future__ import annotations

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant

from sumus.accounting import ORDERS, Queries, Release, epsilon_of
from sumus.accounting.search import epsilon_with_tuning
from sumus.errors import PlanError


@pytest.mark.parametrize("shape", [1.0, 0.5, 2.0])
@pytest.mark.parametrize("runs", [1.5, 10.0, 50.0])
def test_agrees_with_dp_accounting(shape: float, runs: float) -> None:
    """The same event told otherwise: two groups of steps, one subsampled, inside
    RepeatAndSelect.
    """
    release = Release((Queries(4.0, 0.1, 50), Queries(9.0, 1.0, 3)))
    gaussian = dp_accounting.GaussianDpEvent
    sampled = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(0.1, gaussian(4.0)), 50
    )
    inside = dp_accounting.ComposedDpEvent([gaussian(9.0), sampled, gaussian(9.0), gaussian(9.0)])
    peer = RdpAccountant(orders=[int(order) for order in ORDERS if order <= 512])
    peer.compose(dp_accounting.dp_event.RepeatAndSelectDpEvent(inside, runs, shape))
    ours = epsilon_with_tuning(release, delta=1e-5, expected_runs=runs, shape=shape)
    assert ours == pytest.approx(peer.get_epsilon(1e-5), rel=1e-5)


def test_tuning_costs_more_the_more_runs() -> None:
    release = Release((Queries(20.0, 1.0, 20, None, 1e-6),))
    costs = [
        epsilon_with_tuning(release, delta=1e-5, expected_runs=runs)
        for runs in (1.0, 2.0, 10.0, 100.0)
    ]
    assert costs == sorted(costs)
    assert costs[0] > epsilon_of(release, delta=1e-5, accountant="renyi")


def test_surges_are_part_of_the_cost() -> None:
    rare = epsilon_with_tuning(
        Release((Queries(8.0, 1.0, 20, None, 1e-9),)), delta=1e-5, expected_runs=5.0
    )
    often = epsilon_with_tuning(
        Release((Queries(8.0, 1.0, 20, None, 0.3),)), delta=1e-5, expected_runs=5.0
    )
    assert often > 1.2 * rare


@pytest.mark.parametrize(("runs", "shape"), [(0.5, 1.0), (5.0, 0.0)])
def test_bad_arguments(runs: float, shape: float) -> None:
    with pytest.raises(PlanError, match="must be"):
        epsilon_with_tuning(Release((Queries(2.0),)), delta=1e-5, expected_runs=runs, shape=shape)
