"""A module as a chain of layers in plain numbers, or a refusal that names the layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sumus.errors import PlanError
from sumus.training import OwnIntercept, SharedSlopes

__all__ = ["Activation", "Convolution", "Dense", "Flat", "Layer", "Pool", "layers_of"]

Floats = NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class Dense:
    """W·x + b; weight (outputs, inputs)."""

    weight: Floats
    bias: Floats


@final
@dataclass(frozen=True, eq=False)
class Convolution:
    """Of pictures, (channels, height, width)."""

    weight: Floats
    bias: Floats
    stride: tuple[int, int]
    padding: tuple[int, int]


@final
@dataclass(frozen=True)
class Pool:
    """The largest of every window."""

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]


@final
@dataclass(frozen=True)
class Activation:
    """One of tanh, relu, sigmoid."""

    kind: str


@final
@dataclass(frozen=True)
class Flat:
    """A record as one row."""


Layer = Dense | Convolution | Pool | Activation | Flat
_ACTIVATIONS: dict[type[nn.Module], str] = {
    nn.Tanh: "tanh",
    nn.ReLU: "relu",
    nn.Sigmoid: "sigmoid",
}


def layers_of(module: nn.Module, format_name: str) -> tuple[Layer, ...]:
    """The layers of a chain, first to last.

    Guarantee: their composition is the module, or a `PlanError`.

    Args:
        format_name: that is asked for, for the error.
    """
    return tuple(_walk(module, format_name))


def _walk(module: nn.Module, format_name: str) -> Iterator[Layer]:
    if type(module) is nn.Sequential:
        for part in module:
            yield from _walk(part, format_name)
        return
    layer = _layer(module)
    if layer is None:
        rule = (
            f"holds chains of linear, convolutional, pooling, flattening and tanh, relu or sigmoid "
            f"layers; this model has a {type(module).__name__}"
        )
        raise PlanError("--format", format_name, rule, "Use --format torch.")
    yield layer


def _layer(module: nn.Module) -> Layer | None:
    if type(module) in _ACTIVATIONS:
        return Activation(_ACTIVATIONS[type(module)])
    if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
        return Flat()
    if type(module) is nn.Linear:
        return Dense(_plain(module.weight), _bias(module, module.out_features))
    if isinstance(module, SharedSlopes):
        return _shared_slopes(module)
    if isinstance(module, OwnIntercept):
        weight = np.concatenate([_plain(module.weight), _plain(module.intercept)[:, None]], axis=1)
        return Dense(weight, np.zeros(len(weight), np.float32))
    if type(module) is nn.Conv2d and _is_simple(module):
        return Convolution(
            _plain(module.weight),
            _bias(module, module.out_channels),
            (module.stride[0], module.stride[1]),
            (int(module.padding[0]), int(module.padding[1])),
        )
    if type(module) is nn.MaxPool2d and _pair(module.dilation) == (1, 1) and not module.ceil_mode:
        return Pool(_pair(module.kernel_size), _pair(module.stride), _pair(module.padding))
    return None


def _shared_slopes(module: SharedSlopes) -> Dense:
    slopes, intercepts = _plain(module.slopes), _plain(module.intercepts)
    weight = np.tile(slopes, (len(intercepts), 1))
    if module.bias:
        return Dense(weight, intercepts)
    return Dense(
        np.concatenate([weight, intercepts[:, None]], axis=1), np.zeros(len(weight), np.float32)
    )


def _is_simple(module: nn.Conv2d) -> bool:
    return (
        module.groups == 1
        and module.dilation == (1, 1)
        and module.padding_mode == "zeros"
        and not isinstance(module.padding, str)
    )


def _plain(tensor: Any) -> Floats:
    values: Floats = tensor.detach().cpu().numpy().astype(np.float32)
    return values


def _bias(module: Any, outputs: int) -> Floats:
    return np.zeros(outputs, np.float32) if module.bias is None else _plain(module.bias)


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
