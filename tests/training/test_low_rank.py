"""Adapters: what is trained, what every silo has alike, and what they fold into."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import sumus
from sumus.errors import PlanError
from sumus.training import LowRank, flat_parameters, load_flat, lora, merged


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleDict({"query": nn.Linear(6, 5), "value": nn.Linear(6, 5, bias=False)})
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head((self.body["query"](x) * self.body["value"](x)).mean(1))


def model() -> nn.Module:
    torch.manual_seed(0)
    return Model()


X = torch.randn(4, 7, 6, generator=torch.Generator().manual_seed(1))


def test_adapters_and_what_is_named_are_trained_and_nothing_else() -> None:
    whole = model()
    adapted = sumus.lora(whole, rank=2, targets=["query", "value"], train=["head"])
    trained = [name for name, part in adapted.named_parameters() if part.requires_grad]
    assert trained == ["body.query.up", "body.value.up", "head.weight", "head.bias"]
    assert all(part.requires_grad for part in whole.parameters())
    assert torch.equal(adapted(X), whole(X))  # B = 0


def test_everybody_draws_the_same_half_and_layers_have_different_ones() -> None:
    first, second, other = (
        lora(model(), rank=2, targets=["query", "value"], seed=seed) for seed in (5, 5, 6)
    )
    halves = [dict(each.named_buffers()) for each in (first, second, other)]
    assert all(torch.equal(halves[0][name], halves[1][name]) for name in halves[0])
    assert not torch.equal(halves[0]["body.query.down"], halves[2]["body.query.down"])
    assert not torch.equal(halves[0]["body.query.down"], halves[0]["body.value.down"])


def test_a_mean_of_updates_is_the_update_of_the_mean() -> None:
    """The sum over silos is exact in B: the folded weights of the mean are the mean of the folded
    weights.
    """
    updates = [
        torch.randn(20, generator=torch.Generator().manual_seed(seed)).double() for seed in (1, 2)
    ]

    def folded(update: torch.Tensor) -> torch.Tensor:
        adapted = lora(model().double(), rank=2, targets=["query", "value"])
        load_flat(adapted, update)
        return merged(adapted).get_parameter("body.query.weight")

    mean = folded((updates[0] + updates[1]) / 2)
    assert torch.allclose(mean, (folded(updates[0]) + folded(updates[1])) / 2, atol=1e-12)
    assert not torch.allclose(mean, model().double().get_parameter("body.query.weight"))


def test_adapters_fold_into_the_layers_that_the_user_knows() -> None:
    adapted = lora(model(), rank=2, targets=["query"], scale=0.5)
    load_flat(adapted, torch.ones(len(flat_parameters(adapted))))
    folded = merged(adapted)
    assert not any(isinstance(part, LowRank) for part in folded.modules())
    assert set(folded.state_dict()) == set(model().state_dict())
    assert torch.allclose(folded(X), adapted(X), atol=1e-5)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"rank": 2, "targets": ["querry"]}, r"targets must name linear layers.*querry"),
        ({"rank": 2, "targets": []}, "targets must name linear layers"),
        ({"rank": 6, "targets": ["query"]}, "rank must lie in 1 … 5 for body.query, got 6"),
        ({"rank": 0, "targets": ["query"]}, "rank must lie in 1 … 5"),
        ({"rank": 1, "targets": ["out_proj"]}, "must not be a part of nn.MultiheadAttention"),
        ({"rank": 1, "targets": ["query"], "train": ["hea"]}, "train must be the beginning"),
    ],
)
def test_what_cannot_be_adapted_is_refused_in_one_line(
    asked: dict[str, object], words: str
) -> None:
    with pytest.raises(PlanError, match=words) as refusal:
        lora(model(), **asked)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)
