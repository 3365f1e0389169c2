"""A function as the chain of torch operators that it runs, recorded once on made-up records.

    squares = record(lambda x: x * x, torch.zeros(4))
    squares(torch.arange(4.0))

Only the recording runs on real records. Python code is not part of it, so what a user's `forward` keeps in attributes, closures or globals
cannot carry anything from one record to the next, whatever the checks of `purity` may have missed.
"""

from __future__ import annotations

import hashlib
import operator
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
from torch.fx import GraphModule, Node

from sumus.errors import GuaranteeError
from sumus.training.purity import bits_of

__all__ = ["Recorded", "first_line", "operators_only", "record"]

_one_at_a_time = threading.RLock()  # recording patches torch for the whole process
_NAMESPACES = ("aten", "prims")


@final
class Recorded:
    """A recorded function.

    Guarantee: what it returns is a function of its arguments and of constants, bit for bit on one machine: it consists of torch's
        own operators, none of which draws random numbers or writes into an argument or a constant.
    """

    def __init__(self, graph: GraphModule) -> None:
        self._graph = graph  # owns the constants
        self._forward = graph.forward

    def __call__(self, *arguments: Any) -> Any:
        return self._forward(*arguments)

    def digest(self) -> bytes:
        """Of its operators and constants: another function has another one."""
        names = [str(node.target) for node in self._graph.graph.nodes if node.op == "get_attr"]
        constants = [operator.attrgetter(name)(self._graph) for name in names]
        digest = hashlib.blake2b(self._graph.code.encode())
        digest.update(bits_of([constant for constant in constants if isinstance(constant, torch.Tensor)]))
        return digest.digest()


def record(function: Callable[..., Any], *examples: Any, what: str = "model") -> Recorded:
    """Record a function on example arguments, which fix all shapes.

    Guarantee: as `Recorded`, or `GuaranteeError` if the function's operators depend on values, are not torch's own, are random or write
        into something that outlives the call.

    Args:
        what: the function's name in messages.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    with operators_only(), torch.no_grad():
        try:
            graph = make_fx(function)(*examples)
        except Exception as error:
            raise GuaranteeError(f"{what} cannot be certified as a function of one record: {_reason(error)}.") from None
    _refuse_effects(list(graph.graph.nodes), what)
    return Recorded(graph)


@contextmanager
def operators_only() -> Iterator[None]:
    """Let torch run its plain operators, one thread at a time: no compiled code, no fused kernels without a rule for single records."""
    import torch._dynamo
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with _one_at_a_time:
        fused = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with (
                warnings.catch_warnings(),
                sdpa_kernel(SDPBackend.MATH),
                torch._dynamo.config.patch(error_on_nested_fx_trace=False),
                torch.compiler.set_stance("force_eager"),
            ):
                warnings.filterwarnings("ignore", message="There is a performance drop")  # while recording only
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)


def first_line(error: BaseException) -> str:
    """The first line of an error, without its full stop."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).strip().rstrip(".")[:300]


def _reason(error: BaseException) -> str:
    """Why something could not be recorded; torch's own words where there are no better ones."""
    line = first_line(error)
    if "_local_scalar_dense" in line or ".item()" in line:
        reason = "which operators it runs depends on a record's values (if, .item() or one_hot on a tensor)"
        return f"{reason}. Use torch.where and comparisons instead"
    return line


def _refuse_effects(nodes: Sequence[Node], what: str) -> None:
    """Raise unless every node is an operator of torch that is not random and writes into values of this call only."""
    outside: set[Node] = set()  # arguments and constants, and views of them
    for node in nodes:
        if node.op in ("placeholder", "get_attr"):
            outside.add(node)
        if node.op != "call_function":
            continue
        if node.target is operator.getitem:
            outside |= {node} if node.args[0] in outside else set()
            continue
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace not in _NAMESPACES:
            raise GuaranteeError(f"{what} cannot be certified: it calls {node.target}, which is not an operator of torch's own.")
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            fix = "Remove the random numbers or call eval() on the layer that draws them"
            raise GuaranteeError(f"{what} draws random numbers in its forward pass ({node.target}). {fix}.")
        _follow_aliases(node, node.target, outside, what)


def _follow_aliases(node: Node, target: torch._ops.OpOverload, outside: set[Node], what: str) -> None:
    """Raise if an operator writes into something that outlives the call; a view of such a thing is one, too."""
    names = [argument.name for argument in target._schema.arguments]
    actual = dict(zip(names, node.args, strict=False)) | node.kwargs
    for argument in target._schema.arguments:
        if argument.alias_info is None:
            continue
        touched = actual.get(argument.name)
        members = touched if isinstance(touched, list | tuple) else [touched]
        if not any(member in outside for member in members if isinstance(member, Node)):
            continue
        if argument.alias_info.is_write:
            fix = "Keep running statistics, renormalised weights and counters out of forward()"
            raise GuaranteeError(f"{what} writes into what it keeps in its forward pass ({target}). {fix}.")
        outside.add(node)
