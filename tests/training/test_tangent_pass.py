"""One record moves a tangent pass by at most γC/b per pass, whatever network, record and company."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from sumus.data import Records
from sumus.errors import PlanError
from sumus.gradients import StoredChunk, Units
from sumus.gradients.stored_tangents import Product, Table
from sumus.guarantee import NoiseDesign, calibrated, tangent_bounds
from sumus.noise import Skellam
from sumus.plan import PublicFacts, TrainingPlan, resolve
from sumus.randomness import RandomSource
from sumus.tasks import TASKS, LabelFacts, Link
from sumus.training import local_updater, named_model
from sumus.training.local.convex_pass import convex_pass
from sumus.training.local.tangent_pass import tangent_pass
from support.tangents import LINKS, FixedBins, Raw, bounds_for, labels_for, matrices, moved


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), link=st.sampled_from(list(LINKS)))
def test_what_is_stored_of_a_record_is_within_the_bounds(seed: int, link: Link) -> None:
    raw = Raw(np.random.default_rng(seed), 12, link)
    chunk = raw(np.arange(12))
    for table in matrices(chunk, 12):
        assert np.linalg.norm(table) <= 6.0 * (1 + 2.0**-20)
        if link is Link.SOFTMAX:
            rows = [a - b for a in table for b in table] + list(table)
            assert max(map(np.linalg.norm, rows)) <= math.sqrt(2.0) * (1 + 2.0**-20)
        else:
            assert np.linalg.norm(table, 2) <= 1.0 + 2.0**-20
    assert np.linalg.norm(chunk.outputs, axis=1).max() <= 4096.0 * (1 + 1e-12)


@pytest.mark.parametrize("compared", [True, False])
def test_many_outputs_are_within_the_bounds_that_rounding_rests_on(compared: bool) -> None:
    """Sixty rows that are alike would be far longer together than the float slack allows, and
    outputs of any length would lose their last digits.
    """
    rng = np.random.default_rng(7)
    rows = 10.0 ** rng.uniform(0, 6, size=(9, 1, 1)) * rng.normal(size=(9, 60, 8))
    outputs = 1e9 * rng.normal(size=(9, 60))
    chunk = StoredChunk.within(
        outputs,
        (Table(0, rows),),
        compared=compared,
        jacobian_norm=1.0,
        whole_norm=1.5,
        outputs_norm=4096.0,
    )
    lengths = chunk.scales * np.linalg.norm(chunk.parts[0].rows, axis=(1, 2))
    assert lengths.max() <= 1.5 * (1 + 2.0**-20)
    assert np.linalg.norm(chunk.outputs, axis=1) == pytest.approx(4096.0)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    link=st.sampled_from(list(LINKS)),
    bins=st.integers(1, 8),
    passes=st.integers(1, 3),
    room=st.floats(0.3, 1.0),
    t=st.sampled_from([1.0, 0.5, 0.05]),
    decay=st.sampled_from([0.0, 0.02]),
)
def test_a_record_moves_the_pass_by_at_most_gamma_c_over_b(
    seed, link, bins, passes, room, t, decay
) -> None:
    """Neighbours coupled on all bins, with Jacobians of any length and shape."""
    rng = np.random.default_rng(seed)
    raw, y = Raw(rng, 24, link), labels_for(rng, link, 24)
    assigned = [rng.integers(0, bins, 24) for _ in range(passes)]
    cap = max(int(np.bincount(each, minlength=bins).max()) for each in assigned)
    bounds = bounds_for(link, cap=cap, t=t)
    # (2 − decay)/(β·cap): the longest that is non-expansive, a float32 too long
    step = room * (2.0 - decay) / (bounds.convex.smoothness * cap) * (1 - 1e-5)
    options = {"bins": bins, "step": step, "bounds": bounds, "decay": decay}
    with_record = moved(raw, y, assigned, **options)
    without = moved(raw, y[:-1], assigned, **options)
    most = passes * step * bounds.convex.gradient_norm
    assert np.linalg.norm(with_record - without) <= most * (1 + 1e-5)


@pytest.mark.parametrize("t", [1.0, 0.3])
@pytest.mark.parametrize(
    ("link", "constants", "reach"),
    [
        (Link.SOFTMAX, Link.SOFTMAX, 1.0),
        (Link.LOGISTIC, Link.LOGISTIC, 1.0),
        (Link.LOGISTIC, Link.SOFTMAX, math.sqrt(2.0)),  # two classes told by one logit
        (Link.HUBER, Link.HUBER, 1.0),
    ],
)
def test_a_jacobian_may_reach_as_far_as_the_constants_allow(link, constants, reach, t) -> None:
    bounds = bounds_for(link, cap=3, t=t, constants=constants)
    assert bounds.reach(link, LINKS[link][0]) == pytest.approx(reach)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), t=st.sampled_from([1.0, 0.5, 0.05]))
def test_one_logit_of_two_classes_moves_no_further_than_a_softmax(seed: int, t: float) -> None:
    """At √2·R, with the constants of a softmax: steps as long as they allow, sensitivity as well."""
    rng = np.random.default_rng(seed)
    raw = Raw(rng, 24, Link.LOGISTIC, reach=math.sqrt(2.0))
    y, assigned = labels_for(rng, Link.LOGISTIC, 24), [rng.integers(0, 4, 24)]
    cap = int(np.bincount(assigned[0]).max())
    bounds = bounds_for(Link.LOGISTIC, cap=cap, t=t, constants=Link.SOFTMAX)
    step = 2.0 / (bounds.convex.smoothness * cap) * (1 - 1e-5)
    options = {"bins": 4, "step": step, "bounds": bounds}
    apart = moved(raw, y, assigned, **options) - moved(raw, y[:-1], assigned, **options)
    assert np.linalg.norm(apart) <= step * bounds.convex.gradient_norm * (1 + 1e-5)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), link=st.sampled_from(list(LINKS)), cap=st.integers(1, 6))
def test_an_overfull_bin_at_most_doubles_the_influence(seed: int, link: Link, cap: int) -> None:
    rng = np.random.default_rng(seed)
    raw, y = Raw(rng, 12, link), labels_for(rng, link, 12)
    bounds = bounds_for(link, cap=cap)
    step = 2.0 / (bounds.convex.smoothness * cap) * (1 - 1e-5)
    assigned = [np.zeros(12, dtype=np.int64)]
    options = {"bins": 1, "step": step, "bounds": bounds}
    apart = moved(raw, y, assigned, **options) - moved(raw, y[:-1], assigned, **options)
    assert np.linalg.norm(apart) <= 2.0 * step * bounds.convex.gradient_norm * (1 + 1e-5)


def test_for_a_linear_model_it_is_the_convex_pass() -> None:
    """z = 0 and J = 1 ⊗ x: the tangent is the model."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(40, 4))
    x = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)).astype(np.float32) * 0.999
    y, assigned = rng.integers(0, 3, 40), [rng.integers(0, 9, 40) for _ in range(2)]
    bounds = bounds_for(Link.SOFTMAX, cap=6, t=0.7)

    def linearised(rows: np.ndarray) -> StoredChunk:
        left = np.broadcast_to(np.eye(3), (len(rows), 3, 3)).copy()
        part = Product(0, left, x[rows].astype(np.float64), bias=False)
        return StoredChunk.within(
            np.zeros((len(rows), 3)),
            (part,),
            compared=True,
            jacobian_norm=1.0,
            whole_norm=6.0,
            outputs_norm=4096.0,
        )

    common = {"bins": 9, "passes": 2, "step": 0.3, "decay": 0.01}
    ours = tangent_pass(
        linearised,
        y[:, None],
        dimension=12,
        chunk=7,
        units=Units.single(40),
        link=Link.SOFTMAX,
        bounds=bounds,
        source=FixedBins(*assigned),
        **common,
    )
    theirs = convex_pass(
        np.zeros((3, 4)),
        x,
        y,
        task=TASKS["classification"],
        bin_cap=6,
        feature_bound=1.0,
        residual_cap=0.7,
        source=FixedBins(*assigned),
        **common,
    )
    np.testing.assert_allclose(ours.reshape(3, 4), theirs, rtol=0, atol=1e-12)


