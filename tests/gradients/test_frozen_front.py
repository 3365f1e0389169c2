"""Layers in front of all trained ones: the same outputs and Jacobians as with them, each record by
itself.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from sumus.gradients import Tangents, behind, frozen_front, split_at_training
from sumus.purity import InputKind
from sumus.tasks import TASKS
from sumus.training.models import flat_parameters


def _network(trained: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = nn.Sequential(
            nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh()),
            nn.Conv2d(3, 2, 2),
            nn.Flatten(),
            nn.Linear(18, 5),
            nn.Tanh(),
            nn.Linear(5, 3),
        )
    for name, each in model.named_parameters():
        each.requires_grad_(name.partition(".")[0] in trained)
    return model


def _records(count: int = 70) -> torch.Tensor:
    return torch.randn(count, 1, 6, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("trained", "layers"), [("35", 4), ("15", 2), ("0135", 0)])
def test_tangents_behind_the_front_are_those_of_the_whole(trained: str, layers: int) -> None:
    model, x = _network(trained), _records(20)
    front, back = split_at_training(model)
    assert len(front) == layers
    flat = flat_parameters(model).double().numpy()
    found = []
    for part, rows in (
        (model, x),
        (back, behind(front, x, InputKind.of(model)) if layers else x),
    ):
        kind = InputKind.of(part)
        tangents = Tangents(part, TASKS["classification"], kind, kind.form(rows))
        move, one = np.random.default_rng(0).normal(size=tangents.dimension), slice(0, 1)
        stored = [tangents.of(1.5 * flat, row[None]) for row in rows]
        answers = [sum(each.apply(move, one) for each in parts) for _, parts in stored]
        found.append((np.stack([outputs for outputs, _ in stored]), np.stack(answers)))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=0, atol=1e-4)


def test_a_record_has_the_same_bits_in_any_company() -> None:
    """Whatever shares its chunk, and whether it comes first or last."""
    model, x = _network("5"), _records()
    front, _ = split_at_training(model)
    kind = InputKind.of(front)
    whole = behind(front, x, kind)
    for places in (torch.arange(69, -1, -1), torch.tensor([7]), torch.arange(3, 70, 5)):
        assert torch.equal(behind(front, x[places], kind), whole[places])
    loud = x.clone()
    loud[::2] = torch.nan
    assert torch.equal(behind(front, loud, kind)[1::2], whole[1::2])
    assert behind(front, x[:0], kind).shape == (0, 5)


def test_where_bits_depend_on_company_records_are_taken_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []
    monkeypatch.setattr(frozen_front, "is_isolated", lambda *given, **more: False)
    front, _ = split_at_training(_network("5"))
    front.register_forward_pre_hook(lambda module, given: sizes.append(len(given[0])))
    behind(front, _records(3), InputKind.of(front))
    assert sizes[-3:] == [1, 1, 1]


def test_a_model_that_changes_is_split_again() -> None:
    model = _network("35")
    first = split_at_training(model)
    assert split_at_training(model) is first
    model[1].weight.requires_grad_(True)
    assert len(split_at_training(model).front) == 2
    with torch.no_grad():
        model[0][0].weight.mul_(2.0)
    front = split_at_training(model).front
    assert torch.equal(front[0].weight, model[0][0].weight)
