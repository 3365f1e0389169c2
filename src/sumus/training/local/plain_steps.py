"""Ordinary local SGD without privacy, for whole-update clipping (algorithm 3 of Heikkilä 2025) and for
non-private comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.purity import call_with, named_parameters
from sumus.randomness import RandomSource
from sumus.tasks import Loss
from sumus.training.sampling import poisson_batch

__all__ = ["MeanGradient", "mean_loss", "plain_steps"]

MeanGradient = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(θ, records, labels) → the gradient of their mean loss."""


def mean_loss(
    model: nn.Module, loss: Loss, flat: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    """The mean loss of a batch at these parameters."""
    return loss.mean_loss(call_with(model, named_parameters(model, flat), x), y)


def plain_steps(
    model: nn.Module,
    loss: Loss,
    parameters: npt.NDArray[np.float64],
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    steps: int,
    sampling_rate: float,
    learning_rate: float,
    momentum: float,
    l2_penalty: float,
    source: RandomSource,
    mean_gradient: MeanGradient | None = None,
) -> npt.NDArray[np.float64]:
    """θ_S − θ₀ after `steps` steps of mini-batch SGD on Poisson batches; an empty batch is no step.

    Args:
        mean_gradient: of the loss at (θ, x, y); omitted: by a backward pass through the model.
    """
    descend = mean_gradient or partial(_backward, model, loss)
    first = torch.tensor(parameters, dtype=next(model.parameters()).dtype)
    state, velocity = first.clone(), torch.zeros_like(first)
    for _ in range(steps):
        batch = torch.from_numpy(poisson_batch(len(y), sampling_rate, source))
        if len(batch) == 0:
            continue
        gradient = descend(state, x[batch], y[batch])
        with torch.no_grad():
            velocity = momentum * velocity + gradient + l2_penalty * state
            state = state - learning_rate * velocity
    return (state - first).numpy().astype(np.float64)


def _backward(
    model: nn.Module, loss: Loss, state: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    leaf = state.detach().requires_grad_(True)
    (gradient,) = torch.autograd.grad(mean_loss(model, loss, leaf, x, y), leaf)
    return gradient
