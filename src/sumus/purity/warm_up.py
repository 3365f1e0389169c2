"""Caches that a module fills when it is first called: masks and tables of positions that depend on
the shape of a record alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import nn
from torch.func import functional_call

from sumus.purity.checks import refuse_state
from sumus.purity.held_state import held
from sumus.purity.stateless import call_with, fresh_copy

__all__ = ["warm_up"]

_CACHE = b"_lru_cache_wrapper "


def warm_up(model: nn.Module, weights: Mapping[str, torch.Tensor], x: torch.Tensor) -> None:
    """Let this thread's copy of a module fill its caches, if two made-up records fill them alike.

    Copies that were called with different records must then hold the same values. If they do not,
    nothing is done here, and the examination that follows refuses what has changed by its name.
    What all copies share is refused at once: it was filled now.

    Args:
        x: made-up records, at least two.
    """
    before = held(model)
    after = [_held_after(model, weights, x[record : record + 1].clone()) for record in (0, 1)]
    filled = [path for path in sorted(after[0]) if before.get(path) != after[0][path]]
    refuse_state(next((path for path in filled if _is_shared(path, after[0][path])), None), "model")
    if filled and after[0] == after[1]:
        call_with(model, weights, x[:1].clone())


def _held_after(
    model: nn.Module, weights: Mapping[str, torch.Tensor], x: torch.Tensor
) -> dict[str, bytes]:
    """What a copy of a module holds after its first call; nothing if the call fails, which is not
    for this place to say.
    """
    copied = fresh_copy(model, share_buffers=False)
    try:
        functional_call(copied, dict(weights), (x,))
    except Exception:
        return {}
    return held(copied)


def _is_shared(path: str, value: bytes) -> bool:
    """Whether a value outlives the copy that changed it: in a global, a closure, a class; a cache
    of a function of plain values may.
    """
    return " " in re.sub(r"\[[^\]]*\]", "", path) and not value.startswith(_CACHE)
