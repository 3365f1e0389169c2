"""A user's module that carries something from record to record: refused everywhere, and harmless
even if nobody noticed.

The control takes the defences away: then one record moves the sum by more than ten clip norms,
    where one is accounted for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from sumus.data import Records, from_arrays
from sumus.errors import DataError, GuaranteeError
from sumus.features import feature_map
from sumus.gradients import PerRecordGradients, examination
from sumus.guarantee import calibrated
from sumus.plan import TrainingPlan
from sumus.purity import certified, chunks as chunk_function
from sumus.randomness import RandomSource
from sumus.runs import RunOptions, train
from sumus.tasks import TASKS
from sumus.training import SecureMetrics, evaluate, flat_parameters
from support import module_zoo
from support.module_zoo import STATEFUL, Centred, EnvironmentMemory, Live, Normaliser, model_with

PLAN = """
[privacy]
epsilon = 1.0
delta = 1e-4
[federation]
rounds = 1
[training]
algorithm = "split-noise"
sampling_rate = 0.5
"""
RESOLUTION = 1 << 16
MEMORY = {
    **STATEFUL,
    "memory outside of all objects": (EnvironmentMemory, "after another one was computed"),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    os.environ.pop("SUMUS_TEST_ZOO", None)


def clip_norms_moved() -> float:
    """How far the first record, a large one, moves the clipped sum of 300 records, in clip
    norms.
    """
    generator = torch.Generator().manual_seed(1)
    x, y = (
        torch.randn(300, 8, generator=generator),
        torch.randint(0, 4, (300,), generator=generator),
    )
    x[0] = 1000.0

    def total(first: int) -> np.ndarray:
        torch.manual_seed(0)
        model = model_with(Normaliser())
        step = PerRecordGradients(model).clipped_sum(
            flat_parameters(model).double(),
            x[first:],
            y[first:],
            clip_norm=0.1,
            resolution=RESOLUTION,
        )
        return step.integers.numpy() / RESOLUTION

    return float(np.linalg.norm(total(0) - total(1)))


def without_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        certified, "require_pure", lambda compute, **words: [compute(record) for record in range(3)]
    )
    monkeypatch.setattr(certified, "require_apart", lambda *values, **words: None)
    monkeypatch.setattr(examination, "_require_repeatable", lambda *values: None)


def without_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        chunk_function, "record", lambda function, *examples, what: InShape(function)
    )


class InShape(Live):
    """Live code that a memory of whole chunks lets return too many numbers: the first of them."""

    def __call__(self, weights: dict[str, torch.Tensor], *rows: torch.Tensor) -> object:
        results = super().__call__(weights, *rows)
        assert isinstance(results, dict)
        return {
            name: value.reshape(len(rows[0]), -1)[:, : weights[name].numel()]
            if name in weights
            else value
            for name, value in results.items()
        }


def test_control_without_checks_and_recording_one_record_moves_the_sum_by_ten_clip_norms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_the_checks(monkeypatch)
    without_the_recording(monkeypatch)
    assert clip_norms_moved() > 10.0


def test_a_running_mean_that_no_check_saw_moves_nothing_through_the_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_the_checks(monkeypatch)
    assert clip_norms_moved() <= 1.0


def test_a_running_mean_is_refused_before_it_sees_a_record() -> None:
    with pytest.raises(GuaranteeError, match=r"changes 0\.mean"):
        clip_norms_moved()


def silos(shape: tuple[int, ...] = (8,)) -> list[tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(0)
    return [(generator.random((60, *shape), dtype=np.float32), np.arange(60) % 4) for _ in range(3)]


@pytest.mark.parametrize("algorithm", ["split-noise", "dp-sgd", "single-step", "silo"])
@pytest.mark.parametrize("name", MEMORY)
def test_training_refuses_memory_before_anything_is_entered(
    name: str, algorithm: str, tmp_path: Path
) -> None:
    kind, words = MEMORY[name]
    unit = {"privacy.unit": "silo", "privacy.epsilon": 20.0} if algorithm == "silo" else {}
    plan = TrainingPlan.from_toml(PLAN).with_overrides({"training.algorithm": algorithm, **unit})
    with pytest.raises(GuaranteeError, match=words) as refusal:
        train(
            plan,
            model=model_with(kind()),
            silos=silos(),
            options=RunOptions(root=tmp_path / "runs", state=tmp_path / "state"),
        )
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "runs").exists()
    assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.parametrize("kind", [*(kind for kind, _ in STATEFUL.values()), Centred])
def test_a_feature_map_with_memory_is_refused(kind: type, tmp_path: Path) -> None:
    words = dict(STATEFUL.values()).get(kind, "mixes records").replace("0.", "network.end.")
    own_map = {
        "training.features": f"support.module_zoo:{kind.__name__}Features?pixels=2",
        "training.dimension": 36,
    }
    for algorithm, rate in (("convex-pass", None), ("split-noise", 0.5)):
        chosen = TrainingPlan.from_toml(PLAN).with_overrides(
            {"training.algorithm": algorithm, "training.sampling_rate": rate, **own_map}
        )
        with pytest.raises(GuaranteeError, match=words):
            train(chosen, silos=silos((3, 2, 2)), options=RunOptions(root=tmp_path, ledger=False))


def test_a_pure_feature_map_of_ones_own_is_recorded() -> None:
    mapping = feature_map("support.module_zoo:PureFeatures?pixels=2", (3, 2, 2))
    records = np.random.default_rng(0).random((130, 3, 2, 2), dtype=np.float32)
    together = mapping(records)
    expected = np.tanh((records.reshape(130, -1)[:, :8] * 255.0 - 127.0) / 128.0)
    assert np.allclose(together, expected, atol=1e-6)
    assert np.array_equal(together[100:101], mapping(records[100:101]))


def test_control_a_feature_map_with_memory_carries_a_record_on() -> None:
    """Called as it is, batch after batch, the map lets the first record change the features of the
    others.
    """
    backbone = module_zoo.FEATURES["NormaliserFeatures"]
    records = torch.rand(20, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    records[0] = 1e4

    def features(first: int) -> torch.Tensor:
        network = backbone()
        return torch.cat([network(record[None]) for record in records[first:]])

    assert (features(0)[1:] - features(1)).norm(dim=1).min() > 10.0


def secure_metrics() -> SecureMetrics:
    plan = TrainingPlan.from_toml(PLAN).with_overrides(
        {"evaluation.metrics": "secure", "evaluation.noise_multiplier": 30.0}
    )
    facts = from_arrays(silos()).facts()
    return SecureMetrics(calibrated(plan, facts))


@pytest.mark.parametrize("name", MEMORY)
def test_secure_metrics_refuse_memory(name: str) -> None:
    kind, words = MEMORY[name]
    model = model_with(kind())
    records = Records(
        np.random.default_rng(0).random((10, 8), dtype=np.float32), np.zeros(10, dtype=np.int64)
    )
    with pytest.raises(GuaranteeError, match=words):
        secure_metrics().encode(
            model, flat_parameters(model).numpy().astype(np.float64), records, RandomSource()
        )


def test_secure_metrics_refuse_a_mean_over_the_batch() -> None:
    model = model_with(Centred())
    records = Records(
        np.random.default_rng(0).random((10, 8), dtype=np.float32), np.zeros(10, dtype=np.int64)
    )
    with pytest.raises(GuaranteeError, match="mixes records"):
        secure_metrics().encode(
            model, flat_parameters(model).numpy().astype(np.float64), records, RandomSource()
        )


def test_a_model_is_measured_by_the_function_that_was_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Record by record: the mean over a batch of one record is the record itself, and every answer
    is the bias's.
    """
    monkeypatch.setattr(certified, "require_apart", lambda *values, **words: None)
    model = model_with(Centred())
    x = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
    theta = flat_parameters(model).numpy().astype(np.float64)
    answer = int(model(torch.zeros(1, 8)).argmax())
    assert (
        evaluate(model, theta, Records(x, np.full(100, answer)), task=TASKS["classification"])[
            "accuracy"
        ]
        == 1.0
    )