def test_a_record_without_numbers_adds_nothing() -> None:
    rng = np.random.default_rng(0)
    raw, y = Raw(rng, 6, Link.SOFTMAX), labels_for(rng, Link.SOFTMAX, 6)
    options = {"bins": 1, "step": 0.1, "bounds": bounds_for(Link.SOFTMAX, cap=9)}
    assigned = [np.zeros(6, dtype=np.int64)]
    without = moved(raw, y[:-1], assigned, **options)
    for broken, value in ((raw.left, np.nan), (raw.rows, np.inf), (raw.z, np.nan)):
        kept = broken[-1].copy()
        broken[-1] = value
        np.testing.assert_array_equal(moved(raw, y, assigned, **options), without)
        broken[-1] = kept
    assert not np.array_equal(moved(raw, y, assigned, **options), without)


def test_chunks_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    raw, y = Raw(rng, 30, Link.SOFTMAX), labels_for(rng, Link.SOFTMAX, 30)
    assigned = [rng.integers(0, 12, 30)]  # some bins are empty
    options = {"bins": 12, "step": 0.1, "bounds": bounds_for(Link.SOFTMAX, cap=9), "decay": 0.01}
    whole = moved(raw, y, assigned, chunk=30, **options)
    for chunk in (1, 4, 29):
        np.testing.assert_allclose(
            moved(raw, y, assigned, chunk=chunk, **options), whole, rtol=0, atol=1e-12
        )


