"""Gradients on another device. None is here: the processor under another name stands for it, with
torch's own operators in the place of compiled loops, as they run where those cannot read.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn

from sumus.errors import GuaranteeError, PlanError
from sumus.gradients import PerRecordGradients, convolutions, devices, layered, parts as made_parts
from sumus.gradients.parts import Outer, Positions, Rows
from sumus.plan import TrainingPlan
from sumus.purity import Form
from sumus.runs import RunOptions, train
from sumus.training import arithmetic, flat_parameters, require_same

ELSEWHERE = torch.device("cpu", 0)  # torch tells it from "cpu", and computes in the same place
CHAINS = {
    "network": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), (6,)),
    "pictures": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 3, 2, stride=2),
            nn.ReLU(), nn.Flatten(), nn.Linear(12, 3),
        ),
        (2, 8, 8),
    ),
}  # fmt: skip


@pytest.fixture
def crossed(monkeypatch) -> list[torch.device]:
    """What says "cuda" computes under the other name; the list has where parameters went."""
    went: list[torch.device] = []
    bind = devices.DevicePath.bind

    def watched(self, parameters, mapped=None):
        went.append(self._device)
        return bind(self, parameters, mapped)

    named = {"cpu": devices.PROCESSOR, "cuda": ELSEWHERE}
    monkeypatch.setattr("sumus.gradients.per_record.require_device", named.__getitem__)
    monkeypatch.setattr(devices.DevicePath, "bind", watched)
    for module in (convolutions, layered, made_parts):
        monkeypatch.setattr(module, "by_own_loops", lambda tensor: False)
    return went


def made(chain: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    build, shape = CHAINS[chain]
    torch.manual_seed(3)
    return build(), torch.randn(70, *shape), torch.randint(0, 3, (70,))


def summed(model, x, y, *, device: str = "cpu", rounding: str = "record") -> torch.Tensor:
    gradients = PerRecordGradients(model, device=device)
    return gradients.clipped_sum(
        flat_parameters(model), x, y, clip_norm=1.0, resolution=1 << 16, rounding=rounding
    ).integers


@pytest.mark.parametrize("rounding", ["record", "sum"])
@pytest.mark.parametrize("chain", CHAINS)
def test_a_device_gives_the_integers_of_the_processor(chain, rounding, request) -> None:
    model, x, y = made(chain)
    here = summed(model, x, y, rounding=rounding)
    went = request.getfixturevalue("crossed")
    there = summed(model, x, y, device="cuda", rounding=rounding)
    assert set(went) == {ELSEWHERE}
    assert here.abs().max() > 1000
    # sums over a window are in another order: the last bits of a record's factors, so that each of
    # 70 records may be truncated to the next integer
    assert (here - there).abs().max() <= (0 if chain == "network" else 70)


class Far(torch.Tensor):
    """A tensor on a device, until it is brought to the processor."""

    def to(self, device):
        assert device == devices.PROCESSOR
        return self.as_subclass(torch.Tensor)


@pytest.mark.parametrize("kind", ["outer", "rows", "positions"])
def test_whatever_a_device_returns_is_brought_back_before_it_is_clipped(kind) -> None:
    def far(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).as_subclass(Far)

    part = {
        "outer": lambda: Outer(far(4, 3), far(4, 2), True),
        "rows": lambda: Rows(far(4, 5)),
        "positions": lambda: Positions(far(4, 6, 3), far(4, 6, 2), True),
    }[kind]()
    back = devices._on_the_processor(part)
    assert type(back) is type(part)
    assert [type(tensor) for tensor in back.tensors()] == [torch.Tensor] * len(part.tensors())


@pytest.mark.parametrize("mixes", [True, False])
def test_a_device_whose_kernels_mix_records_gets_one_at_a_time(mixes, crossed, monkeypatch) -> None:
    """A device that lets the last bits of a record depend on its company would break the
    sensitivity; one that does not keeps its chunks.
    """
    parts = devices.DevicePath._parts

    def mixing(self, bound, x, y, *, ghost):
        found = parts(self, bound, x, y, ghost=ghost)
        if not mixes:
            return found
        return [
            dataclasses.replace(part, deltas=part.deltas + 1e-7 * part.deltas.mean(0))
            for part in found
        ]

    monkeypatch.setattr(devices.DevicePath, "_parts", mixing)
    gradients = PerRecordGradients(made("network")[0], device="cuda")
    chunk, _ = gradients._examined.chunk_for(Form((6,)))
    assert (chunk == 1) == mixes


def test_a_device_that_does_not_repeat_itself_is_refused(crossed, monkeypatch) -> None:
    parts, calls = devices.DevicePath._parts, [0]

    def drifting(self, bound, x, y, *, ghost):
        calls[0] += 1
        found = parts(self, bound, x, y, ghost=ghost)
        return [dataclasses.replace(part, deltas=part.deltas + 1e-6 * calls[0]) for part in found]

    monkeypatch.setattr(devices.DevicePath, "_parts", drifting)
    model, x, y = made("network")
    with pytest.raises(GuaranteeError, match="other gradients after another one"):
        summed(model, x, y, device="cuda")


def test_what_was_measured_on_the_processor_does_not_count_for_a_device(crossed) -> None:
    model, x, y = made("network")
    summed(model, x, y)
    crossed.clear()
    summed(model, x, y, device="cuda")
    assert len(crossed) > 1  # examined there, and not only used


def test_a_model_that_is_no_chain_of_known_layers_stays_on_the_processor(crossed) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    with pytest.raises(PlanError, match=r"training\.device .*chain of Linear and Conv2d"):
        PerRecordGradients(model, device="cuda")


PLAN = """
[privacy]
epsilon = 4.0
delta = 1e-4
[federation]
silos = 3
rounds = 1
[training]
algorithm = "single-step"
sampling_rate = 0.1
device = "{device}"
[data]
name = "digits"
"""


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused_before_anything_is_written(
    device, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    plan = TrainingPlan.from_toml(PLAN.format(device=device))
    with pytest.raises(PlanError, match=rf"training\.device .*sees no '{device}'.*Use \"cpu\""):
        train(plan, options=RunOptions(root=tmp_path / "runs", state=tmp_path / "state"))
    assert not list(tmp_path.rglob("*.jsonl"))


def test_only_algorithms_with_gradients_of_records_know_a_device() -> None:
    text = (
        PLAN.format(device="cuda")
        .replace("single-step", "convex-pass")
        .replace("sampling_rate = 0.1\n", "")
    )
    with pytest.raises(PlanError, match=r"training\.device"):
        TrainingPlan.from_toml(text)


def test_a_run_goes_on_only_on_the_device_that_it_began_with(tmp_path: Path) -> None:
    begun = arithmetic()
    require_same(begun, tmp_path)
    with pytest.raises(GuaranteeError, match="began with device cuda"):
        require_same(begun | {"device": "cuda 12.4, A100, cuDNN 9, TF32 False/True"}, tmp_path)