def test_a_constant_that_is_changed_during_a_run_changes_nothing() -> None:
    model = module_zoo.Constants()
    steps, theta = PerRecordGradients(model), flat_parameters(model)
    x, y = torch.randn(5, 8), torch.zeros(5, dtype=torch.long)
    before = steps.clipped_sum(theta, x, y, clip_norm=1.0, resolution=64).integers
    model.table.add_(1.0)
    assert torch.equal(
        steps.clipped_sum(theta, x, y, clip_norm=1.0, resolution=64).integers, before
    )


def test_what_runs_on_records_is_checked_again_now_and_then() -> None:
    """Kernels that begin to answer otherwise end a run at the next check."""
    model = module_zoo.Constants()
    steps, theta = PerRecordGradients(model), flat_parameters(model)
    x, y = torch.randn(5, 8), torch.zeros(5, dtype=torch.long)
    for _ in range(4):
        steps.clipped_sum(theta, x, y, clip_norm=1.0, resolution=64)
    (chunks,) = steps._path._recorded.values()
    recorded, honest = chunks._recorded, chunks._recorded.operators
    recorded.operators = lambda *arguments: {
        name: 2.0 * part for name, part in honest(*arguments).items()
    }
    for _ in range(3):
        steps.clipped_sum(theta, x, y, clip_norm=1.0, resolution=64)
    # at the eighth batch
    with pytest.raises(GuaranteeError, match="other gradients than at the start"):
        steps.clipped_sum(theta, x, y, clip_norm=1.0, resolution=64)


def test_a_record_that_no_table_holds_contributes_nothing_and_stops_nobody() -> None:
    model = module_zoo.PURE["a bag of words"].make()
    steps, theta = (
        PerRecordGradients(model, vocabulary=module_zoo.VOCABULARY),
        flat_parameters(model),
    )
    x, y = module_zoo.PURE["a bag of words"].records(70), torch.zeros(70, dtype=torch.long)
    whole = steps.clipped_sum(theta, x[1:], y[1:], clip_norm=0.5, resolution=RESOLUTION)
    x[0, 0] = 10**6
    attacked = steps.clipped_sum(theta, x, y, clip_norm=0.5, resolution=RESOLUTION)
    assert torch.equal(whole.integers, attacked.integers)
    assert (whole.nonfinite, attacked.nonfinite) == (0, 1)


def test_tokens_that_the_model_cannot_look_up_are_refused_before_training(tmp_path: Path) -> None:
    x = np.full((30, 6), module_zoo.VOCABULARY)
    data = from_arrays([(x, np.arange(30) % 3)] * 2)
    with pytest.raises(DataError, match="cannot look up") as refusal:
        train(
            TrainingPlan.from_toml(PLAN),
            model=module_zoo.TokenLSTM(),
            silos=data,
            options=RunOptions(root=tmp_path, ledger=False),
        )
    assert str(module_zoo.VOCABULARY) not in str(refusal.value).split("which")[1]
