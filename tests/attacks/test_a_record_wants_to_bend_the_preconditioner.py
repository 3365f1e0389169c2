"""A record wants to show in the map that stands in front of clipping: clipping bounds what a record
adds to a sum, but not what it does to the map of all others.

The map of a round is made of the plan, the released model and made-up inputs. The control makes it
of the silo's own records, as one would without privacy: one record then moves a sum far beyond the
sensitivity that is accounted.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sumus.gradients import (
    KroneckerMap,
    PerRecordGradients,
    PublicMap,
    SecondMoments,
    blocks_of,
)
from sumus.plan import TrainingPlan
from sumus.training import Preconditioner, flat_parameters

_RESOLUTION = 1 << 16
_PLAN = TrainingPlan.from_toml(
    """
[privacy]
epsilon = 1.0
[federation]
silos = 2
rounds = 1
[training]
algorithm = "single-step"
model = "softmax"
features = "centred"
preconditioner = "kronecker"
damping = 0.1
[data]
name = "digits"
"""
)


def _model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def _public(model: nn.Module) -> PublicMap:
    found = Preconditioner.of(_PLAN, model, (1, 8, 8))
    assert found is not None
    return found.at(flat_parameters(model).double().numpy())


def _of_records(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> PublicMap:
    """What one would do without privacy: the map of the silo's own records."""
    blocks = blocks_of(model)
    moments = SecondMoments(blocks)
    for start, part in PerRecordGradients(model).parts_of(flat_parameters(model), x, y):
        moments.add(start, part)
    return KroneckerMap.of_moments(blocks, moments.sides(), damping=0.1)


def _moved_by(size: float, mapped: tuple[PublicMap, PublicMap], model: nn.Module) -> float:
    """How far one record of this size moves the integers of a sum, in sensitivities."""
    generator = torch.Generator().manual_seed(7)
    x = torch.rand(128, 1, 8, 8, generator=generator)
    x[-1] *= size
    y = torch.zeros(128, dtype=torch.int64)
    sums = [
        PerRecordGradients(model)
        .clipped_sum(
            flat_parameters(model),
            x[:end],
            y[:end],
            clip_norm=0.1,
            resolution=_RESOLUTION,
            mapped=each,
        )
        .integers.double()
        for end, each in zip((127, 128), mapped, strict=True)
    ]
    return float((sums[1] - sums[0]).norm()) / _RESOLUTION


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6])
def test_one_record_moves_a_sum_by_one_clip_norm_at_most(size: float) -> None:
    model = _model()
    mapped = _public(model)
    assert _moved_by(size, (mapped, mapped), model) <= 1.0


def test_control_a_map_of_the_records_is_bent_by_one_of_them() -> None:
    model = _model()
    generator = torch.Generator().manual_seed(7)
    x = torch.rand(128, 1, 8, 8, generator=generator)
    y = torch.zeros(128, dtype=torch.int64)
    before = _of_records(model, x, y)
    x[-1] *= 1e3
    assert _moved_by(1e3, (before, _of_records(model, x, y)), model) > 2.0


def test_the_map_is_the_same_whatever_a_silo_holds() -> None:
    """It is made before a record is touched, of numbers that everybody has."""
    model = _model()
    vector = torch.arange(650.0).double().numpy()
    maps = [_public(model).transpose(vector), _public(_model()).transpose(vector)]
    Preconditioner.forget()
    maps.append(_public(model).transpose(vector))
    assert all((each == maps[0]).all() for each in maps)
