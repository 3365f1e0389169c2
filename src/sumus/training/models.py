"""The models a plan can name, built from public numbers only.

    build_model("cnn", shape=(1, 28, 28), outputs=10)            # Heikkilä 2025: 26,010 parameters
    build_model("my_package.nets:Net", shape=(12,), outputs=2)   # any class that this silo can already import

The first model of a run is public: softmax and logistic regression start at zero, everything else
    from the plan's `init_seed`; outputs start from a public number where the task has one.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Sequence
from typing import final

import torch
from torch import nn

from sumus.errors import GuaranteeError, PlanError
from sumus.files import object_at
from sumus.plan import CNN_CONVOLUTIONS, CNN_HIDDEN, MODELS, cnn_flat_features
from sumus.purity import first_line

__all__ = [
    "Counts",
    "OwnIntercept",
    "SharedSlopes",
    "build_model",
    "flat_parameters",
    "linear_outputs",
    "load_flat",
]


def build_model(
    name: str,
    *,
    shape: Sequence[int],
    outputs: int,
    hidden: Sequence[int] = (64,),
    init_seed: int = 0,
    bias: bool = True,
    shared_slopes: bool = False,
    first_intercept: float = 0.0,
    local_intercept: bool = False,
) -> nn.Module:
    """The module that `training.model` names, with its public first parameters.

    Guarantee: the same arguments give the same module and the same parameters bit for bit (same
        torch version); the global torch generator is left as it was found.

    Args:
        name: softmax | linear | logistic | mlp | cnn, or "package.module:Class". A class is called
            with those of the keyword arguments shape, in_features, outputs, classes (the same
            number), hidden that its constructor names.
        shape: one record's shape without the batch, (features,) or (channels, height, width).
        outputs: numbers that it returns for one record (`Task.outputs`).
        hidden: widths of the hidden layers of "mlp".
        init_seed: public seed of the first parameters.
        bias: whether softmax and logistic have a bias of their own; False when the features carry a
            bias feature.
        shared_slopes: whether the outputs of a linear model differ in their intercepts alone.
        first_intercept: what intercepts start from.
        local_intercept: whether the intercepts of a linear model on records with a bias feature
            are parameters of their own.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(init_seed)
        if ":" in name:
            return _foreign(name, shape=shape, outputs=outputs, hidden=hidden)
        if name not in MODELS:
            known = ", ".join(MODELS)
            raise PlanError(
                "training.model",
                name,
                f'must be one of {known} or "package.module:Class"',
                "Check the spelling.",
            )
        if name in ("cnn", "mlp"):
            network = (
                _cnn(shape, outputs) if name == "cnn" else _mlp(math.prod(shape), hidden, outputs)
            )
            return _starting_from(network, first_intercept)
        if shared_slopes:
            return SharedSlopes(
                math.prod(shape), outputs, bias=bias, first_intercept=first_intercept
            )
        if local_intercept:
            return OwnIntercept(math.prod(shape), outputs)
        head = nn.Linear(math.prod(shape), outputs, bias=bias)
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
        if first_intercept:
            nn.init.constant_(head.bias if bias else head.weight[:, -1], first_intercept)
        return nn.Sequential(nn.Flatten(), head) if len(shape) > 1 else nn.Sequential(head)


@final
class SharedSlopes(nn.Module):
    """z_k = w·x + a_k: outputs that differ in their intercepts alone; without a bias of its own the
    last feature is what every intercept is multiplied by.

    Args:
        features: of a record, a bias feature included.
    """

    def __init__(
        self, features: int, outputs: int, *, bias: bool, first_intercept: float = 0.0
    ) -> None:
        super().__init__()
        self.bias = bias
        self.slopes = nn.Parameter(torch.zeros(features - (0 if bias else 1)))
        self.intercepts = nn.Parameter(torch.full((outputs,), first_intercept))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs of records of any shape."""
        flat = x.flatten(1)
        slopes = len(self.slopes)
        level = (flat[:, :slopes] * self.slopes).sum(1, keepdim=True)
        return level + (self.intercepts if self.bias else flat[:, slopes:] * self.intercepts)


@final
class OwnIntercept(nn.Module):
    """z = W·x + b·a: a linear model whose intercepts a, times the bias feature b that comes last,
    are no columns of W.

    Args:
        features: of a record, the bias feature included.
    """

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, features - 1))
        self.intercept = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs of records of any shape."""
        flat = x.flatten(1)
        return flat[:, :-1] @ self.weight.t() + flat[:, -1:] * self.intercept


