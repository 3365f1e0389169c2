"""Only chains of torch's own operators without randomness and side effects are recorded, and they repeat the function bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from conftest_data import small_data
from module_zoo import own, shifted
from sumus.errors import GuaranteeError
from sumus.guarantee import calibrate_design
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.resolve import resolve
from sumus.training.local_update import local_updater
from sumus.training.models import flat_parameters
from sumus.training.recording import record
from sumus.training.workbench import prepare

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
        (shifted, "not an operator of torch's own"),
        (lambda x: x if x.sum() > 0 else -x, "depends on a record's values"),
        (lambda x: x * x.max().item(), "depends on a record's values"),
    ],
)
def test_what_is_no_chain_of_operators_is_refused(function: Callable[[torch.Tensor], torch.Tensor], words: str) -> None:
    before = CONSTANT.clone()
    try:
        with pytest.raises(GuaranteeError, match=words) as refusal:
            record(function, torch.ones(4))
        assert "\n" not in str(refusal.value)
    finally:
        CONSTANT.copy_(before)


def test_state_that_shows_in_large_batches_only_ends_the_round_of_whole_silos() -> None:
    """No recording is made of batches that differ in size, so what the module holds is compared after every silo."""

    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if len(x) > 8:
            self.seen = getattr(self, "seen", 0) + len(x)
        return self.head(torch.sin(x))

    data = small_data()
    model = own(forward, head=nn.Linear(data.shape[0], data.classes))
    options = {
        "privacy.unit": "silo", "privacy.epsilon": 20.0, "training.algorithm": "silo", "training.sampling_rate": 1.0,
        "training.dimension": len(flat_parameters(model)), "evaluation.metrics": "none",
    }  # fmt: skip
    facts = data.facts()
    design = calibrate_design(resolve(TrainingPlan().with_overrides(options), facts), facts.silo_names)
    bench = prepare(design.plan, data, model=model)
    update = local_updater(design, design.silos[0], bench.data.silos[0].train, bench.model)
    with pytest.raises(GuaranteeError, match="changes seen"):
        update(np.array(bench.first_parameters), RandomSource())
