"""A user's module on its way in and out: a copy of it is trained, whatever it returns beside the
logits is set aside.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import torch
from torch import nn

from sumus.errors import DataError, PlanError
from sumus.purity.recording import first_line

__all__ = ["own_copy", "released_model", "require_precision"]

_PRECISIONS: Final = (torch.float32, torch.float64)
_SELECTION: Final = "_sumus_logits"  # the attribute that remembers the hook


def own_copy(model: nn.Module, *, logits: str | None = None) -> nn.Module:
    """A copy to train, on the processor's memory; the module that was passed stays as it is.

    Guarantee: compiled modules are copied as the modules they were compiled from, whose operators
        are the same on every machine.

    Args:
        logits: the key or position of the logits in what the module returns; None: it returns the
            logits.
    """
    try:
        copied = copy.deepcopy(getattr(model, "_orig_mod", model))
    except Exception as error:
        fix = "Build it anew, or keep what cannot be copied out of it"
        raise DataError(
            f"model {type(model).__name__} cannot be copied: {first_line(error)}. {fix}."
        ) from None
    for name, tensor in [*copied.named_parameters(), *copied.named_buffers()]:
        if nn.parameter.is_lazy(tensor):
            raise DataError(
                f"model tensor {name} has no size yet. Call the model once on a record of your own "
                "before you pass it."
            )
        if tensor.device.type != "cpu":
            raise DataError(f"model tensor {name} lies on {tensor.device}. Pass model.cpu().")
    if logits is not None:
        handle = copied.register_forward_hook(partial(_select, logits))
        setattr(copied, _SELECTION, handle.id)
    return copied


def released_model(model: nn.Module) -> nn.Module:
    """The trained copy as its user knows it: it returns what the user's module returns."""
    handle = vars(model).pop(_SELECTION, None)
    if handle is not None:
        del model._forward_hooks[handle]
    return model


def require_precision(model: nn.Module) -> torch.dtype:
    """The one precision of all parameters that are trained."""
    kinds = {parameter.dtype for parameter in model.parameters() if parameter.requires_grad}
    if len(kinds) != 1 or not kinds <= set(_PRECISIONS):
        names = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        raise DataError(
            f"model parameters must all be float32 or all float64, got {names}. Call model.float()."
        )
    return kinds.pop()


def _select(key: str, module: nn.Module, arguments: Any, outputs: Any) -> Any:
    """The logits among a module's outputs."""
    if isinstance(outputs, Mapping) and key in outputs:
        return outputs[key]
    if (
        isinstance(outputs, tuple | list)
        and key.lstrip("-").isdecimal()
        and -len(outputs) <= int(key) < len(outputs)
    ):
        return outputs[int(key)]
    if isinstance(outputs, tuple) and hasattr(outputs, key):
        return getattr(outputs, key)
    known = (
        list(outputs)
        if isinstance(outputs, Mapping)
        else list(range(len(outputs)))
        if isinstance(outputs, tuple | list)
        else []
    )
    rule = (
        "must name one of the model's outputs "
        f"({', '.join(map(str, known)) or 'it returns one tensor'})"
    )
    raise PlanError(
        "training.logits", key, rule, "Name the one that holds the logits, or omit the key."
    )