# -- through the plan

FACTS = PublicFacts("test", ("a", "b", "c"), (40, 40, 40), (1, 18, 18), LabelFacts(("x", "y", "z")))
PLAN: Mapping[str, object] = {
    "privacy.epsilon": 2.0,
    "privacy.delta": 1e-3,
    "federation.rounds": 2,
    "federation.local_steps": 12,
    "training.algorithm": "tangent-pass",
    "training.model": "cnn",
    "training.tangent_layers": "7,9",
    "training.learning_rate": 0.5,
    "training.feature_bound": 2.0,
}


@pytest.fixture(scope="module")
def built() -> tuple[NoiseDesign, nn.Module]:
    design = calibrated(TrainingPlan().with_overrides(PLAN), FACTS)
    return design, named_model(design.plan, FACTS.shape, FACTS.labels)


def records(count: int, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 1, 18, 18)).astype(np.float32)
    return Records(x, rng.integers(0, 3, count))


def first_of(model: nn.Module) -> np.ndarray:
    trained = [each.detach().reshape(-1) for each in model.parameters() if each.requires_grad]
    return torch.cat(trained).double().numpy()


def test_layers_that_are_not_named_keep_their_first_value(built) -> None:
    design, model = built
    trained = {name for name, each in model.named_parameters() if each.requires_grad}
    assert trained == {"7.weight", "7.bias", "9.weight", "9.bias"}
    assert design.plan.training.dimension == len(first_of(model))


def test_a_loud_record_moves_what_is_sent_by_no_more_than_is_accounted(
    built, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the whole updater, noise left out; the record is alone in nothing it can choose."""
    monkeypatch.setattr(Skellam, "sample", lambda self, size, source: np.zeros(size, np.int64))
    design, model = built
    silo, rest = design.silos[0], records(20)
    x, y = np.concatenate([rest.x, 1e3 * rest.x[:1]]), np.append(rest.y, 2)
    sent = [
        local_updater(design, silo, each, model)(
            3.0 * first_of(model), RandomSource.simulation(4)
        ).vector
        for each in (rest, Records(x, y))
    ]
    apart = float(np.linalg.norm((sent[1] - sent[0]).astype(np.float64)))
    assert 0.0 < apart <= silo.l2_grid


def test_an_empty_silo_sends_its_noise_alone(built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Skellam, "sample", lambda self, size, source: np.zeros(size, np.int64))
    design, model = built
    updater = local_updater(design, design.silos[0], records(0), model)
    assert not updater(first_of(model), RandomSource.simulation(1)).vector.any()


def test_fixed_layers_in_front_may_be_of_either_precision(
    built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Skellam, "sample", lambda self, size, source: np.zeros(size, np.int64))
    design, model = built
    sent = [
        local_updater(design, design.silos[0], records(9), each)(
            first_of(model), RandomSource.simulation(1)
        ).vector
        for each in (model, copy.deepcopy(model).double())
    ]
    assert sent[0].any()
    np.testing.assert_allclose(sent[1], sent[0], atol=1e-4 * np.abs(sent[0]).max())


def test_floats_add_little_to_the_sensitivity(built) -> None:
    design, _ = built
    silo, grid = design.silos[0], design.grid
    exact = grid.resolution + math.sqrt(design.resolved.dimension) * (1 + 2.0**-12)
    assert exact < silo.l2_grid < exact + 1e-3 * grid.resolution


def test_tasks_without_a_convex_loss_of_outputs_are_refused() -> None:
    plan = TrainingPlan().with_overrides(
        {
            **PLAN,
            "training.model": "mlp",
            "training.task": "survival",
            "training.dimension": 100,
            "data.path": "t.csv",
            "data.silo_column": "s",
            "data.time_column": "t",
            "data.event_column": "e",
            "data.intervals": (1.0, 2.0),
        }
    )
    with pytest.raises(PlanError, match="no tangent pass"):
        tangent_bounds(resolve(plan, FACTS), 0.5)


def test_layers_that_are_not_there_are_refused() -> None:
    plan = TrainingPlan().with_overrides({**PLAN, "training.tangent_layers": "7,head"})
    with pytest.raises(PlanError, match="'head' begins none"):
        named_model(plan, FACTS.shape, FACTS.labels)
    with pytest.raises(PlanError, match="tangent_layers"):
        TrainingPlan().with_overrides({"training.tangent_layers": "7"})
