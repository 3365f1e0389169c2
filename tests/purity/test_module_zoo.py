"""Every module of the zoo is accepted or refused for the right reason; the accepted ones treat
every record apart, bit for bit.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from oracles.naive_gradients import clipped_on_grid
from sumus.errors import DataError, GuaranteeError
from sumus.gradients import PerRecordGradients
from sumus.purity import own_copy
from sumus.training import flat_parameters
from support.module_zoo import IMPURE, PURE, Pure, model_with

pytestmark = pytest.mark.long

RESOLUTION, CLIP_NORM, RECORDS = 1 << 16, 0.3, 66  # a chunk of 64 and one that is filled up


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def autograd_rows(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """Gradients of the trainable parameters, record by record, by plain backward passes through the
    module itself in double precision.
    """
    double = copy.deepcopy(model).double()
    trainable = [parameter for parameter in double.parameters() if parameter.requires_grad]
    rows = []
    for record, label in zip(x, y, strict=True):
        with torch.compiler.set_stance("force_eager"):
            logits = double(record[None].double() if record.is_floating_point() else record[None])
        if logits.shape[1] == 1:
            loss = functional.binary_cross_entropy_with_logits(logits[0], label[None].double())
        else:
            loss = functional.cross_entropy(logits, label[None])
        rows.append(
            torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, trainable)]).numpy()
        )
    return np.array(rows)


@pytest.mark.parametrize("name", PURE)
def test_a_pure_module_is_accepted_and_its_sum_is_the_sum_of_single_records(name: str) -> None:
    entry: Pure = PURE[name]
    torch.manual_seed(1)
    model = own_copy(entry.make(), logits=entry.logits)
    gradients, theta = PerRecordGradients(model), flat_parameters(model)
    x, y = entry.records(RECORDS), torch.arange(RECORDS) % (2 if name == "one logit" else 3)
    options = {"clip_norm": CLIP_NORM, "resolution": RESOLUTION}
    before = x.clone()
    total = gradients.clipped_sum(theta, x, y, **options)
    singles = [
        gradients.clipped_sum(theta, x[row : row + 1], y[row : row + 1], **options).integers
        for row in range(RECORDS)
    ]
    assert torch.equal(total.integers, sum(singles))
    assert total.nonfinite == 0
    assert torch.equal(x, before), "records were written into"
    exact = clipped_on_grid(
        autograd_rows(model, x, y), clip_norm=CLIP_NORM, resolution=RESOLUTION
    ).sum(0)
    assert np.abs(total.integers.numpy() - exact).max() <= RECORDS * (1 + 1e-4 * RESOLUTION)
    assert np.abs(exact).max() > RESOLUTION / 100, "nothing was compared"


@pytest.mark.parametrize("name", IMPURE)
def test_an_impure_module_is_refused_for_the_right_reason(name: str) -> None:
    make, words = IMPURE[name]
    torch.manual_seed(1)
    x, y = torch.rand(5, 8), torch.zeros(5, dtype=torch.long)
    model = model_with(make())

    def take_a_step() -> None:
        PerRecordGradients(model).clipped_sum(
            flat_parameters(model), x, y, clip_norm=1.0, resolution=64
        )

    with pytest.raises(GuaranteeError, match=words) as refusal:
        take_a_step()
    assert "\n" not in str(refusal.value)
    assert refusal.value.exit_code == 3


def test_the_zoo_is_large_enough() -> None:
    assert len(PURE) >= 25
    assert len(IMPURE) >= 25


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Sequential(nn.Linear(8, 3)).half(), "float32 or all float64"),
        (nn.Sequential(nn.Linear(8, 8).double(), nn.Linear(8, 3)), "float32 or all float64"),
        (nn.Sequential(nn.LazyLinear(3)), "has no size yet"),
        (nn.Sequential(nn.Linear(8, 3, device="meta")), "lies on meta"),
    ],
)
def test_a_module_that_cannot_be_trained_is_refused_in_one_line(
    model: nn.Module, words: str
) -> None:
    with pytest.raises(DataError, match=words) as refusal:
        PerRecordGradients(own_copy(model))
    assert "\n" not in str(refusal.value)
