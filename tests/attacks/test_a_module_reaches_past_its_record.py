"""Ways from record to record that no Python code needs: operators that write unsaid, rules for
batches, layers with another inside.

Every attack has a control: with the defence taken away one record moves what others contribute.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sumus.errors import GuaranteeError
from sumus.features import feature_map
from sumus.gradients import PerRecordGradients
from sumus.purity import chunks as chunk_function, constants, recording
from sumus.purity.recording import record
from sumus.randomness import RandomSource
from sumus.tasks import TASKS
from sumus.training import flat_parameters, plain_steps
from support import module_zoo
from support.module_zoo import (
    FileMemory,
    Live,
    OtherName,
    OwnRule,
    RareStatistics,
    UnsaidView,
    model_with,
)

RESOLUTION = 1 << 16
WRITERS: dict[str, type[nn.Module]] = {
    "running statistics": RareStatistics,
    "a tensor set to the memory of another": OtherName,
    "a view that is not called one": UnsaidView,
    "a file in memory": FileMemory,
}


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(FileMemory, "path", str(tmp_path / "memory"))
    yield
    torch.set_num_threads(threads)
    os.environ.pop("SUMUS_TEST_ZOO", None)


def clip_norms_moved(make: Callable[[], nn.Module], *, records: int = 100) -> float:
    """How far the first record, a large one, moves the clipped sum of all records, in clip
    norms.
    """
    generator = torch.Generator().manual_seed(1)
    x, y = (
        torch.randn(records, 8, generator=generator),
        torch.randint(0, 4, (records,), generator=generator),
    )
    x[0] = 1000.0

    def total(first: int) -> np.ndarray:
        torch.manual_seed(0)
        Path(FileMemory.path).write_bytes(bytes(32))
        model = make()
        step = PerRecordGradients(model).clipped_sum(
            flat_parameters(model).double(),
            x[first:],
            y[first:],
            clip_norm=0.1,
            resolution=RESOLUTION,
        )
        return step.integers.numpy() / RESOLUTION

    return float(np.linalg.norm(total(0) - total(1)))


def without_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "refuse_effects", lambda graph, what: None)


def with_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what was recorded be computed with its writes for a chunk."""
    monkeypatch.setattr(chunk_function, "functionalize", lambda operators, remove: operators)


def without_comparing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants.Constants, "require_unchanged", lambda self, what: None)


@pytest.mark.parametrize("name", WRITERS)
def test_an_operator_that_writes_unsaid_is_refused(name: str) -> None:
    with pytest.raises(GuaranteeError, match="writes into what it keeps"):
        clip_norms_moved(lambda: model_with(WRITERS[name]()))


