"""Recorded gradients whose last product is left undone.

A weight matrix that is applied to every position p of a record has the gradient

    G = Σ_p δ_p ⊗ a_p        aten.mm of the gradient δ at its outputs and of what entered it, a

a convolution has the same sum over patches of what entered, and a table in which tokens are looked
up has gradient δ_p in row token_p. All are the last operators of a recording of `grad(loss)`, whatever
the module looks like: attention, recurrence, weights that are used twice. The recording returns their
factors instead, which are much smaller, and whoever needs norms and sums takes them from there.

    graph, undone = leave_undone(graph)
    undone["table.weight"]                       # Lookup(rows=30522, padding=0)
    undone["layer.weight"]                       # Product()
    undone["filters.weight"]                     # Patches(stride=(1, 1), padding=(0, 0), …)
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, final

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import _PyTreeCodeGen
from torch.utils import _pytree as pytree

__all__ = [
    "Lookup",
    "LookupAndProduct",
    "Patches",
    "Product",
    "Undone",
    "factor_names",
    "leave_undone",
    "more_factor_names",
]

_aten = torch.ops.aten
_SAME = (_aten.alias.default, _aten.detach.default, _aten.clone.default)
_RESHAPED = (_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default)
_TURNED = (_aten.t.default, _aten.transpose.int, _aten.permute.default)
# what may go with a product that nobody takes; whatever else a module runs stays and is looked at
_DROPPED = frozenset(
    (
        *_SAME,
        *_RESHAPED,
        *_TURNED,
        _aten.mm.default,
        _aten.add.Tensor,
        _aten.embedding_dense_backward.default,
        _aten.convolution_backward.default,
        operator.getitem,
    )
)
_MASK = 10  # among the arguments of a convolution's gradients: which of them are computed


@final
@dataclass(frozen=True)
class Product:
    """Σ_p δ_p ⊗ a_p, with factors (positions, outputs) and (positions, inputs)."""


@final
@dataclass(frozen=True)
class Lookup:
    """Σ_p δ_p in row token_p of a table, with factors (positions, width) and (positions,).

    Args:
        rows: of the table.
        padding: a token whose row takes no gradient; −1: none.
    """

    rows: int
    padding: int


@final
@dataclass(frozen=True)
class Patches:
    """Σ_p δ_p ⊗ patch_p of a convolution across all channels, with factors (1, outputs, sides …) and
    (1, channels, sides …).

    Args:
        stride: from one patch to the next.
        padding: zeros around what entered.
        dilation: from one number of a patch to the next.
    """

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


@final
@dataclass(frozen=True)
class LookupAndProduct:
    """A table that is looked up and multiplied with at one position: the factors of a lookup, then
    of a product.

    Args:
        lookup: the one.
    """

    lookup: Lookup


How = Product | Lookup | Patches | LookupAndProduct
Undone = Mapping[str, How]


def factor_names(name: str) -> tuple[str, str]:
    """Under which names a recording returns the factors of a gradient: δ, and a or tokens."""
    return f"{name} δ", f"{name} a"


def more_factor_names(name: str) -> tuple[str, str]:
    """Those of the product of a `LookupAndProduct`."""
    return factor_names(f"{name} again")


def leave_undone(graph: GraphModule) -> tuple[GraphModule, Undone]:
    """A recording that returns factors where it returned their product, and which these are.

    Guarantee: everything else that it returns is what it returned, by the same operators.

    Args:
        graph: of a function that returns named tensors.
    """
    copied = Graph()
    results = copied.graph_copy(graph.graph, {})
    codegen = graph.graph._codegen
    if not (isinstance(codegen, _PyTreeCodeGen) and isinstance(results, list | tuple)):
        return graph, {}
    gradients = pytree.tree_unflatten(list(results), cast(Any, codegen.pytree_info.out_spec))
    returned: dict[str, Any] = {}
    undone: dict[str, How] = {}
    for name, node in gradients.items():
        factors = (
            _lookup(copied, node)
            or _patches(copied, node)
            or _product(copied, node)
            or _lookup_and_product(copied, node)
        )
        if factors is None:
            returned[name] = node
            continue
        undone[name], *pairs = factors
        names = (*factor_names(name), *more_factor_names(name))
        returned |= zip(names[: len(pairs)], pairs, strict=True)
    flat, spec = pytree.tree_flatten(returned)
    copied.output(flat)
    copied._codegen = _PyTreeCodeGen(codegen.pytree_info._replace(out_spec=spec))
    for node in reversed(copied.nodes):
        if node.target in _DROPPED and not node.users:
            copied.erase_node(node)
    return GraphModule(graph, copied), undone


def _lookup(graph: Graph, node: Node) -> tuple[Lookup, Node, Node] | None:
    """The factors of a gradient at a table."""
    while node.target in _SAME:
        node = node.all_input_nodes[0]
    if node.target is not _aten.embedding_dense_backward.default or len(_shape(node)) != 2:
        return None
    delta, tokens, rows, padding, by_frequency = cast(tuple[Any, ...], node.args)
    if by_frequency or not (isinstance(delta, Node) and isinstance(tokens, Node)):
        return None
    width = _shape(node)[-1]
    return (
        Lookup(int(rows), int(padding)),
        graph.call_function(_aten.reshape.default, (_as_used(graph, delta, node), [-1, width])),
        graph.call_function(_aten.reshape.default, (_as_used(graph, tokens, node), [-1])),
    )


def _patches(graph: Graph, node: Node) -> tuple[Patches, Node, Node] | None:
    """The factors of a gradient at the weights of a convolution, which is not computed any more."""
    while node.target in _SAME:
        node = node.all_input_nodes[0]
    if node.target is not operator.getitem or node.args[1] != 1:
        return None
    gradients = cast(Node, node.args[0])
    if gradients.target is not _aten.convolution_backward.default or gradients.kwargs:
        return None
    delta, entered, weight, _, stride, padding, dilation, *turned, mask = gradients.args
    if (
        list(turned[:1]) != [False]
        or turned[2] != 1
        or len(_shape(node)) != len(_shape(cast(Node, weight)))
    ):
        return None  # transposed, or in groups
    wanted = list(cast(list[bool], mask))
    gradients.update_arg(_MASK, [wanted[0], False, wanted[2]])
    numbers = cast(Any, (stride, padding, dilation))
    return (
        Patches(*(tuple(int(side) for side in each) for each in numbers)),
        _as_used(graph, cast(Node, delta), gradients),
        _as_used(graph, cast(Node, entered), gradients),
    )


def _product(graph: Graph, node: Node) -> tuple[Product, Node, Node] | None:
    """The factors of a gradient that is a product of matrices, or a sum of such products: the
    positions of one follow those of the other.
    """
    if node.target in _RESHAPED and isinstance(node.args[0], Node):
        node = node.args[0]
    terms = _terms(node, flipped=False)
    if terms is None:
        return None
    deltas, inputs = (
        [_positions_first(graph, factor) for factor in side] for side in zip(*terms, strict=True)
    )
    return Product(), _one_after_the_other(graph, deltas), _one_after_the_other(graph, inputs)


def _lookup_and_product(
    graph: Graph, node: Node
) -> tuple[LookupAndProduct, Node, Node, Node, Node] | None:
    """The factors of a gradient at a table that is used in both ways."""
    while node.target in _SAME:
        node = node.all_input_nodes[0]
    summands = node.all_input_nodes
    if node.target is not _aten.add.Tensor or node.kwargs or len(summands) != 2:
        return None
    for first, second in (summands, summands[::-1]):
        terms = _terms(second, flipped=False) or []
        single = len(terms) == 1 and _shape(cast(Node, terms[0][0].product.args[0]))[1:] == (1,)
        if single and _shape(first) == _shape(second) == _shape(node):
            lookup, product = _lookup(graph, first), _product(graph, second)
            if lookup is not None and product is not None:
                return LookupAndProduct(lookup[0]), *lookup[1:], *product[1:]
    return None


def _one_after_the_other(graph: Graph, factors: list[Node]) -> Node:
    """The positions of all factors."""
    return factors[0] if len(factors) == 1 else graph.call_function(_aten.cat.default, (factors, 0))


@final
@dataclass(frozen=True)
class _Factor:
    """A factor of a product.

    Args:
        matrix: as the product takes it.
        product: that does.
        positions_last: whether it has to be turned to have positions first.
    """

    matrix: Node
    product: Node
    positions_last: bool


def _terms(node: Node, *, flipped: bool) -> list[tuple[_Factor, _Factor]] | None:
    """(δ, a) of every product in a sum of them; None if there is anything else in it.

    Args:
        flipped: whether the transpose of the node is meant.
    """
    while True:
        if node.target in _SAME:
            node = node.all_input_nodes[0]
        elif _turns(node):
            node, flipped = node.all_input_nodes[0], not flipped
        else:
            break
    if node.target is _aten.add.Tensor and not node.kwargs:
        summands = [term for term in node.args if isinstance(term, Node)]
        if len(summands) != 2 or any(_shape(term) != _shape(node) for term in summands):
            return None
        first, second = (_terms(term, flipped=flipped) for term in summands)
        return None if first is None or second is None else [*first, *second]
    if node.target is not _aten.mm.default:
        return None
    left, right = cast(tuple[Node, Node], node.args)
    columns, rows = _Factor(left, node, True), _Factor(right, node, False)
    return [(rows, columns) if flipped else (columns, rows)]  # L·R = Σ_p L[:, p] ⊗ R[p]


def _turns(node: Node) -> bool:
    """Whether a node is the transpose of a matrix."""
    if node.target is _aten.t.default:
        return len(_shape(node)) == 2
    if node.target is _aten.transpose.int:
        return len(_shape(node)) == 2 and node.args[1] != node.args[2]
    return node.target is _aten.permute.default and list(node.args[1]) == [1, 0]  # type: ignore[arg-type]


def _positions_first(graph: Graph, factor: _Factor) -> Node:
    """A factor with positions as its rows, not turned round twice."""
    matrix = factor.matrix
    if factor.positions_last and matrix.target is _aten.t.default:
        return _as_used(graph, matrix.all_input_nodes[0], factor.product)
    used = _as_used(graph, matrix, factor.product)
    return graph.call_function(_aten.t.default, (used,)) if factor.positions_last else used


def _as_used(graph: Graph, factor: Node, product: Node) -> Node:
    """A factor as it is when its product is computed, even if an operator writes into it later."""
    later = product.next
    while later is not graph._root:
        if isinstance(later.target, torch._ops.OpOverload) and later.target._schema.is_mutable:
            with graph.inserting_before(product):
                return graph.call_function(_aten.clone.default, (factor,))
        later = later.next
    return factor


def _shape(node: Node) -> tuple[int, ...]:
    """Of what a node returned when it was recorded; () if nobody knows."""
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()
