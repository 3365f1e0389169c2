"""Chains of torch's own layers, built afresh: what runs is what torch ships, whatever a user has
put on the layers that were passed.

    chain = fresh_chain(model)                      # None if there is anything else in the model
    [layer for layer in layers_of(chain)]

A fresh layer has the type, the settings and the parameters of the one that it stands for, and
nothing else of it: no hooks, no replaced methods, none that are added later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.nn.modules.module import _has_any_global_hook

__all__ = ["fresh_chain", "is_chain", "layers_of"]

_PARAMETER_FREE = (
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
    nn.ELU,
    nn.GELU,
    nn.Identity,
    nn.LeakyReLU,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
    nn.ReLU,
    nn.SELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Tanh,
)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_PLAIN = (bool, int, float, str, type(None))
_NOT_SETTINGS = frozenset({*vars(nn.Module()), "_compiled_call_impl"})


def is_chain(model: nn.Module) -> bool:
    """Whether a model consists of torch's own layers in a row, each of which treats every record
    apart: no code of a user's.
    """
    return fresh_chain(model) is not None


def fresh_chain(model: nn.Module) -> nn.Module | None:
    """The same chain of nested `nn.Sequential`s and layers with the same parameters, or None if
    there is anything else in it.

    Activations are out of place: what one overwrote would be the output that the layer before it
        needs.
    """
    if _has_any_global_hook() or _changed(model):  # type: ignore[no-untyped-call]
        return None
    if type(model) is nn.Sequential:
        row = nn.Sequential()
        for name, child in model._modules.items():
            copied = None if child is None else fresh_chain(child)
            if copied is None:
                return None
            row.add_module(name, copied)
        return row
    return _fresh(model) if _known(model) else None


def layers_of(chain: nn.Module) -> Iterator[nn.Module]:
    """The layers of nested rows, in order."""
    if isinstance(chain, nn.Sequential):
        for child in chain:
            yield from layers_of(child)
    else:
        yield chain


def _changed(model: nn.Module) -> bool:
    """Whether a layer has hooks, or methods other than its type's."""
    hooks = (
        model._forward_hooks,
        model._forward_pre_hooks,
        model._backward_hooks,
        model._backward_pre_hooks,
    )
    return any(hooks) or any(callable(getattr(type(model), name, None)) for name in vars(model))


def _known(layer: nn.Module) -> bool:
    """Whether a layer treats records apart and has nothing but settings and plain parameters."""
    settings = [value for name, value in vars(layer).items() if name not in _NOT_SETTINGS]
    numbers = [
        entry
        for value in settings
        for entry in (value if isinstance(value, tuple | list) else [value])
    ]
    plain = all(type(entry) in _PLAIN for entry in numbers)
    if (
        not plain
        or not all(type(parameter) is nn.Parameter for parameter in layer.parameters())
        or layer._modules
    ):
        return False
    return (
        type(layer) in _PARAMETER_FREE
        or type(layer) is nn.Linear
        or (type(layer) is nn.Flatten and layer.start_dim == 1 and layer.end_dim == -1)
        or (type(layer) in _CONVOLUTIONS and _common(layer))
    )


def _fresh(layer: nn.Module) -> nn.Module:
    """A new layer with the settings and the parameters of another one."""
    copied: nn.Module = type(layer).__new__(type(layer))
    nn.Module.__init__(copied)
    for name, value in vars(layer).items():
        if name not in _NOT_SETTINGS:
            setattr(copied, name, list(value) if isinstance(value, list) else value)
    for name, parameter in layer._parameters.items():
        copied.register_parameter(name, parameter)
    if hasattr(copied, "inplace"):
        setattr(copied, "inplace", False)  # noqa: B010 - torch's stubs know no such attribute of all modules
    return copied.train(layer.training)


def _common(layer: nn.Module) -> bool:
    """Whether a convolution looks across all channels, with zeros around what it looks at."""
    settings: Any = layer
    return (
        settings.groups == 1
        and settings.padding_mode == "zeros"
        and not isinstance(settings.padding, str)
    )
