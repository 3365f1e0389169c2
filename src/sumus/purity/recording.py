"""A function as the chain of torch operators that it runs, recorded once on made-up records.

    squares = record(lambda x: x * x, torch.zeros(4))
    squares(torch.arange(4.0))

Only the recording runs on real records. Python code is not part of it, so what a user's `forward`
keeps in attributes, closures or globals cannot carry anything from one record to the next, whatever
the checks of `purity` may have missed.
"""

from __future__ import annotations

import hashlib
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch.fx import Graph, GraphModule

from sumus.errors import GuaranteeError
from sumus.purity.aligned import with_aligned_products
from sumus.purity.checks import bits_of
from sumus.purity.constants import Constants
from sumus.purity.effects import looks_across, refuse_effects, without_stale_memory
from sumus.purity.memory import peak_bytes
from sumus.purity.undone import Undone, leave_undone

__all__ = ["Recorded", "first_line", "operators_only", "record"]

_tell_of_loops: Callable[[bool], None] = vars(torch._C._functorch)[
    "_set_vmap_fallback_warning_enabled"
]
_one_at_a_time = threading.RLock()  # recording patches torch for the whole process


@final
class Recorded:
    """A recorded function.

    Guarantee: what it returns is a function of its arguments and of constants, bit for bit on one
        machine: it consists of torch's own operators, none of which draws random numbers, reads
        memory that nobody wrote or writes into an argument or a constant. Constants are copies of
        its own; if one has changed after a call all the same, nothing is returned.

    Args:
        operators: the chain by itself, to be recorded again.
        looks_across: whether a kernel in it is known to compute one row of a batch otherwise than
            alone.
    """

    def __init__(self, graph: GraphModule, what: str) -> None:
        refuse_effects(graph, what)
        without_stale_memory(graph)
        self._constants, self._what = Constants.of(graph, what), what
        self._graph = graph
        self.operators: Callable[..., Any] = graph.forward
        self.looks_across = looks_across(graph)

    def __call__(self, *arguments: Any) -> Any:
        result = self.operators(*arguments)
        self._constants.require_unchanged(self._what)
        return result

    def in_plain_layout(self) -> Recorded:
        """The same function without orders of memory, for which `vmap` has no rules; fails when
        called if a view needed one.
        """
        recorded, graph = self._graph.graph, Graph()
        graph.output(graph.graph_copy(recorded, {}))
        graph._codegen = recorded._codegen  # how arguments and results are nested
        for node in graph.nodes:
            if node.op == "call_function":
                node.kwargs = {
                    name: value for name, value in node.kwargs.items() if name != "memory_format"
                }
        return Recorded(GraphModule(self._graph, graph), self._what)

    def with_factors(self) -> tuple[Recorded, Undone]:
        """The same function without the last product of its results (`undone`)."""
        graph, undone = leave_undone(self._graph)
        return (Recorded(graph, self._what), undone) if undone else (self, undone)

    def aligned(self, *arguments: Any) -> Any:
        """What the function returns, computed with products of wider matrices (`aligned`); to be
        recorded again.
        """
        return with_aligned_products(self._graph)(*arguments)

    @property
    def peak_bytes(self) -> int:
        """What is alive at once while it runs."""
        return peak_bytes(self._graph)

    def digest(self) -> bytes:
        """Of its operators and constants: another function has another one."""
        digest = hashlib.blake2b(self._graph.code.encode())
        # in the order of their names
        digest.update(bits_of([constant.value for constant in self._constants.by_name.values()]))
        return digest.digest()


def record(function: Callable[..., Any], *examples: Any, what: str = "model") -> Recorded:
    """Record a function on example arguments, which fix all shapes.

    Guarantee: as `Recorded`, or `GuaranteeError` if the function's operators depend on values, are
        not torch's own, are random or write into something that outlives the call.

    Args:
        what: the function's name in messages.
    """
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    # shapes are noted by this one; otherwise every operator makes its own, with a stack trace
    shapes = tracing(TracingContext(FakeTensorMode(allow_fallback_kernels=True)))
    with operators_only(), torch.no_grad(), shapes:
        try:
            graph = make_fx(function)(*examples)
        except Exception as error:
            raise GuaranteeError(
                f"{what} cannot be certified as a function of one record: {_reason(error)}."
            ) from None
    return Recorded(graph, what)


@contextmanager
def operators_only() -> Iterator[None]:
    """Let torch run its plain operators, one thread at a time: no compiled code, no fused kernels
    without a rule for single records.
    """
    import torch._dynamo
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with _one_at_a_time:
        fused, whole_layers = (
            torch.backends.mha.get_fastpath_enabled(),
            torch._C._get_mkldnn_enabled(),
        )
        torch.backends.mha.set_fastpath_enabled(False)
        torch._C._set_mkldnn_enabled(False)
        _tell_of_loops(False)
        try:
            with (
                warnings.catch_warnings(),
                sdpa_kernel(SDPBackend.MATH),
                torch._dynamo.config.patch(error_on_nested_fx_trace=False),
                torch.compiler.set_stance("force_eager"),
            ):
                # while recording only
                warnings.filterwarnings("ignore", message="There is a performance drop")
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)
            torch._C._set_mkldnn_enabled(whole_layers)
            _tell_of_loops(True)


def first_line(error: BaseException) -> str:
    """The first line of an error, without its full stop."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).strip().rstrip(".")[:300]


def _reason(error: BaseException) -> str:
    """Why something could not be recorded; torch's own words where there are no better ones."""
    line = first_line(error)
    if "_local_scalar_dense" in line or ".item()" in line:
        reason = (
            "which operators it runs depends on a record's values (if, .item() or one_hot on a "
            "tensor)"
        )
        return f"{reason}. Use torch.where and comparisons instead"
    return line
