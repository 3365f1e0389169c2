"""How much memory a recording needs: what is alive at once while its operators run."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

__all__ = ["peak_bytes"]


def peak_bytes(graph: GraphModule) -> int:
    """The most bytes of results that are alive at once, one operator after the other; arguments and
    constants do not count.

    A view keeps alive what it looks at. Results whose size was not recorded count nothing.
    """
    nodes = list(graph.graph.nodes)
    owners: dict[Node, Node] = {}
    last_use: dict[Node, int] = {}
    for place, node in enumerate(nodes):
        looked_at = node.all_input_nodes[:1] if _is_view(node) else []
        owners[node] = owners[looked_at[0]] if looked_at else node
        for used in (node, *node.all_input_nodes):
            last_use[owners[used]] = place
    dying: dict[int, list[Node]] = {}
    for owner, place in last_use.items():
        dying.setdefault(place, []).append(owner)
    alive = most = 0
    for place, node in enumerate(nodes):
        alive += _bytes(node) if owners[node] is node else 0
        most = max(most, alive)
        alive -= sum(map(_bytes, dying.get(place, ())))
    return most


def _is_view(node: Node) -> bool:
    """Whether a result shares the memory of the first argument."""
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    arguments = node.target._schema.arguments
    return bool(arguments) and arguments[0].alias_info is not None


def _bytes(node: Node) -> int:
    """Of a result, or of several that an operator returns together."""
    if node.op != "call_function":
        return 0
    values: Any = node.meta.get("val")
    members = values if isinstance(values, list | tuple) else [values]
    return sum(
        value.numel() * value.element_size() for value in members if isinstance(value, torch.Tensor)
    )
