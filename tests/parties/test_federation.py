"""The federation against independent, naive code; the trusted ideal against the real protocol;
drop-outs.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from sumus.data import from_arrays
from sumus.errors import PlanError, RoundAborted
from sumus.gradients import PerRecordGradients
from sumus.guarantee import LARGEST_WEIGHT_NORM, NoiseDesign, account_of
from sumus.noise import Skellam
from sumus.plan import TrainingPlan, resolve
from sumus.randomness import RandomSource
from sumus.training import SecureMetrics, flat_parameters, prepare
from support.small_data import small_data
from support.small_federation import simulated

PRIVATE = {
    "dp-sgd": {},
    "split-noise": {"training.algorithm": "split-noise"},
    "single-step": {"training.algorithm": "single-step", "federation.local_steps": 1},
    "convex-pass": {
        "training.algorithm": "convex-pass",
        "federation.local_steps": 8,
        "training.sampling_rate": 1.0,
    },
    "silo": {"training.algorithm": "silo", "privacy.unit": "silo"},
    "momentum": {"training.local_momentum": 0.8, "aggregation.modulus_bits": 48},
    "schedule": {"training.learning_rates": [0.4, 0.2, 0.1], "aggregation.modulus_bits": 48},
    "discrete Gaussian": {"noise.mechanism": "discrete-gaussian"},
    "stochastic rounding": {"noise.rounding": "stochastic"},
    "rounded sums": {"noise.rounding": "sum"},
    "secure metrics": {"evaluation.metrics": "secure"},
}


@pytest.mark.parametrize("name", PRIVATE)
def test_trusted_and_secure_sums_give_the_same_model_for_the_same_noise(
    federation, name: str
) -> None:
    secure = federation(PRIVATE[name])
    trusted = federation(PRIVATE[name] | {"aggregation.protocol": "trusted"})
    for a, b in zip(secure.rounds(), trusted.rounds(), strict=True):
        assert np.array_equal(a.summed.total_grid, b.summed.total_grid)
    assert np.array_equal(secure.server.parameters, trusted.server.parameters)
    assert np.linalg.norm(secure.server.parameters) > 0.0


def test_one_step_equals_central_dp_sgd_on_the_union_with_the_same_noise(federation) -> None:
    data = small_data()
    run = federation(
        {
            "training.algorithm": "single-step",
            "federation.local_steps": 1,
            "training.sampling_rate": 1.0,
        },
        data=data,
    )
    outcome = run.round(0)
    design = run.design
    x = torch.from_numpy(np.concatenate([silo.train.x for silo in data.silos]))
    y = torch.from_numpy(np.concatenate([silo.train.y for silo in data.silos]))
    central = PerRecordGradients(run.bench.model).clipped_sum(
        torch.zeros(design.plan.training.dimension),
        x,
        y,
        clip_norm=0.7,
        resolution=design.grid.resolution,
    )
    noise = sum(
        design.share.sample(
            design.plan.training.dimension, RandomSource.simulation(5, 0, "silo", silo)
        )
        for silo in range(len(data.silos))
    )
    assert np.array_equal(outcome.summed.total_grid, central.integers.numpy() + noise)


def test_without_privacy_the_federation_is_plain_fedavg(federation) -> None:
    data = small_data()
    options = {
        "training.algorithm": "fedavg",
        "training.sampling_rate": 1.0,
        "federation.rounds": 3,
        "noise.resolution_bits": 24,
    }
    run = federation(options, data=data)
    for _ in run.rounds():
        pass
    weight, bias = np.zeros((3, 6)), np.zeros(3)
    for _ in range(3):
        moves = []
        for silo in data.silos:
            w, b = weight.copy(), bias.copy()
            for _ in range(3):
                z = silo.train.x @ w.T + b
                p = np.exp(z - z.max(1, keepdims=True))
                r = (p / p.sum(1, keepdims=True) - np.eye(3)[silo.train.y]) / len(silo.train)
                w, b = w - 0.4 * r.T @ silo.train.x, b - 0.4 * r.sum(0)
            moves.append((w - weight, b - bias))
        weight = weight + np.mean([m[0] for m in moves], axis=0)
        bias = bias + np.mean([m[1] for m in moves], axis=0)
    np.testing.assert_allclose(
        run.server.parameters, np.concatenate([weight.reshape(-1), bias]), atol=2e-6
    )


@pytest.mark.parametrize("stage", ["keys", "shares", "masked", "consistency", "unmask"])
def test_a_tolerated_drop_out_at_any_stage_still_gives_the_sum_of_the_survivors(
    federation, stage: str
) -> None:
    data = small_data(silos=5)
    options = {"federation.dropouts": 1, "federation.rounds": 1}
    gone = federation(options, data=data, vanishing={0: {stage: frozenset({2})}})
    whole = federation(options, data=data)
    outcome, complete = gone.round(0), whole.round(0)
    expected = frozenset(range(5)) - ({2} if stage in ("keys", "shares", "masked") else set())
    assert outcome.summed.survivors == expected
    missing = complete.local[2].vector if 2 not in expected else 0
    assert np.array_equal(outcome.summed.total_grid, complete.summed.total_grid - missing)


def test_more_drop_outs_than_tolerated_end_the_round_and_nothing_else(federation) -> None:
    run = federation(
        {"federation.dropouts": 1},
        data=small_data(silos=5),
        vanishing={0: {"masked": frozenset({1, 2})}},
    )
    before = run.server.parameters.copy()
    with pytest.raises(RoundAborted):
        run.round(0)
    assert np.array_equal(run.server.parameters, before)
    assert run.round(1).summed.survivors == frozenset(range(5))


def test_an_empty_batch_adds_its_noise_as_always(federation) -> None:
    run = federation(
        {
            "training.sampling_rate": 1e-9,
            "privacy.epsilon": "none",
            "noise.noise_multiplier": 3.0,
            "federation.local_steps": 1,
        }
    )
    outcome = run.round(0)
    assert sum(each.records for each in outcome.local.values()) == 0
    std = float(np.std(outcome.summed.total_grid.astype(np.float64)))
    expected = 3.0 * run.design.grid.resolution
    # χ² of 20 degrees: below 21·0.2² or above 21·2.1² less than once in 10¹⁰
    assert 0.2 * expected < std < 2.1 * expected


def test_the_update_has_the_size_that_the_plan_says(federation) -> None:
    """Divisor and learning rate: with S = 1, q = 1 and huge ε the update is −γ/(b·N)·Σ clipped
    gradients.
    """
    data = small_data()
    options = {
        "training.algorithm": "single-step",
        "federation.local_steps": 1,
        "training.sampling_rate": 1.0,
        "privacy.epsilon": "none",
        "noise.noise_multiplier": 0.001,
        "training.clip_norm": 100.0,
        "training.divisor": 10.0,
    }
    run = federation(options, data=data)
    update = run.round(0).update
    x = np.concatenate([silo.train.x for silo in data.silos])
    residual = (
        np.full((len(x), 3), 1 / 3)
        - np.eye(3)[np.concatenate([silo.train.y for silo in data.silos])]
    )
    expected = -0.4 / (10.0 * 3) * np.concatenate([(residual.T @ x).reshape(-1), residual.sum(0)])
    np.testing.assert_allclose(update, expected, atol=3e-3)


@pytest.mark.parametrize(
    "selection",
    [
        {"federation.selection": "fixed", "federation.selected": 4},
        {
            "federation.selection": "poisson",
            "federation.selection_rate": 0.9,
            "federation.selected": 2,
        },
    ],
)
def test_silos_can_be_selected_per_round(federation, selection) -> None:
    run = federation(selection | {"federation.rounds": 4}, data=small_data(silos=6))
    seen = [outcome.summed.survivors for outcome in run.rounds()]
    assert all(len(each) >= run.design.plan.least_invited for each in seen)
    assert len(set(seen)) > 1


def test_a_silo_with_more_records_than_its_public_bound_is_refused(federation) -> None:
    from sumus.errors import DataError

    with pytest.raises(DataError, match="public bound"):
        federation({"data.records_per_silo": [10, 10, 10]}, data=small_data())
    # no bound at all would hide that bins may be overfull
    with pytest.raises(PlanError, match="between 1 and"):
        federation({"data.records_per_silo": [0, 0, 0]}, data=small_data())


@pytest.mark.parametrize(
    "changes",
    [
        {
            "training.algorithm": "convex-pass",
            "training.sampling_rate": "none",
            "training.model": "logistic",
            "training.dimension": 14,
        },
        {
            "training.algorithm": "convex-pass",
            "training.sampling_rate": "none",
            "training.dimension": 7,
        },
        {"training.algorithm": "silo", "privacy.unit": "silo", "training.dimension": 7},
        {"training.dimension": 7},
    ],
)
def test_a_model_of_another_size_than_the_plan_accounts_for_is_refused_by_the_silo(
    federation, changes
) -> None:
    """Twice the weights turn logistic regression into softmax, whose gradients are √2 times as
    long.
    """
    with pytest.raises(PlanError, match=r"training\.dimension"):
        federation(changes, data=small_data(classes=2))


def test_gaussian_noise_needs_a_trusted_aggregator(federation) -> None:
    with pytest.raises(PlanError, match=r"noise\.mechanism"):
        federation({"noise.mechanism": "gaussian"})
    run = federation({"noise.mechanism": "gaussian", "aggregation.protocol": "trusted"})
    assert run.round(0).summed.total_grid.dtype == np.float64


def test_a_released_sum_that_throws_the_model_far_away_does_not_end_the_run(federation) -> None:
    run = federation({"training.algorithm": "convex-pass", "training.sampling_rate": "none"})
    dimension = len(run.server.parameters)
    run.server.apply(np.full(dimension, 1 << 40, dtype=np.int64), len(run.design.silos))
    assert 999.0 < np.linalg.norm(run.server.parameters) <= LARGEST_WEIGHT_NORM
    run.round(1)  # no silo refuses the model
    assert np.linalg.norm(run.server.parameters) <= LARGEST_WEIGHT_NORM


class _NotAChain(nn.Module):
    """A model that only `torch.func` can take gradients of."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))) + 0.0)


