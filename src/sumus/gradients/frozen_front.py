"""Layers in front of all trained ones: what they make of a record is the same in every round.

    front, back = split_at_training(model)      # of a chain of layers
    inner = behind(front, x, kind)              # once a run; tangents are those of `back`

A chain's outputs are back(front(x)), and only `back` has parameters that take a gradient, so outputs
and Jacobians are those of `back` at front(x). What `front` makes of a record has the same bits in any
place and company, tested on this machine, or records are computed one by one.
"""

from __future__ import annotations

import weakref
from typing import Final, NamedTuple

import torch
from torch import nn

from sumus.gradients.threads import one_thread_each
from sumus.purity import InputKind, fresh_chain, is_isolated, layers_of

__all__ = ["Split", "behind", "split_at_training"]

_CHUNK: Final = 64


class Split(NamedTuple):
    """A chain in two.

    Args:
        front: layers before the first that is trained; none: everything may be trained.
        back: the others, with the parameters of the chain.
    """

    front: nn.Sequential
    back: nn.Module


_Key = tuple[tuple[int, bool, int], ...]
_SPLITS: weakref.WeakKeyDictionary[nn.Module, tuple[_Key, Split]] = weakref.WeakKeyDictionary()


def split_at_training(model: nn.Module) -> Split:
    """A chain in front of and from its first trained layer on; a model that is no chain, or has
    nothing to compute in front, stays whole. Silos that share a model share its parts.
    """
    key = tuple((id(each), each.requires_grad, each._version) for each in model.parameters())
    known = _SPLITS.get(model)
    if known is None or known[0] != key:
        known = _SPLITS[model] = (key, _split(model))
    return known[1]


def _split(model: nn.Module) -> Split:
    chain = fresh_chain(model)
    layers = [] if chain is None else list(layers_of(chain))
    trained = [any(each.requires_grad for each in layer.parameters()) for layer in layers]
    first = trained.index(True) if True in trained else 0
    worth = any(list(layer.parameters()) for layer in layers[:first])
    if not worth:
        return Split(nn.Sequential(), model)
    return Split(nn.Sequential(*layers[:first]), nn.Sequential(*layers[first:]))


def behind(front: nn.Sequential, x: torch.Tensor, kind: InputKind) -> torch.Tensor:
    """What the layers make of every record.

    Guarantee: row j depends on record j alone, bit for bit.

    Args:
        kind: of their input.
    """

    def compute(rows: torch.Tensor, _: torch.Tensor) -> list[torch.Tensor]:
        return [front(rows)]

    made_up = kind.records(_CHUNK, kind.form(x))

    def apart() -> bool:
        return is_isolated(compute, made_up, made_up, company=kind.company())

    chunk = _CHUNK if one_thread_each([apart])[0] else 1
    shape = one_thread_each([lambda: front(made_up[:1])])[0].shape[1:]

    def piece(start: int) -> torch.Tensor:
        rows = kind.cast(x[start : start + chunk])
        count = len(rows)
        if count < chunk:
            rows = torch.cat([rows, rows.new_zeros(chunk - count, *rows.shape[1:])])
        made: torch.Tensor = front(rows)
        return made[:count]

    pieces = one_thread_each([lambda at=at: piece(at) for at in range(0, len(x), chunk)])  # type: ignore[misc]
    return torch.cat(pieces) if pieces else made_up.new_empty((0, *shape))
