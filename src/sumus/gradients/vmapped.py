"""Per-record gradients of any module through `torch.func`: one record at a time by construction,
all of a chunk at once in practice.

What runs is a recording of `vmap(grad(loss))` on made-up records: torch's own operators, none of
the module's Python code. Where the gradient of a parameter is a product over positions or patches or
a lookup in a table, the recording returns its factors (`purity.undone`), which become the parts that
chains of layers have: a linear layer, a projection of attention, a cell of a recurrence or the weights
of a convolution cost what they cost in a chain, and a table what the tokens of a record touch of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, final

import torch
from torch import nn
from torch.func import grad

from sumus.errors import GuaranteeError
from sumus.gradients.convolutions import outputs_first, outputs_last, weight_gradients
from sumus.gradients.parts import ChunkGradients, Outer, Part, Rows, Tied, Tokens, products
from sumus.gradients.preconditioning import PublicMap
from sumus.gradients.threads import one_torch_thread
from sumus.gradients.windows import Window
from sumus.purity import (
    ChunkFunction,
    Lookup,
    LookupAndProduct,
    Patches,
    RecordLoss,
    call_with,
    certified_gradients,
    factor_names,
    more_factor_names,
    same_bits,
)

__all__ = ["VmapPath"]

_WORKING_BYTES: Final = 64 << 20  # of a chunk's activations: more of them gain no speed


@final
class VmapPath:
    """`vmap(grad(loss))` over the records of a chunk, recorded.

    Args:
        most_bytes: that a chunk's activations and gradients may take.
    """

    name = "vmap"

    def __init__(self, model: nn.Module, loss: RecordLoss, *, most_bytes: int) -> None:
        self._model, self._loss = model, loss
        self._most_bytes = min(most_bytes, _WORKING_BYTES)
        self._shapes = {
            name: parameter.shape
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        # known before anything is recorded: sums of all recordings have one order
        self._filters = frozenset(
            f"{name}.weight" if name else "weight"
            for name, module in model.named_modules()
            if type(module) in (nn.Conv1d, nn.Conv2d, nn.Conv3d)
        ) & set(self._shapes)
        self.dimension = sum(shape.numel() for shape in self._shapes.values())
        # rows may have to be stored, of tables only what tokens touch; activations are counted when
        # they are recorded
        tables = sum(
            module.weight.numel()
            for module in model.modules()
            if isinstance(module, nn.Embedding) and module.weight.requires_grad
        )
        self.numbers_per_record = max(1, 4 * (self.dimension - tables))
        self._recorded: dict[tuple[torch.Size, torch.Size, torch.dtype], ChunkFunction] = {}
        self._reference: (
            tuple[ChunkFunction, tuple[torch.Tensor, ...], list[torch.Tensor]] | None
        ) = None

    def record(
        self, parameters: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *, aligned: bool = False
    ) -> int:
        """Record the gradients of made-up chunks; returns how many records a chunk may have: as
        many, or those that fit into memory, or one.

        Args:
            aligned: whether products are filled up to widths at which rows are treated alike.
        """

        def record_loss(
            weights: Mapping[str, torch.Tensor], record: torch.Tensor, label: torch.Tensor
        ) -> torch.Tensor:
            return self._loss(call_with(self._model, weights, record[None]), label[None])

        weights = self._pieces(parameters)
        recorded = certified_gradients(
            self._model,
            self._loss,
            grad(record_loss),
            weights,
            *(x, y),
            most_bytes=self._most_bytes,
            aligned=aligned,
        )
        rows = (x[: recorded.chunk].clone(), y[: recorded.chunk].clone())
        self._recorded[rows[0].shape, rows[1].shape, rows[0].dtype] = recorded
        self._reference = (
            recorded,
            (parameters.clone(), *rows),
            self._outcome(recorded, parameters, *rows),
        )
        return recorded.chunk

    def recheck(self) -> None:
        """Raise if made-up records no longer have the gradients that they had when they were
        recorded, bit for bit.
        """
        if self._reference is None:
            return
        recorded, arguments, before = self._reference
        if not same_bits(before, self._outcome(recorded, *arguments)):
            rule = "gives made-up records other gradients than at the start of the run"
            raise GuaranteeError(
                f"model {rule}: something that it computes with was changed. Leave the model alone "
                "while it trains."
            )

    def _outcome(
        self, recorded: ChunkFunction, parameters: torch.Tensor, *rows: torch.Tensor
    ) -> list[torch.Tensor]:
        """The gradients of made-up records, on one thread: how many there are must not be mistaken
        for a change of the model.
        """
        with one_torch_thread():
            return list(recorded(self._pieces(parameters), *rows).values())

    def digests(self) -> list[bytes]:
        """Of everything that was recorded."""
        return [recorded.digest() for recorded in self._recorded.values()]

    def bind(self, parameters: torch.Tensor, mapped: PublicMap | None = None) -> ChunkGradients:
        """The gradients of any chunk at these parameters, behind a public map if there is one."""
        return partial(self._parts, self._pieces(parameters), mapped)

    def _pieces(self, parameters: torch.Tensor) -> dict[str, torch.Tensor]:
        """The flat vector under the names of the parameters."""
        weights, start = {}, 0
        for name, shape in self._shapes.items():
            weights[name] = parameters[start : start + shape.numel()].view(shape)
            start += shape.numel()
        return weights

    def _parts(
        self,
        pieces: Mapping[str, torch.Tensor],
        mapped: PublicMap | None,
        x: torch.Tensor,
        y: torch.Tensor,
        *,
        ghost: bool,
    ) -> list[Part]:
        """A part per parameter, in flat order but for filters, whose outputs come last; behind a
        public map one stored row per record, in flat order.
        """
        recorded = self._recorded[x.shape, y.shape, x.dtype]
        results = recorded(pieces, x, y)
        parts: list[Part] = []
        for name in self._shapes:
            how = recorded.undone.get(name)
            if how is None:
                rows = results[name].reshape(len(x), -1)
                turned = mapped is None and name in self._filters
                parts.append(Rows(outputs_last(rows, self._shapes[name]) if turned else rows))
                continue
            deltas, others = (results[factor] for factor in factor_names(name))
            if isinstance(how, Lookup):
                parts.append(Tokens.of(deltas, others, rows=how.rows, padding=how.padding))
            elif isinstance(how, LookupAndProduct):
                again, head = (results[factor][:, 0] for factor in more_factor_names(name))
                padding = how.lookup.padding
                parts.append(Tied.of((deltas, others), (again, head), padding=padding))
            elif isinstance(how, Patches):
                kernel = tuple(self._shapes[name][2:])
                window = Window(kernel, how.stride, how.padding, how.dilation)
                rows = weight_gradients(window, others[:, 0], deltas[:, 0])
                in_place = mapped is None and name in self._filters
                parts.append(Rows(rows if in_place else outputs_first(rows, self._shapes[name])))
            elif deltas.shape[1] == 1:
                parts.append(Outer(deltas[:, 0].contiguous(), others[:, 0].contiguous(), False))
            else:
                factors = ghost and mapped is None
                parts += products(deltas, others, bias=False, ghost=factors)
        if mapped is None:
            return parts
        rows = torch.cat([part.as_rows() for part in parts], dim=1)
        return [mapped.part(0, Rows(rows))]

    def restore(self, vector: torch.Tensor) -> torch.Tensor:
        """From the order of the parts to the flat order of the model, in place."""
        start = 0
        for name, shape in self._shapes.items():
            if name in self._filters:
                part = vector[start : start + shape.numel()]
                part.copy_(outputs_first(part[None], shape)[0])
            start += shape.numel()
        return vector
