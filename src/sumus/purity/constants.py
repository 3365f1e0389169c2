"""The constants of recordings: copies that nobody else holds, compared bit by bit with what they
were.

    owned = Constants.of(graph, "model")
    ...                                             # the graph runs on real records
    owned.require_unchanged("model")

Equal constants of several recordings are kept once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final
from weakref import WeakValueDictionary

import torch
from torch import nn
from torch.fx import GraphModule

from sumus.errors import GuaranteeError

__all__ = ["Constants"]


@final
@dataclass(frozen=True, eq=False)
class _Constant:
    """A copy to compute with, its memory, and what must stand there."""

    value: torch.Tensor
    bits: torch.Tensor
    reference: torch.Tensor


_known: WeakValueDictionary[tuple[object, ...], _Constant] = WeakValueDictionary()


@final
@dataclass(frozen=True)
class Constants:
    """What a recording computes with besides its arguments.

    Guarantee: nothing outside of the recording refers to these numbers, so a module that changes
        later does not change them; and what was computed with constants that an operator wrote into
        after all is never returned (`require_unchanged`).
    """

    by_name: Mapping[str, _Constant]

    @classmethod
    def of(cls, graph: GraphModule, what: str) -> Constants:
        """Put copies into a graph in place of the tensors that it was recorded with."""
        targets = {str(node.target) for node in graph.graph.nodes if node.op == "get_attr"}
        owned = {}
        for target in sorted(targets):
            tensor: Any = getattr(graph, target, None)
            if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.layout != torch.strided:
                rule = (
                    f"it computes with a constant of type {type(tensor).__name__}, which need not "
                    "be numbers alone"
                )
                raise GuaranteeError(f"{what} cannot be certified: {rule}. Use plain tensors.")
            owned[target] = _kept(tensor)
            delattr(graph, target)
            setattr(graph, target, owned[target].value)
        return cls(owned)

    def require_unchanged(self, what: str) -> None:
        """Raise if a constant has other bits than it was recorded with."""
        if not all(
            torch.equal(constant.bits, constant.reference) for constant in self.by_name.values()
        ):
            rule = (
                "an operator of its forward pass wrote into what the module keeps, so records "
                "would see each other"
            )
            raise GuaranteeError(
                f"{what} cannot be certified: {rule}. Compute everything from the input and the "
                "parameters."
            )


def _kept(tensor: torch.Tensor) -> _Constant:
    """The copy of a tensor that all recordings share."""
    value = tensor.detach().clone()
    bits = _bits(value)
    key = (
        tuple(value.shape),
        value.stride(),
        value.dtype,
        hashlib.blake2b(bits.numpy().data).digest(),
    )
    constant = _known.get(key)
    if constant is None or not torch.equal(constant.bits, bits):
        constant = _known[key] = _Constant(value, bits, bits.clone())
    return constant


def _bits(value: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor as whole numbers: NaNs equal themselves, the zeros of both signs
    differ.
    """
    storage = value.untyped_storage()
    kind = next(
        kind
        for kind in (torch.int64, torch.int32, torch.uint8)
        if storage.nbytes() % kind.itemsize == 0
    )
    return torch.empty(0, dtype=kind).set_(storage)
