"""A module as a function of its parameters, safe on any number of threads.

`torch.func.functional_call` puts the given weights into the module for the time of the call, so two silos that compute side by side on one
module would see each other's weights: a silo's update would then depend on another silo's records outside of every sum. Each
thread therefore calls a copy of its own; copies share all tensors and cost nothing.
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

__all__ = ["call_with"]


class _Copies(threading.local):
    """The copies of one thread; they end with it, or with the module."""

    def __init__(self) -> None:
        self.of: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()


_copies = _Copies()
_copying = threading.Lock()


def call_with(model: nn.Module, weights: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """model(x) with the named parameters replaced; the module itself stays as it is and may serve other threads meanwhile."""
    if model not in _copies.of:
        with _copying:
            shared = {id(tensor): tensor for tensor in itertools.chain(model.parameters(), model.buffers())}
            _copies.of[model] = copy.deepcopy(model, cast(dict[int, object], shared))
    result: torch.Tensor = functional_call(_copies.of[model], dict(weights), (x,))
    return result
