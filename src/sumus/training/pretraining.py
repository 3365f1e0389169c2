"""A public start: the first model of a run, taught by made-up pictures before any record is seen.

    layers in front      distilled: a linear readout of what they give must tell the strongest
                         components of the public Gabor features of the same picture
    last two layers      h = tanh(0·x), z = [I 0]·h: outputs begin at zero and depend on the features
                         through the first ten units alone, so that training begins as a convex one;
                         under `tangent-pass`, which linearises anyway, as the plan's seed draws them:
                         all units take part

The model is a function of its architecture and of a public seed; a run that starts from it releases
nothing more and pays nothing more than one that starts from random numbers.

Reference: distillation, Hinton, Vinyals and Dean 2015 (arXiv:1503.02531).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Final, cast

import torch
from torch import nn
from torch.nn import functional

from sumus.errors import PlanError
from sumus.features import feature_map, made_up_pictures
from sumus.gradients import one_torch_thread
from sumus.plan import TrainingPlan
from sumus.purity import is_chain
from sumus.training.models import flat_parameters

__all__ = ["public_start"]

_COMPONENTS: Final = 400
_POWER: Final = 0.5  # of a component's spread that its target keeps
_RATE: Final = 3e-3


def public_start(
    plan: TrainingPlan,
    model: nn.Module,
    shape: Sequence[int],
    *,
    seed: int = 0,
    pictures: int = 10_000,
    passes: int = 20,
) -> torch.Tensor:
    """The flat parameters of the model after its public lessons.

    Guarantee: no record, and nothing that was computed from one, is within reach; the same
        arguments give the same numbers on the same machine, on however many threads.

    Args:
        plan: names the features.
        model: a chain of layers that ends with two linear ones.
        shape: of a record before the plan's features, (channels, height, width).
        seed: public.
        pictures: made up.
        passes: over them.
    """
    features = plan.training.features
    if len(shape) != 3 or features not in ("none", "centred"):
        rule = 'must be "none" or "centred" on pictures for a public start'
        raise PlanError("training.features", features, rule, "Train without a public start.")
    layers = list(model) if type(model) is nn.Sequential and is_chain(model) else []
    trained = [place for place, each in enumerate(layers) if list(each.parameters())]
    ends = [layers[place] for place in trained[-2:]]
    if len(ends) < 2 or any(type(each) is not nn.Linear for each in ends):
        rule = "must be a chain of layers that ends with two linear ones for a public start"
        raise PlanError("training.model", plan.training.model, rule, 'For example "cnn" or "mlp".')
    taught = copy.deepcopy(model)
    for parameter in taught.parameters():
        parameter.requires_grad_(True)
    body = list(taught)[: trained[-2]]  # type: ignore[call-overload]
    with torch.random.fork_rng(devices=[]), one_torch_thread():  # small batches: threads would wait
        torch.manual_seed(seed)
        if trained[:-2]:
            drawn = made_up_pictures(pictures, shape, seed=seed + 1)
            lessons = _lessons(drawn, shape)
            _teach(
                nn.Sequential(*body),
                2.0 * drawn - 1.0 if features == "centred" else drawn,
                lessons,
                passes=passes,
            )
    if plan.training.algorithm != "tangent-pass":
        chain = cast(nn.Sequential, taught)
        begin_linear(*(cast(nn.Linear, chain[place]) for place in trained[-2:]))
    return flat_parameters(taught)


def begin_linear(first: nn.Linear, last: nn.Linear) -> None:
    """Two layers that begin as a linear model at zero: the second passes on the first units."""
    with torch.no_grad():
        for parameter in (*first.parameters(), *last.parameters()):
            parameter.zero_()
        last.weight.copy_(torch.eye(*last.weight.shape))


def _lessons(pictures: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The strongest components of the pictures' Gabor features."""
    features = torch.from_numpy(feature_map("gabor", tuple(shape))(pictures.numpy())).double()
    centred = features - features.mean(0)
    _, directions = torch.linalg.eigh(centred.T @ centred)
    parts = centred @ directions[:, -_COMPONENTS:]
    targets = parts / parts.std(0).clamp_min(1e-12) ** (1.0 - _POWER)
    scaled: torch.Tensor = targets / targets.std(0).mean()
    return scaled.float()


def _teach(body: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, *, passes: int) -> None:
    """Train the layers and a linear readout on the lessons."""
    inputs = inputs.contiguous()
    with torch.enable_grad():
        width = body(inputs[:1]).flatten(1).shape[1]
        readout = nn.Linear(width, targets.shape[1])
        learned = [*body.parameters(), *readout.parameters()]
        optimizer = torch.optim.Adam(learned, _RATE)
        batches = len(inputs) // 100
        rates = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, _RATE, total_steps=max(1, passes * batches)
        )
        for _ in range(passes):
            order = torch.randperm(len(inputs))[: 100 * batches]
            for batch in order.view(batches, 100):
                loss = functional.mse_loss(readout(body(inputs[batch]).flatten(1)), targets[batch])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                rates.step()
