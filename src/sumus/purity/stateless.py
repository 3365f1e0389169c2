"""A module as a function of its parameters, safe on any number of threads.

`torch.func.functional_call` puts the given weights into the module for the time of the call, so two
silos that compute side by side on one module would see each other's weights: a silo's update would
then depend on another silo's records outside of every sum. Each thread therefore calls a copy of
its own; copies share all tensors and cost nothing. Chains of torch's own layers are built afresh.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Mapping
from typing import cast
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.func import functional_call

from sumus.errors import DataError
from sumus.purity.chains import fresh_chain

__all__ = ["call_with", "copy_of", "fresh_copy", "named_parameters", "renew_copies"]


class _Copies(threading.local):
    """The copies of one thread with their generations; they end with it, or with the module."""

    def __init__(self) -> None:
        self.of: WeakKeyDictionary[nn.Module, tuple[int, nn.Module]] = WeakKeyDictionary()


_copies = _Copies()
_copying = threading.Lock()
_generations: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()


def call_with(
    model: nn.Module, weights: Mapping[str, torch.Tensor], x: torch.Tensor
) -> torch.Tensor:
    """model(x) with the named parameters replaced; the module itself stays as it is and may serve
    other threads meanwhile.
    """
    chain = fresh_chain(model)
    called = copy_of(model) if chain is None else chain
    result: torch.Tensor = functional_call(called, dict(weights), (x,))
    return result


def copy_of(model: nn.Module) -> nn.Module:
    """This thread's copy of a module."""
    generation = _generations.get(model, 0)
    known = _copies.of.get(model)
    if known is None or known[0] != generation:
        known = _copies.of[model] = (generation, fresh_copy(model))
    return known[1]


def fresh_copy(model: nn.Module, *, share_buffers: bool = True) -> nn.Module:
    """A copy of a module as it is now, which shares its parameters and, if wanted, its buffers."""
    with _copying:
        tensors = itertools.chain(model.parameters(), model.buffers() if share_buffers else ())
        shared = {id(tensor): tensor for tensor in tensors}
        try:
            return copy.deepcopy(model, cast(dict[int, object], shared))
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            raise DataError(
                f"model {type(model).__name__} cannot be copied: {reason}. Keep what cannot be "
                "copied out of it."
            ) from None


def renew_copies(model: nn.Module) -> None:
    """Let every thread copy a module anew: something that it holds has been replaced."""
    _generations[model] = _generations.get(model, 0) + 1


def named_parameters(model: nn.Module, flat: torch.Tensor) -> dict[str, torch.Tensor]:
    """Views of a flat vector under the names of the model's trainable parameters."""
    out, start = {}, 0
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            out[name] = flat[start : start + parameter.numel()].view_as(parameter)
            start += parameter.numel()
    return out
