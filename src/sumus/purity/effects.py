"""Which operators a recording may consist of: torch's own, without randomness, memory or effects on
anything that outlives the call.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from sumus.errors import GuaranteeError

__all__ = ["looks_across", "refuse_effects", "without_stale_memory"]

_NAMESPACES = ("aten", "prims")
# Their schemas do not say that the result shares memory with the first argument.
_UNSAID_VIEWS = ("_unsafe_view", "unsafe_split", "unsafe_chunk", "lift")
# Their schemas do not say all that they touch: other memory, a file, the size of what another
# tensor looks at.
_REFUSED = (
    "set_",
    "_set_",
    "from_file",
    "resize",
    "_resize",
    "_copy_from",
    "batch_norm_update_stats",
    "batch_norm_gather_stats",
)
_STALE = ("empty", "new_empty", "_empty")
# how many terms it takes depends on the largest matrix of the batch
_ACROSS = ("linalg_matrix_exp",)


def refuse_effects(graph: GraphModule, what: str) -> None:
    """Raise unless every node is an operator of torch that is not random and writes into values of
    this call only.
    """
    outside: set[Node] = set()  # arguments and constants, and views of them
    for node in graph.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            outside.add(node)
        if node.op != "call_function":
            continue
        if node.target is operator.getitem:
            outside |= {node} if node.args[0] in outside else set()
            continue
        if (
            not isinstance(node.target, torch._ops.OpOverload)
            or node.target.namespace not in _NAMESPACES
        ):
            raise GuaranteeError(
                f"{what} cannot be certified: it calls {node.target}, which is not an operator of "
                "torch's own."
            )
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            fix = "Remove the random numbers or call eval() on the layer that draws them"
            raise GuaranteeError(
                f"{what} draws random numbers in its forward pass ({node.target}). {fix}."
            )
        _follow_aliases(node, node.target, outside, what)


def _follow_aliases(
    node: Node, target: torch._ops.OpOverload, outside: set[Node], what: str
) -> None:
    """Raise if an operator writes into something that outlives the call; a view of such a thing is
    one, too.
    """
    name, arguments = _name(node), _arguments(node, target)
    if name.startswith(_REFUSED) or _keeps_statistics(name, arguments):
        _refuse_writing(target, what)
    if name.startswith(_UNSAID_VIEWS) and any(member in outside for member in node.all_input_nodes):
        outside.add(node)
    for argument in target._schema.arguments:
        if argument.alias_info is None:
            continue
        touched = arguments.get(argument.name)
        members = touched if isinstance(touched, list | tuple) else [touched]
        if not any(member in outside for member in members if isinstance(member, Node)):
            continue
        if argument.alias_info.is_write:
            _refuse_writing(target, what)
        outside.add(node)


def _refuse_writing(target: torch._ops.OpOverload, what: str) -> None:
    fix = "Keep running statistics, renormalised weights and counters out of forward()"
    raise GuaranteeError(f"{what} writes into what it keeps in its forward pass ({target}). {fix}.")


def _keeps_statistics(name: str, arguments: dict[str, Any]) -> bool:
    """Whether a batch norm updates running statistics, of which most of its schemas say nothing."""
    training = arguments.get("training", arguments.get("train", "update" in name))
    return (
        "batch_norm" in name
        and "backward" not in name
        and bool(training)
        and arguments.get("running_mean") is not None
    )


def without_stale_memory(graph: GraphModule) -> None:
    """Fill with zeros what a graph would find in memory: it may be what another record left
    there.
    """
    for node in list(graph.graph.nodes):
        if node.op == "call_function" and _name(node).startswith(_STALE) and node.users:
            with graph.graph.inserting_after(node):
                zeros = graph.graph.call_function(torch.ops.aten.zeros_like.default, (node,))
            node.replace_all_uses_with(zeros)
            zeros.args = (node,)
    graph.recompile()


def looks_across(graph: GraphModule) -> bool:
    """Whether a kernel is known to compute one record otherwise in the company of others."""
    return any(
        node.op == "call_function" and _name(node).startswith(_ACROSS) for node in graph.graph.nodes
    )


def _name(node: Node) -> str:
    """An operator's name without namespace and overload."""
    target = node.target
    return (
        target._schema.name.partition("::")[2] if isinstance(target, torch._ops.OpOverload) else ""
    )


def _arguments(node: Node, target: torch._ops.OpOverload) -> dict[str, Any]:
    """A call's arguments by name, omitted ones left out."""
    names = [argument.name for argument in target._schema.arguments]
    return dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