@pytest.mark.parametrize(
    "overrides",
    [
        {"training.algorithm": "silo", "privacy.unit": "silo", "federation.local_steps": 15},
        {
            "training.algorithm": "dp-sgd",
            "federation.local_steps": 3,
            "training.sampling_rate": 0.2,
        },
        {
            "training.algorithm": "fedavg",
            "federation.local_steps": 15,
            "noise.noise_multiplier": None,
        },
    ],
    ids=["whole silos", "dp-sgd", "the module itself"],
)
def test_silos_side_by_side_never_compute_with_each_others_weights(overrides) -> None:
    """Else a silo's update would depend on another silo's records outside of every sum: more than
    is accounted.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = _NotAChain()
    data, models = small_data(silos=4), []
    changes = {
        "training.dimension": len(flat_parameters(model)),
        "training.sampling_rate": 0.5,
        "noise.noise_multiplier": 5.0,
    }
    plan = TrainingPlan().with_overrides(
        {**changes, "federation.rounds": 1, "evaluation.metrics": "none", **overrides}
    )
    built = NoiseDesign.of(resolve(plan, data.facts()))
    for threads in (1, 4):
        run = simulated(built, prepare(built.plan, data, model=model), 5, threads=threads)
        for _ in run.rounds():
            pass
        models.append(run.server.parameters)
    assert np.array_equal(*models)


@pytest.mark.parametrize("average", [0.0, 0.5])
@pytest.mark.parametrize("protocol", ["secagg", "trusted"])
def test_secure_metrics_are_of_the_model_that_is_released(
    federation, monkeypatch, protocol, average
) -> None:
    """Without noise they are the exact accuracy of the model after the round, which is another than
    that of the model before it.
    """
    monkeypatch.setattr(
        Skellam, "sample", lambda self, size, source: np.zeros(size, dtype=np.int64)
    )
    settings = {
        "evaluation.metrics": "secure",
        "evaluation.every": 1,
        "federation.rounds": 3,
        "training.iterate_average": average,
    }
    run = federation({**settings, "aggregation.protocol": protocol, "training.sampling_rate": 1.0})
    encode, measured = SecureMetrics.encode, []

    def counted(self, model, parameters, *others):
        measured.append(parameters)
        return encode(self, model, parameters, *others)

    monkeypatch.setattr(SecureMetrics, "encode", counted)
    for number in range(3):
        before = run.server.released
        found, truth = run.round(number).metrics, run.evaluate()
        assert found["accuracy"] == pytest.approx(truth["accuracy"], abs=1e-12)
        assert found["loss"] == pytest.approx(truth["loss"], abs=4.0 / 1024)  # the grid of the loss
        assert found.records == truth.records
        assert all(
            np.array_equal(each, run.server.released.astype(np.float32)) for each in measured[-3:]
        )
        assert not np.array_equal(before, run.server.released)
    assert len(measured) == 9
    assert np.array_equal(run.server.released, run.server.parameters) == (average == 0.0)


def test_metrics_are_measured_and_paid_for_after_the_last_round_unless_the_plan_says_otherwise(
    federation,
) -> None:
    last = federation({"evaluation.metrics": "secure", "federation.rounds": 3})
    assert [outcome.metrics is not None for outcome in last.rounds()] == [False, False, True]
    second = federation(
        {"evaluation.metrics": "secure", "federation.rounds": 5, "evaluation.every": 2}
    )
    assert [outcome.metrics is not None for outcome in second.rounds()] == [
        False,
        True,
        False,
        True,
        True,
    ]
    assert second.design.plan.evaluation.noise_multiplier == pytest.approx(
        math.sqrt(3) * last.design.plan.evaluation.noise_multiplier, rel=1e-3
    )


def test_secure_metrics_are_close_to_the_truth_and_accounted(federation) -> None:
    rng = np.random.default_rng(0)
    pairs = [
        (rng.normal(size=(60, 6)).astype(np.float32), rng.integers(0, 3, 60)) for _ in range(3)
    ]
    tests = [(rng.normal(size=(400, 6)).astype(np.float32), np.full(400, 1)) for _ in range(3)]
    data = from_arrays(pairs, tests=tests)
    run = federation(
        {
            "evaluation.metrics": "secure",
            "evaluation.noise_multiplier": 5.0,
            "federation.rounds": 1,
        },
        data=data,
    )
    outcome = run.round(0)
    assert abs(outcome.metrics["accuracy"] - run.evaluate()["accuracy"]) < 0.05
    assert abs(outcome.metrics.records - 1200) < 60
    found = account_of(run.design).metrics_epsilon
    assert found is not None
    assert 0.0 < found < 5.0


def test_a_round_is_repeated_bit_for_bit(federation) -> None:
    first, second = federation(seed=None), federation(seed=None)
    assert np.array_equal(first.round(1).summed.total_grid, second.round(1).summed.total_grid)
    other = federation(seed=None)
    assert not np.array_equal(other.round(0).local[0].vector, other.round(1).local[0].vector)


_PASS = {"training.algorithm": "convex-pass", "training.sampling_rate": "none"}
_WHOLE = {"training.algorithm": "silo", "privacy.unit": "silo", "privacy.epsilon": 30.0}


@pytest.mark.parametrize(
    ("plan", "setting"),
    [
        (
            {},
            {
                "training.feature_bound": 2.0,
                "training.passes": 2,
                "training.residual_cap": 0.3,
                "training.state_noise": 4.0,
            },
        ),
        (
            {},
            {
                "federation.selected": 2,
                "federation.selection_rate": 0.5,
                "noise.trials": 64,
                "evaluation.noise_multiplier": 5.0,
            },
        ),
        (
            {"training.algorithm": "single-step", "federation.local_steps": "none"},
            {"federation.local_epochs": 3.0},
        ),
        (_PASS | {"federation.local_steps": "none"}, {"federation.local_epochs": 3.0}),
        (
            _PASS,
            {
                "training.clip_norm": 0.1,
                "training.state_noise": 4.0,
                "privacy.calibrate_to": "per-step",
            },
        ),
        (_PASS, {"silo.silo-1.clip_norm": 0.1, "silo.silo-1.sampling_rate": 0.2}),
        (_WHOLE, {"training.feature_bound": 2.0, "privacy.calibrate_to": "per-step"}),
    ],
)
def test_what_is_said_to_have_no_effect_has_none(
    federation, plan: dict[str, object], setting: dict[str, object]
) -> None:
    """The same noise and the same sums, bit for bit, with the key and without."""
    without, given = federation(plan), federation(plan | setting)
    assert without.design.plan.noise.noise_multiplier == given.design.plan.noise.noise_multiplier
    for before, after in zip(without.rounds(), given.rounds(), strict=True):
        assert np.array_equal(before.summed.total_grid, after.summed.total_grid)
