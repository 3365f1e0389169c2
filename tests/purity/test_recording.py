"""Only chains of torch's own operators without randomness and side effects are recorded, and they
repeat the function bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from sumus.errors import GuaranteeError
from sumus.gradients import PerRecordGradients
from sumus.guarantee import calibrated
from sumus.plan import TrainingPlan
from sumus.purity import chunk_function
from sumus.purity.constants import Constants
from sumus.purity.recording import record
from sumus.randomness import RandomSource
from sumus.training import flat_parameters, local_updater, prepare
from support.module_zoo import own, shifted
from support.small_data import small_data

CONSTANT = torch.arange(4.0)


def test_a_recording_repeats_the_function_bit_for_bit() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        inner = (x * y).clone()
        inner[1:].mul_(2.0)  # writes into a value of its own
        return torch.softmax(inner + CONSTANT, 0)

    recorded = record(function, torch.zeros(4), torch.zeros(4))
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        x, y = torch.randn(4, generator=generator), torch.randn(4, generator=generator)
        assert torch.equal(recorded(x, y), function(x, y))


def test_a_recording_holds_no_python() -> None:
    seen = []
    recorded = record(lambda x: (seen.append(1), x + len(seen))[1], torch.zeros(2))
    assert len(seen) == 1
    assert recorded(torch.zeros(2)).tolist() == recorded(torch.zeros(2)).tolist() == [1.0, 1.0]
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x + torch.rand(4), "random numbers"),
        (lambda x: torch.bernoulli(torch.sigmoid(x)), "random numbers"),
        (lambda x: nn.functional.dropout(x, 0.5), "random numbers"),
        (lambda x: x.add_(1.0), "writes into what it keeps"),
        (lambda x: x.view(2, 2)[0].mul_(2.0), "writes into what it keeps"),
        (lambda x: CONSTANT.clone() + CONSTANT.add_(x.sum()), "writes into what it keeps"),
        (lambda x: CONSTANT.view(2, 2).T[1].copy_(x[:2]), "writes into what it keeps"),
        (lambda x: CONSTANT.split(2)[1].zero_() + x[:2], "writes into what it keeps"),
        (lambda x: torch.ops.aten._unsafe_view(CONSTANT, [4]).add_(x), "writes into what it keeps"),
        (
            lambda x: torch.ops.aten.unsafe_split(CONSTANT, 2)[1].add_(x[:2]),
            "writes into what it keeps",
        ),
        (lambda x: torch.empty(0).set_(CONSTANT) + x, "writes into what it keeps"),
        (lambda x: torch.zeros(2).resize_(4) + x, "writes into what it keeps"),
        (
            lambda x: nn.functional.batch_norm(
                x.view(2, 2), CONSTANT[:2], CONSTANT[2:], training=True
            ),
            "writes into what it keeps",
        ),
        (shifted, "not an operator of torch's own"),
        (lambda x: x if x.sum() > 0 else -x, "depends on a record's values"),
        (lambda x: x * x.max().item(), "depends on a record's values"),
    ],
)
def test_what_is_no_chain_of_operators_is_refused(
    function: Callable[[torch.Tensor], torch.Tensor], words: str
) -> None:
    before = CONSTANT.clone()
    try:
        with pytest.raises(GuaranteeError, match=words) as refusal:
            record(function, torch.ones(4))
        assert "\n" not in str(refusal.value)
    finally:
        CONSTANT.copy_(before)


def test_a_users_code_sees_no_batch_of_a_whole_silo() -> None:
    lengths = []

    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if len(x) > 8:
            lengths.append(len(x))
        return self.head(torch.sin(x))

    data = small_data()
    model = own(forward, head=nn.Linear(data.shape[0], len(data.labels.names)))
    options = {
        "privacy.unit": "silo", "privacy.epsilon": 20.0, "training.algorithm": "silo", "training.sampling_rate": 1.0,
        "training.dimension": len(flat_parameters(model)), "evaluation.metrics": "none",
    }  # fmt: skip
    facts = data.facts()
    design = calibrated(TrainingPlan().with_overrides(options), facts)
    bench = prepare(design.plan, data, model=model)
    update = local_updater(design, design.silos[0], bench.data.silos[0].train, bench.model)
    assert update(np.array(bench.first_parameters), RandomSource()).records > 8
    assert not lengths


def test_constants_of_a_recording_are_copies() -> None:
    constant = torch.tensor([1.0, float("nan"), -0.0, 4.0])
    recorded = record(lambda x: x * constant, torch.zeros(4))
    before = recorded(torch.ones(4))
    constant.add_(1.0)
    assert np.array_equal(recorded(torch.ones(4)).numpy(), before.numpy(), equal_nan=True)


def test_a_constant_with_code_of_its_own_is_refused() -> None:
    class Talking(torch.Tensor):
        pass

    graph = make_fx(lambda x: x * CONSTANT)(torch.zeros(4))
    graph._tensor_constant0 = torch.ones(4).as_subclass(Talking)
    with pytest.raises(GuaranteeError, match="of type Talking"):
        Constants.of(graph, "model")


def test_a_kernel_that_looks_at_the_largest_matrix_gets_records_one_by_one() -> None:
    """How many terms `matrix_exp` takes for a record depends on the others of its chunk."""
    matrices = torch.randn(8, 3, 3, generator=torch.Generator().manual_seed(0))
    assert chunk_function(lambda weights, x: {"out": torch.matrix_exp(x)}, {}, matrices).chunk == 1
    assert chunk_function(lambda weights, x: {"out": torch.sin(x)}, {}, matrices).chunk == 8
    model = own(
        lambda self, x: self.head(torch.matrix_exp(x.view(-1, 3, 3)).flatten(1)),
        head=nn.Linear(9, 3),
    )
    steps, theta = PerRecordGradients(model), flat_parameters(model)
    generator = torch.Generator().manual_seed(0)
    x, y = (
        torch.randn(40, 9, generator=generator) * torch.logspace(-5, 0, 40)[:, None],
        torch.arange(40) % 3,
    )
    options = {"clip_norm": 1.0, "resolution": 1 << 22}
    total = steps.clipped_sum(theta, x, y, **options).integers
    singles = [
        steps.clipped_sum(theta, x[row : row + 1], y[row : row + 1], **options).integers
        for row in range(40)
    ]
    assert torch.equal(total, sum(singles))


@dataclass
class Focal:
    """A loss with a setting, which is not hashable."""

    gamma: float = 2.0

    def __call__(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        chance = logits.softmax(1).gather(1, y[:, None])
        entropy = nn.functional.cross_entropy(logits, y, reduction="none")
        return ((1 - chance[:, 0]) ** self.gamma * entropy).sum()


def test_a_loss_need_not_be_hashable_and_is_recorded_again_when_it_is_changed() -> None:
    torch.manual_seed(0)
    model, loss = own(lambda self, x: self.head(torch.sin(x)), head=nn.Linear(4, 3)), Focal()
    x, y = torch.randn(20, 4), torch.arange(20) % 3

    def total() -> torch.Tensor:
        steps = PerRecordGradients(model, loss=loss)
        return steps.clipped_sum(
            flat_parameters(model), x, y, clip_norm=100.0, resolution=1 << 16
        ).integers

    before = total()
    assert torch.equal(total(), before)
    loss.gamma = 0.0
    assert not torch.equal(total(), before)
