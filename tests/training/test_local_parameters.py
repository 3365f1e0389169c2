"""Parameters that stay with a silo: trained beside the others, never sent, begun anew every round."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from sumus.audit.canaries import CanaryRounds
from sumus.comparing import baselines_of, compare
from sumus.data import FederatedData, Records, from_arrays
from sumus.errors import PlanError
from sumus.guarantee import account_of, calibrated
from sumus.noise import Skellam
from sumus.plan import TrainingPlan, resolve
from sumus.randomness import RandomSource
from sumus.runs import Simulation, train
from sumus.training import SecureMetrics, at_home, evaluate, flat_parameters, local_updater, prepare
from sumus.training.local.convex_pass import convex_pass
from sumus.training.local_parameters import LocalPart
from sumus.training.preparation import PublicFeatures
from support.repeatable_sources import repeatable_sources
from support.small_data import small_data

FEATURES, CLASSES = 6, 3
LOCAL = {"training.local_parameters": "intercept"}
PASS = {"training.algorithm": "convex-pass", "federation.local_steps": 6}
STEPS = {
    "training.algorithm": "dp-sgd",
    "training.sampling_rate": 1.0,
    "federation.local_steps": 3,
}


def design_of(overrides: dict[str, object], data: FederatedData):
    plan = TrainingPlan().with_overrides({"privacy.epsilon": 2.0} | LOCAL | overrides)
    return calibrated(plan, data.facts())


@pytest.mark.parametrize("overrides", [PASS, STEPS])
def test_what_stays_is_not_in_the_vector(overrides) -> None:
    """Of 3·7 numbers 3 stay: the sum, the model that is sent and the released one have 18."""
    data = small_data()
    design = design_of(overrides, data)
    bench = prepare(design.plan, data)
    assert (design.resolved.dimension, design.resolved.local_dimension) == (18, 3)
    assert len(bench.first_parameters) == 18
    update = local_updater(design, design.silos[0], bench.data.silos[0].train, bench.model)
    answers = [update(np.zeros(18), RandomSource.simulation(s)).vector for s in (1, 2, 1)]
    assert len(answers[0]) == 18
    # the same question after another one: nothing was carried on
    assert np.array_equal(answers[0], answers[2])
    assert not np.array_equal(answers[0], answers[1])


def test_the_pass_is_the_joint_one_without_the_column_of_the_intercept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        Skellam, "sample", lambda self, size, source: np.zeros(size, dtype=np.int64)
    )
    data = small_data()
    design = design_of(PASS, data)
    bench = prepare(design.plan, data)
    train_part, silo = bench.data.silos[0].train, design.silos[0]
    theta = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    sent = local_updater(design, silo, train_part, bench.model)(
        theta.reshape(-1), RandomSource.simulation(3)
    ).vector
    joint = np.concatenate([theta, np.zeros((CLASSES, 1))], axis=1)
    after = convex_pass(
        joint,
        train_part.x,
        train_part.y,
        task=design.plan.task,
        bins=silo.local_steps,
        passes=1,
        step=silo.learning_rate / design.resolved.divisor,
        decay=0.0,
        bin_cap=10**6,
        feature_bound=1.0,
        residual_cap=1.0,
        source=RandomSource.simulation(3),
    )
    moved = (after - joint)[:, :-1].reshape(-1) / design.grid.granularity
    assert np.abs(sent - moved).max() <= 0.51
    assert np.abs(after[:, -1]).max() > 1e-3


def test_noisy_steps_move_both_and_send_one() -> None:
    """Algorithm 2 on (θ, φ), the joint gradient clipped, noise in both, written line by line."""
    data = small_data()
    design = design_of(STEPS, data)
    bench, silo = prepare(design.plan, data), design.silos[0]
    records = bench.data.silos[0].train
    ours_source, source = RandomSource.simulation(9), RandomSource.simulation(9)
    theta = np.zeros(18)
    ours = local_updater(design, silo, records, bench.model)(theta, ours_source).vector
    phi, released = np.zeros(21), np.zeros(18, dtype=np.int64)
    r, clip = silo.resolution, silo.clip_norm
    for _ in range(3):
        source.coins(1.0, len(records))
        w = phi[:18].astype(np.float32).astype(np.float64).reshape(CLASSES, FEATURES)
        total = np.zeros(21)
        for x, y in zip(records.x, records.y, strict=True):
            z = w @ x + phi[18:]
            p = np.exp(z - z.max())
            residual = p / p.sum() - np.eye(CLASSES)[y]
            g = np.concatenate([np.outer(residual, x).reshape(-1), residual])
            total += np.trunc(g * min(1.0, clip / np.linalg.norm(g)) * r / clip)
        noise = design.drawn_by(silo).sample(18, source)
        kept = design.drawn_by(silo).sample(21, source)[18:]
        noisy = total.astype(np.int64) + np.concatenate([noise, kept])
        released += noisy[:18]
        training, granularity = design.plan.training, design.grid.granularity
        phi = phi - training.learning_rate / design.resolved.divisor * granularity * noisy
    assert np.array_equal(ours_source.words(4), source.words(4))
    assert np.abs(ours - released).max() <= 3e-4 * r


class SameNoise:
    """Random bits that are the same for both neighbours."""

    secure = False

    def __init__(self, common: int, seed: int) -> None:
        self._common, self._seed, self._calls = common, seed, 0
        self._noise = RandomSource.simulation(seed, "noise")

    def coins(self, probability: float, count: int) -> np.ndarray:
        return np.ones(count, dtype=bool)

    def below(self, bound: int, count: int) -> np.ndarray:
        self._calls += 1
        source = RandomSource.simulation(self._seed, "bins", self._calls)
        return source.below(bound, self._common + 1)[:count]

    def words(self, count: int) -> np.ndarray:
        return self._noise.words(count)

    def fill(self, out: np.ndarray) -> None:
        self._noise.fill(out)


KINDS = (
    PASS,
    PASS | {"training.passes": 3, "training.residual_cap": 0.4},
    STEPS | {"federation.local_steps": 1},
)


@functools.cache  # calibrated and recorded once, not for every example
def ready_for_kind(kind: int):
    design = design_of(KINDS[kind], small_data())
    features = PublicFeatures.of(design.plan, small_data().shape)
    return design, features, prepare(design.plan, small_data()).model


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e4, 1e30]),
    spread=st.sampled_from([0.0, 0.1, 5.0]),
    kind=st.sampled_from(range(len(KINDS))),
)
def test_one_record_moves_a_query_by_at_most_what_is_accounted(
    seed: int, scale: float, spread: float, kind: int
) -> None:
    overrides, (design, features, model) = KINDS[kind], ready_for_kind(kind)
    own, rng = small_data().silos[0].train, np.random.default_rng(seed)
    hostile = (scale * rng.normal(size=(1, FEATURES))).astype(np.float32)
    if seed % 5 == 0:
        hostile[0, rng.integers(FEATURES)] = rng.choice([np.nan, np.inf, -np.inf, 0.0])
    larger = Records(
        np.concatenate([own.x[:-1], hostile]), np.append(own.y[:-1], rng.integers(CLASSES))
    )
    theta, vectors = spread * rng.normal(size=18), []
    for records in (larger, Records(own.x[:-1], own.y[:-1])):
        seen = Records(features(records.x), records.y)
        update = local_updater(design, design.silos[0], seen, model)
        vectors.append(update(theta, SameNoise(len(own) - 1, seed)).vector)  # type: ignore[arg-type]
    distance = float(np.linalg.norm((vectors[0] - vectors[1]).astype(np.float64)))
    surge = 2.0 if overrides["training.algorithm"] == "convex-pass" else 1.0
    assert distance <= surge * design.silos[0].l2_grid * (1 + 1e-12)


def test_the_account_knows_what_is_drawn() -> None:
    """Steps add noise to local numbers too, and a proof shows them; a pass sends and noises 18."""
    data = small_data()
    for overrides, shown in ((STEPS, 21), (PASS, 18)):
        design = design_of(overrides, data)
        assert design.setting(design.silos[0]).dimension == shown
        whole = TrainingPlan().with_overrides({"privacy.epsilon": 2.0} | overrides)
        assert calibrated(whole, data.facts()).setting(design.silos[0]).dimension == 21


def test_the_account_says_what_stays() -> None:
    words = account_of(design_of(PASS, small_data())).releases
    assert "(intercept: 3 numbers stay with each silo, begun anew every round)" in words


# -- at home


def _level_silos(silos: int = 4, records: int = 300) -> FederatedData:
    """Silos that share slopes and differ in level."""
    rng = np.random.default_rng(2)
    slopes, pairs = rng.normal(size=FEATURES), []
    for i in range(silos):
        x = rng.normal(size=(records, FEATURES)).astype(np.float32)
        chance = 1.0 / (1.0 + np.exp(-(x @ slopes + (4.0 if i % 2 else -4.0))))
        pairs.append((x, (rng.random(records) < chance).astype(int)))
    return from_arrays(pairs, test_fraction=0.3, name="levels")


@pytest.mark.parametrize("overrides", [PASS, STEPS])
def test_a_silo_fits_its_own_at_home_and_the_released_model_stays_as_it_is(overrides) -> None:
    data = _level_silos()
    design = design_of(overrides | {"training.model": "logistic"}, data)
    bench = prepare(design.plan, data)
    theta = np.random.default_rng(0).normal(size=len(bench.first_parameters))
    before = {name: value.clone() for name, value in bench.model.state_dict().items()}
    losses = []
    for silo in bench.data.silos[:2]:
        fitted = at_home(design.plan, bench.model, theta, silo.train)
        assert np.array_equal(flat_parameters(fitted).numpy(), theta.astype(np.float32))
        (local,) = (p for p in fitted.parameters() if not p.requires_grad)
        losses.append(float(local[0]))
        task = design.plan.task
        alone = evaluate(bench.model, theta, silo.test, task=task)
        home = evaluate(fitted, theta, silo.test, task=task)
        assert home["loss"] < alone["loss"]
    assert losses[0] < 0.0 < losses[1]
    after = bench.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    empty = at_home(design.plan, bench.model, theta, data.silos[0].train.take(np.arange(0)))
    assert not any(bool(p.any()) for p in empty.parameters() if not p.requires_grad)


@pytest.mark.parametrize("overrides", [PASS, STEPS])
def test_local_intercepts_help_where_silos_differ_in_level(tmp_path, overrides) -> None:
    """A simulation measures what silos would have at home; so do its comparisons run."""
    data, found = _level_silos(), {}
    for name, local in (("shared", {}), ("local", LOCAL)):
        plan = TrainingPlan().with_overrides(
            {"privacy.epsilon": 8.0, "training.model": "logistic", "federation.rounds": 3}
            | {"aggregation.modulus_bits": 56, "evaluation.metrics": "simulation"}
            | overrides
            | local
        )
        design = calibrated(plan, data.facts())
        run = train(plan, silos=data, simulation=Simulation(1), options=_options(tmp_path / name))
        found[name] = run.rounds[-1].metrics["accuracy"]
        prepared = prepare(design.plan, data)
        compared = compare(design.plan, data, prepared, prepared.first_parameters)
        assert baselines_of(compared)["alone_mean"] > 0.4
    assert found["local"] > found["shared"] + 0.2


def _options(root):
    from sumus.runs import RunOptions

    return RunOptions(root=root)


def test_secure_counts_do_not_hang_on_training_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """They measure the released model alone: what a silo fits at home is made of records that the
    counts' noise does not protect.
    """
    monkeypatch.setattr(
        Skellam, "sample", lambda self, size, source: np.zeros(size, dtype=np.int64)
    )
    data = _level_silos()
    design = design_of(PASS | {"training.model": "logistic", "evaluation.metrics": "secure"}, data)
    bench = prepare(design.plan, data)
    theta = np.random.default_rng(0).normal(size=len(bench.first_parameters))
    silo = bench.data.silos[0]
    counts = SecureMetrics(design).encode(bench.model, theta, silo.test, RandomSource())
    at_home(design.plan, bench.model, theta, silo.train)
    again = SecureMetrics(design).encode(bench.model, theta, silo.test, RandomSource())
    assert np.array_equal(counts, again)
    fitted = at_home(design.plan, bench.model, theta, silo.train)
    with_home = SecureMetrics(design).encode(fitted, theta, silo.test, RandomSource())
    assert not np.array_equal(counts, with_home)


# -- layers of a network


class Net(nn.Module):
    """A user's network with a layer that fits the silo."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(FEATURES)
        self.hidden, self.head = nn.Linear(FEATURES, 5), nn.Linear(5, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.hidden(self.norm(x))))


