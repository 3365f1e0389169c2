"""Newton: one record moves a round's sum by no more than is declared, whatever the model; sums do not
care how records are dealt; the server's step is Newton's; and a plan that cannot work is refused.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from torch import nn

from sumus import RunOptions, TrainingPlan, account, train
from sumus.data import Records
from sumus.errors import PlanError, StorageError
from sumus.guarantee import NoiseDesign, calibrated, newton_parts
from sumus.plan import PublicFacts
from sumus.randomness import RandomSource
from sumus.runs import Simulation
from sumus.tasks import LabelFacts
from sumus.training import Server, local_updater
from sumus.training.bending import Bending
from sumus.training.local import newton as newton_of_a_silo

FEATURES, CLASSES = 5, 3


def design(silos: int = 2, records: int = 60, **training: object) -> NoiseDesign:
    """Five numbers a record, bias included, and three classes."""
    plan = TrainingPlan.from_table(
        {
            "privacy": {"epsilon": 4.0, "delta": 1e-5},
            "federation": {"silos": silos, "rounds": 3},
            "training": {"algorithm": "newton", **training},
            "aggregation": {"protocol": "trusted", "modulus_bits": 56},
        }
    )
    names = tuple(f"silo-{place}" for place in range(silos))
    labels = LabelFacts(tuple(str(each) for each in range(CLASSES)))
    facts = PublicFacts("newton", names, (records,) * silos, (FEATURES - 1,), labels)
    return calibrated(plan, facts)


def sent(built: NoiseDesign, x: np.ndarray, y: np.ndarray, parameters: np.ndarray) -> np.ndarray:
    """What a silo would send if it drew no noise."""
    linear = nn.Sequential(nn.Linear(FEATURES, CLASSES, bias=False))
    records = Records(x.astype(np.float32), y.astype(np.int64))
    silent = pytest.MonkeyPatch()
    with silent.context() as patch:
        patch.setattr(newton_of_a_silo, "draw_noise", lambda *given, **more: 0)
        update = local_updater(built, built.silos[0], records, linear)
        return update(parameters, RandomSource.simulation(1, "newton")).vector


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_record_whatsoever_moves_the_sum_by_more_than_is_declared(data: st.DataObject) -> None:
    """An adversary chooses the record, its company, the model and the split of the length."""
    built = design(
        matrix_share=data.draw(st.sampled_from([0.01, 0.3, 0.5, 0.99])),
        clip_norm=data.draw(st.sampled_from([0.1, 1.0, 2.0])),
        feature_bound=data.draw(st.sampled_from([0.25, 1.0])),
    )
    numbers = st.floats(-2, 2, width=32) | st.sampled_from([0.0, 1.0, 3e38, 1e-45, math.nan])
    row = st.lists(numbers, min_size=FEATURES, max_size=FEATURES)
    x = np.array(data.draw(st.lists(row, min_size=1, max_size=4)))
    y = np.array(data.draw(st.lists(st.integers(0, CLASSES - 1), min_size=len(x), max_size=len(x))))
    weights = st.floats(-50, 50, width=32) | st.sampled_from([0.0, 1e30])
    flat = st.lists(weights, min_size=FEATURES * CLASSES, max_size=FEATURES * CLASSES)
    parameters = np.array(data.draw(flat))
    moved = sent(built, x, y, parameters) - sent(built, x[1:], y[1:], parameters)
    assert sum(int(value) ** 2 for value in moved) <= built.silos[0].l2_grid ** 2


def test_the_declared_length_is_reached() -> None:
    """A bound that nobody comes near would hide a record that counts twice."""
    built = design()
    x, y = np.eye(FEATURES)[:1], np.array([0])
    weights = np.zeros((CLASSES, FEATURES))
    weights[1, 0] = 40.0
    moved = sent(built, x, y, weights.reshape(-1))
    assert 0.9999 < np.linalg.norm(moved) / built.silos[0].l2_grid <= 1.0


BUILT = design().resolved


@given(share=st.floats(0.01, 0.99), bits=st.integers(5, 24))
def test_the_two_parts_are_as_long_as_the_whole_and_no_longer(share: float, bits: int) -> None:
    built = BUILT.replace("training", matrix_share=share)
    matrix, gradient = newton_parts(built, 1 << bits)
    assert matrix**2 + gradient**2 <= (1 << bits) ** 2
    assert (matrix + 1) ** 2 > share * (1 << bits) ** 2


def test_a_round_does_not_care_how_records_are_dealt() -> None:
    """By label, by size or at random: the integers of all silos add up to the same."""
    built, rng = design(silos=3), np.random.default_rng(5)
    x = rng.normal(size=(60, FEATURES))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y, parameters = rng.integers(0, CLASSES, 60), rng.normal(size=FEATURES * CLASSES)
    whole = sent(built, x, y, parameters)
    by_label = [np.flatnonzero(y == label) for label in range(CLASSES)]
    by_size = [np.arange(1), np.arange(1, 10), np.arange(10, 60)]
    for deal in (by_label, by_size):
        total = sum(sent(built, x[places], y[places], parameters) for places in deal)
        np.testing.assert_array_equal(total, whole)


def _solved(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Softmax regression without privacy, by many small steps."""
    weights = np.zeros((CLASSES, FEATURES))
    for _ in range(4_000):
        outputs = np.exp(x @ weights.T)
        slopes = outputs / outputs.sum(1, keepdims=True) - np.eye(CLASSES)[y]
        weights -= 4.0 * slopes.T @ x / len(x)
    return weights