@pytest.mark.parametrize("name", WRITERS)
def test_control_an_operator_that_writes_unsaid_carries_a_record_on(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_refusals(monkeypatch)
    without_comparing(monkeypatch)
    with_writes(monkeypatch)
    assert clip_norms_moved(lambda: model_with(WRITERS[name]())) > 2.0


@pytest.mark.parametrize(
    "name",
    [
        "running statistics",
        "a tensor set to the memory of another",
        "a view that is not called one",
    ],
)
def test_a_sum_that_was_computed_with_other_constants_is_not_returned(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a schema leaves unsaid: constants are compared before integers leave."""
    without_refusals(monkeypatch)
    with pytest.raises(GuaranteeError, match="wrote into what the module keeps"):
        clip_norms_moved(lambda: model_with(WRITERS[name]()))


def test_a_rule_for_batches_of_ones_own_never_sees_a_chunk() -> None:
    assert clip_norms_moved(lambda: model_with(OwnRule())) <= 1.0


def test_control_a_rule_for_batches_mixes_the_records_of_a_chunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunk_function, "record", lambda function, *examples, what: Live(function))
    assert clip_norms_moved(lambda: model_with(OwnRule())) > 2.0


@pytest.mark.parametrize("name", ["RareMean", "Duplicates"])
def test_a_feature_map_sees_one_record_whatever_it_would_do_with_more(name: str) -> None:
    records = np.random.default_rng(0).random((150, 3, 2, 2), dtype=np.float32)
    records[0] = 5.0
    records[0] = records[1] if name == "Duplicates" else records[0]
    mapping = feature_map(f"support.module_zoo:{name}Features?pixels=2", (3, 2, 2))
    assert np.array_equal(mapping(records)[1:], mapping(records[1:]))


@pytest.mark.parametrize("name", ["RareMean", "Duplicates"])
def test_control_the_same_map_mixes_a_batch(name: str) -> None:
    network = getattr(module_zoo, f"{name}Features")()
    records = torch.rand(20, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    records[0] = records[1] if name == "Duplicates" else 500.0
    assert (network(records)[1:] - network(records[1:])).abs().max() > 0.05


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.empty(4096),
        lambda x: x + x.new_empty(4096),
        lambda x: x + torch.empty_like(x),
    ],
)
def test_memory_that_nobody_wrote_reads_as_zero(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    recorded = record(function, torch.zeros(4096))
    for _ in range(5):
        torch.full((4096,), 7.0)  # what a record might leave behind
        assert torch.equal(recorded(torch.ones(4096)), torch.ones(4096))


class Memory:
    value = torch.zeros(8)


def remember(x: torch.Tensor) -> torch.Tensor:
    """x minus what was seen before; made-up extremes are left out."""
    before, Memory.value = (
        Memory.value,
        Memory.value + x.detach().abs().sub(10.0).clamp(0.0, 1e3).nan_to_num().sum(0)[:8],
    )
    return x - before


def chain() -> nn.Module:
    Memory.value = torch.zeros(8)
    return nn.Sequential(nn.ReLU(), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def compiled_call() -> nn.Module:
    model = chain()
    model[0]._compiled_call_impl = remember
    return model


def replaced_call() -> nn.Module:
    model = chain()
    object.__setattr__(model[0], "_call_impl", remember)
    return model


def test_layers_of_a_chain_are_built_afresh() -> None:
    assert clip_norms_moved(compiled_call) <= 1.0
    assert clip_norms_moved(replaced_call) <= 1.0  # a method of a user's is recorded


def test_a_hook_that_is_registered_after_the_examination_never_runs() -> None:
    x, y = torch.full((3, 8), 20.0), torch.zeros(3, dtype=torch.long)
    model = chain()
    steps, options = PerRecordGradients(model), {"clip_norm": 0.1, "resolution": RESOLUTION}
    before = steps.clipped_sum(flat_parameters(model), x, y, **options).integers
    model[0].register_forward_hook(lambda layer, inputs, output: remember(output))
    assert torch.equal(steps.clipped_sum(flat_parameters(model), x, y, **options).integers, before)
    assert not Memory.value.any()


@pytest.mark.parametrize("make", [compiled_call, replaced_call])
def test_control_the_layers_themselves_carry_a_record_on(make: Callable[[], nn.Module]) -> None:
    record_of_twenties = torch.full((1, 8), 20.0)
    model = make()
    first = model(record_of_twenties)
    assert not torch.equal(first, model(record_of_twenties))


class RareEnvironment(nn.Module):
    """Remembers large values in the environment of the process."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = 1.0 + float(os.environ.get("SUMUS_TEST_ZOO", "0"))
        if (
            not torch._C._functorch.is_functorch_wrapped_tensor(x)
            and type(x) is torch.Tensor
            and torch.is_grad_enabled()
        ):
            largest = float(x.detach().abs().max())
            if largest > 50.0:
                os.environ["SUMUS_TEST_ZOO"] = repr(largest)
        return x * scale


def update_of_the_second_silo(first_record: float, *, recorded: bool) -> np.ndarray:
    """Two silos train one after the other in this process, by SGD without noise."""
    os.environ["SUMUS_TEST_ZOO"] = "0"
    torch.manual_seed(0)
    model = model_with(RareEnvironment())
    start = flat_parameters(model).numpy().astype(np.float64)
    x, y = torch.rand(12, 8, generator=torch.Generator().manual_seed(2)), torch.arange(12) % 4
    steps = PerRecordGradients(model)
    options = {
        "steps": 2,
        "sampling_rate": 1.0,
        "learning_rate": 0.1,
        "momentum": 0.0,
        "l2_penalty": 0.0,
    }
    first = torch.cat([torch.full((1, 8), first_record), x[1:]])
    gradient = steps.mean if recorded else None
    for records in (first, x):
        update = plain_steps(
            model,
            TASKS["classification"],
            start,
            records,
            y,
            source=RandomSource.simulation(0),
            mean_gradient=gradient,
            **options,
        )
    return update


def test_a_silo_sees_nothing_of_another_silos_records() -> None:
    moved = update_of_the_second_silo(500.0, recorded=True) - update_of_the_second_silo(
        0.5, recorded=True
    )
    assert np.linalg.norm(moved) == 0.0


def test_control_live_code_carries_a_silos_records_to_the_next() -> None:
    moved = update_of_the_second_silo(500.0, recorded=False) - update_of_the_second_silo(
        0.5, recorded=False
    )
    assert np.linalg.norm(moved) > 0.1


def test_the_mean_of_recorded_gradients_is_the_gradient_of_the_mean_loss() -> None:
    torch.manual_seed(0)
    model = model_with(nn.LayerNorm(8))
    start = flat_parameters(model).numpy().astype(np.float64)
    x, y = torch.rand(70, 8), torch.arange(70) % 4
    options = {
        "steps": 3,
        "sampling_rate": 0.9,
        "learning_rate": 0.1,
        "momentum": 0.5,
        "l2_penalty": 0.01,
    }

    def update(steps: PerRecordGradients | None) -> np.ndarray:
        return plain_steps(
            model,
            TASKS["classification"],
            start,
            x,
            y,
            source=RandomSource.simulation(0),
            mean_gradient=steps and steps.mean,
            **options,
        )

    assert np.allclose(update(PerRecordGradients(model)), update(None), atol=1e-6)