TAGGED = STEPS | {"training.local_parameters": "norm, head.bias"}


def test_tagged_layers_of_ones_own_network_stay(tmp_path) -> None:
    data = small_data()
    plan = TrainingPlan().with_overrides(
        {"privacy.epsilon": 2.0, "federation.rounds": 2, "aggregation.modulus_bits": 56} | TAGGED
    )
    torch.manual_seed(0)
    model = Net()
    run = train(plan, silos=data, model=model, simulation=Simulation(1), options=_options(tmp_path))
    training = run.plan.training
    assert training.local_dimension == 2 * FEATURES + CLASSES
    assert training.dimension == FEATURES * 5 + 5 + 5 * CLASSES
    moved = dict(run.module.named_parameters())
    for name, value in model.named_parameters():
        stayed = name.startswith("norm") or name == "head.bias"
        assert torch.equal(moved[name], value) == stayed
    local = LocalPart.of(run.plan, run.module)
    assert local is not None
    assert int((~local.sent).sum()) == training.local_dimension


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"training.algorithm": "split-noise"}, "is proved for"),
        ({"training.algorithm": "single-step"}, "is proved for"),
        ({"training.algorithm": "silo", "privacy.unit": "silo"}, "is proved for"),
        ({"training.algorithm": "fedavg"}, "is proved for"),
        (STEPS | {"noise.rounding": "sum"}, "must be auto or record"),
        (STEPS | {"noise.rounding": "stochastic"}, "must be auto or record"),
        (PASS | {"training.local_parameters": "head"}, 'must be "intercept" of a linear model'),
    ],
)
def test_what_is_not_proved_is_refused(overrides, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        TrainingPlan().with_overrides(LOCAL | overrides)


def test_rows_that_would_weigh_nothing_about_the_mean_are_refused() -> None:
    from sumus.gradients import ONE

    wanted = LOCAL | {
        "training.task": "regression",
        "training.algorithm": "normal-equations",
        "training.model": "linear",
        "privacy.unit": "person",
        "federation.rounds": 1,
        "data.name": None,
        "data.objects": "x",
        "data.bounds": {"label": [-1.0, 1.0]},
    }
    TrainingPlan().with_overrides(wanted | {"data.records_per_person": ONE})
    with pytest.raises(PlanError, match="records_per_person must be at most 4096 beside"):
        TrainingPlan().with_overrides(wanted | {"data.records_per_person": ONE + 1})


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("body", "'body' begins none"),
        ("norm,, head", "'' begins none"),
        ("norm, hidden, head", "must leave parameters that are trained together"),
        ("intercept", "must name parameters of a model of your own"),
    ],
)
def test_names_that_fit_no_network_are_refused(tmp_path, wanted: str, message: str) -> None:
    plan = TrainingPlan().with_overrides(STEPS | {"training.local_parameters": wanted})
    with pytest.raises(PlanError, match=message):
        train(
            plan,
            silos=small_data(),
            model=Net(),
            simulation=Simulation(1),
            options=_options(tmp_path),
        )


