"""Products of matrices at widths that kernels treat alike.

A product with odd widths ends in columns for which kernels have special code, and how they add up a
row may then depend on where it lies: its last bits on the row's place in its batch. Filled up with
zeros to whole lines of memory, all rows are treated alike.

    operators = with_aligned_products(graph)       # to be recorded again
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import torch
from torch.fx import GraphModule, Interpreter

__all__ = ["with_aligned_products"]

_aten = torch.ops.aten
_LINE: Final = 64  # bytes
_PRODUCTS: Final = (_aten.mm.default, _aten.bmm.default, _aten.addmm.default)


def with_aligned_products(graph: GraphModule) -> Callable[..., Any]:
    """The function of a recording, whose products have operands of whole lines."""
    return lambda *arguments: _Aligned(graph).run(*arguments)


@final
class _Aligned(Interpreter):
    """Runs a recording with wider products."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Fill the operands of a product up, and cut off what that added."""
        if target not in _PRODUCTS or kwargs:
            return super().call_function(target, args, kwargs)
        left, right = args[-2:]
        if target is _aten.addmm.default:
            product = self.call_function(_aten.mm.default, (left, right), {})
            return _aten.add.Tensor(product, args[0])
        line = _LINE // left.element_size()
        inner, outer = -left.shape[-1] % line, -right.shape[-1] % line
        if not inner and not outer:
            return super().call_function(target, args, kwargs)
        wide = target(
            _aten.constant_pad_nd.default(left, [0, inner]),
            _aten.constant_pad_nd.default(right, [0, outer, 0, inner]),
        )
        cut = _aten.slice.Tensor(wide, -1, 0, right.shape[-1])
        return _aten.clone.default(cut, memory_format=torch.contiguous_format)