def test_without_noise_the_steps_end_at_the_solution() -> None:
    """By a rate of one, with neither noise nor ridge, as the bound on the Hessian promises."""
    built = design(records=400, ridge=0.0, learning_rate=1.0, clip_norm=2.0)
    rng = np.random.default_rng(3)
    x = np.c_[rng.normal(size=(400, FEATURES - 1)) * [0.4, 0.2, 0.1, 0.05], np.full(400, 0.25)]
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    y = (x[:, 0] + 0.3 * rng.normal(size=400) > 0).astype(int) + (rng.random(400) < 0.2)
    bending, iterate = Bending(built), np.zeros(FEATURES * CLASSES)
    losses = []
    for _ in range(60):
        decoded = sent(built, x, y, iterate) * built.grid.granularity
        bending._variance = 0.0  # no noise was drawn
        iterate = iterate + bending.direction(decoded, built.resolved.invited)
        outputs = x @ iterate.reshape(CLASSES, FEATURES).T
        losses.append(float((np.log(np.exp(outputs).sum(1)) - outputs[range(400), y]).mean()))
    # the first two rounds still count moments as noise
    assert all(later <= before + 1e-6 for before, later in itertools.pairwise(losses[2:]))
    answer = x @ _solved(x, y).T
    best = float((np.log(np.exp(answer).sum(1)) - answer[range(400), y]).mean())
    assert losses[-1] == pytest.approx(best, abs=2e-3)


def test_a_server_goes_on_from_its_checkpoint() -> None:
    built, rng = design(), np.random.default_rng(0)
    sums = rng.integers(-1000, 1000, (3, built.resolved.coordinates))
    first = Server(built, np.zeros(built.resolved.dimension))
    for total in sums:
        first.apply(total, 2)
    second = Server(built, np.zeros(built.resolved.dimension))
    second.apply(sums[0], 2)
    third = Server(built, np.zeros(built.resolved.dimension))
    third.restore(second.state())
    for total in sums[1:]:
        third.apply(total, 2)
    np.testing.assert_array_equal(first.parameters, third.parameters)
    with pytest.raises(StorageError, match="moments"):
        third.restore({**second.state(), "moments": np.zeros(3)})


def test_noise_on_the_moments_is_counted_for_what_survived() -> None:
    """A drop-out leaves sums that stand for all silos, and less noise than all of them drew."""
    built = design(silos=4)
    zeros = np.zeros(built.resolved.coordinates)
    everybody, three = Bending(built), Bending(built)
    everybody.direction(zeros, 4)
    three.direction(zeros, 3)
    assert three.state()[-2] == pytest.approx(everybody.state()[-2] * 4 / 3)


def test_a_run_learns_where_every_silo_has_one_class(tmp_path: Path) -> None:
    """Through the secure sum, with noise: silos that know one class each learn all three."""
    rng = np.random.default_rng(1)
    centres = np.array([[0.9, 0.0, 0.1], [0.0, 0.9, 0.1], [0.5, 0.5, 0.9]])
    x = np.concatenate([np.abs(centre + 0.2 * rng.normal(size=(400, 3))) for centre in centres])
    y = np.repeat(np.arange(3), 400)
    silos = {f"silo-{label}": (x[y == label], y[y == label]) for label in range(3)}
    values = {
        "training.algorithm": "newton",
        "training.learning_rate": 1.5,
        "privacy.epsilon": 2.0,
        "privacy.delta": 1e-4,
        "federation.rounds": 4,
        "federation.colluding": 0,
        "aggregation.modulus_bits": 48,
    }
    plan = TrainingPlan().with_overrides(values)
    run = train(
        plan,
        silos=silos,
        classes=3,
        options=RunOptions(root=tmp_path, ledger=False),
        simulation=Simulation(3),
    )
    assert run.metrics["accuracy"] > 0.85


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("training.model", "mlp", "must be softmax, linear, logistic for newton"),
        ("training.sampling_rate", 0.5, "has no meaning for newton"),
        ("training.server_optimizer", "adam", "has no meaning for newton"),
        ("training.l2_penalty", 0.1, "must be 0 for newton"),
        ("noise.rounding", "sum", "must be auto or record for newton"),
        ("training.coordinates", 77, "training.coordinates"),
    ],
)
def test_a_plan_that_cannot_work_is_refused(key: str, value: object, words: str) -> None:
    plan = {"data.name": "digits", "training.algorithm": "newton", "privacy.epsilon": 4.0}
    with pytest.raises(PlanError, match=words):
        account(TrainingPlan().with_overrides(plan | {key: value}))