def test_a_wrong_number_of_local_parameters_is_refused() -> None:
    data = small_data()
    for overrides in (PASS, STEPS):
        design = design_of(overrides | {"training.local_dimension": 2}, data)
        bench = prepare(design.plan, data)
        with pytest.raises(PlanError, match="local_dimension must be 3"):
            local_updater(design, design.silos[0], bench.data.silos[0].train, bench.model)
    plan = TrainingPlan().with_overrides(STEPS | {"training.local_parameters": "0.weight"})
    with pytest.raises(PlanError, match="counted by `sumus train` only"):
        resolve(plan, data.facts())


def test_canaries_of_a_pass_with_local_intercepts_move_the_sum_by_what_is_accounted() -> None:
    data = _level_silos()
    design = design_of(
        PASS
        | {"training.model": "logistic", "federation.rounds": 2}  # the same ε in fewer sums
        | {"aggregation.protocol": "trusted"},
        data,
    )
    rounds = CanaryRounds(design, 48, view="sum", new_source=repeatable_sources())
    found = [rounds.run() for _ in range(300)]
    scores, included = (
        np.concatenate([each.scores for each in found]),
        np.concatenate([each.included for each in found]),
    )
    several = 8.0 / math.sqrt(len(scores))
    assert float(scores[included].mean()) == pytest.approx(rounds.separation, abs=several)
    with pytest.raises(PlanError, match="has no canaries under dp-sgd"):
        CanaryRounds(design_of(STEPS, data), 48, view="sum")