class Counts(nn.Module):
    """What a description releases, in the place of a model: a number a cell.

    Args:
        cells: how many.
    """

    def __init__(self, cells: int) -> None:
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(cells))

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        """The counts themselves: they are no function of records."""
        return self.counts


def linear_outputs(model: nn.Module) -> int | None:
    """How many numbers a linear model returns for a record; None: the model is no linear one."""
    if isinstance(model, SharedSlopes):
        return len(model.intercepts)
    if isinstance(model, OwnIntercept):
        return len(model.intercept)
    layers = list(model) if type(model) is nn.Sequential else [model]
    if layers and type(layers[0]) is nn.Flatten:
        layers = layers[1:]
    return layers[0].out_features if len(layers) == 1 and type(layers[0]) is nn.Linear else None


def flat_parameters(model: nn.Module) -> torch.Tensor:
    """All parameters that take a gradient as one vector (a copy), in the order of
    `model.parameters()`.
    """
    trainable = [
        parameter.detach().reshape(-1)
        for parameter in model.parameters()
        if parameter.requires_grad
    ]
    if not trainable:
        raise GuaranteeError(
            f"model {type(model).__name__} has no parameter that takes a gradient. Unfreeze what "
            "should be trained."
        )
    return torch.cat(trainable)


def load_flat(model: nn.Module, parameters: torch.Tensor) -> None:
    """Write a flat vector into the parameters of a model, in the order of `flat_parameters`."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    dimension = sum(parameter.numel() for parameter in trainable)
    if parameters.shape != (dimension,):
        rule = f"must be one vector of {dimension} numbers"
        raise PlanError(
            "parameters", tuple(parameters.shape), rule, "Was it saved by another model?"
        )
    with torch.no_grad():
        start = 0
        for parameter in trainable:
            parameter.copy_(parameters[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()


def _starting_from(network: nn.Sequential, first_intercept: float) -> nn.Sequential:
    """The network with this number in the intercepts of its last layer; as it is for 0."""
    head = network[-1]
    if first_intercept and isinstance(head, nn.Linear):
        nn.init.constant_(head.bias, first_intercept)
    return network


def _mlp(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    """Fully connected layers with tanh, which keeps activations and so gradients bounded
    (arXiv:2007.14191).
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for inner, outer in itertools.pairwise([inputs, *hidden]):
        layers += [nn.Linear(inner, outer), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear([inputs, *hidden][-1], outputs))


def _cnn(shape: Sequence[int], outputs: int) -> nn.Sequential:
    """The convolutional network of Papernot et al. (arXiv:2007.14191) and Heikkilä 2025."""
    flat = cnn_flat_features(shape)
    layers: list[nn.Module] = []
    channels = shape[0]
    for filters, kernel, stride, padding in CNN_CONVOLUTIONS:
        layers += [
            nn.Conv2d(channels, filters, kernel, stride, padding),
            nn.Tanh(),
            nn.MaxPool2d(2, 1),
        ]
        channels = filters
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(flat, CNN_HIDDEN),
        nn.Tanh(),
        nn.Linear(CNN_HIDDEN, outputs),
    )


def _foreign(path: str, *, shape: Sequence[int], outputs: int, hidden: Sequence[int]) -> nn.Module:
    """A user's module, called with the public numbers that its constructor asks for by name."""
    offered = {
        "shape": tuple(shape),
        "in_features": math.prod(shape),
        "outputs": outputs,
        "classes": outputs,
        "hidden": tuple(hidden),
    }
    maker = object_at(path, field="training.model")
    try:
        wanted = inspect.signature(maker).parameters
        model = maker(**{name: value for name, value in offered.items() if name in wanted})
    except Exception as error:
        fix = (
            f"{first_line(error)}. Give its constructor defaults or name its arguments shape, "
            "in_features, outputs, classes, hidden."
        )
        raise PlanError(
            "training.model", path, "must be constructible from public numbers", fix
        ) from None
    if not isinstance(model, nn.Module):
        raise PlanError(
            "training.model",
            path,
            "must make a torch.nn.Module",
            f"It made a {type(model).__name__}.",
        )
    return model
