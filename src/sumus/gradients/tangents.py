"""Outputs and Jacobians of records as stored numbers: what a linearised network is made of.

    tangents = Tangents(model, task, kind, form)
    outputs, parts = tangents.of(parameters, x)     # z_x and J_x of every record of a chunk
    StoredChunk.within(outputs, parts, …)           # below public bounds, in float64

A fully connected layer's part of the Jacobian is B ⊗ [a, 1] (`Product`), B how the outputs answer
to the layer's own outputs and a what entered it: it is kept in these factors. Everything else is
kept as it is (`Table`). Behind a public map P every row of J is P·row (`behind`). Numbers of one
record follow from that record and the parameters alone: what runs is recorded on made-up records and
tested for isolation, down to what is stored of them, or else computed record by record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.func import functional_call, jacrev

from sumus.errors import GuaranteeError
from sumus.gradients.losses import record_loss
from sumus.gradients.mapped_tangents import mapped_parts, tensors_of
from sumus.gradients.preconditioning import PublicMap
from sumus.gradients.stored_tangents import Floats, Measured, Product, Table
from sumus.gradients.threads import one_thread_each
from sumus.purity import (
    ChunkFunction,
    Form,
    InputKind,
    call_with,
    certified_gradients,
    examine,
    fresh_chain,
    is_isolated,
    layers_of,
    named_parameters,
    refuse_mixing_layers,
    require_precision,
    same_bits,
    verdict,
)
from sumus.tasks import Link, Loss

__all__ = ["Tangents"]

_LARGEST_CHUNK: Final = 64
_BYTES: Final = 64 << 20  # that a chunk's Jacobians may take in float64
_CHANGED: Final = (
    "model gives a record other derivatives after another one was computed, so records would see "
    "each other."
)


@final
class Tangents:
    """Outputs and Jacobians of a model at any parameters, in chunks of records.

    Guarantee: what a record gets has the same bits in any place and company, on this machine. A
        user's code runs on made-up records only.

    Args:
        model: parameters with `requires_grad` are the flat vector.
        task: whose loss the outputs have.
        kind: of the model's input.
        form: of a record.
    """

    def __init__(self, model: nn.Module, task: Loss, kind: InputKind, form: Form) -> None:
        refuse_mixing_layers(model)
        require_precision(model)
        self._model, self._task, self._kind = model, task, kind
        self._loss = record_loss(task)
        self._sizes = {
            name: parameter.numel()
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        self.dimension = sum(self._sizes.values())
        self._factored = _factored(model, form)
        self._form = form
        self._mapped: PublicMap | None = None
        self._examine()

    @property
    def chunk(self) -> int:
        """Records that are computed at once."""
        return self._function.chunk

    def behind(self, mapped: PublicMap) -> None:
        """Put a public map behind what is computed from here on; records are taken one by one if
        their bits depend on company with the first map in place.
        """
        examined = self._mapped is not None
        self._mapped = mapped
        if examined:
            return
        weights, x = self._made_up(self.chunk)
        if not self._apart(weights, x):
            self._function = self._recorded(weights, x[:1])

    def of(
        self, parameters: npt.NDArray[np.float64], x: torch.Tensor
    ) -> tuple[Floats, tuple[Product | Table, ...]]:
        """z and the parts of J for the records of one chunk, which may be short."""
        x = self._kind.cast(x.detach())
        count = len(x)
        if count > self.chunk:
            raise GuaranteeError(f"a chunk holds at most {self.chunk} records, got {count}.")
        if count < self.chunk:
            x = torch.cat([x, x.new_zeros(self.chunk - count, *x.shape[1:])])
        flat = torch.from_numpy(np.ascontiguousarray(parameters)).to(require_precision(self._model))
        weights = named_parameters(self._model, flat)
        outputs, parts = one_thread_each([lambda: self._numbers(weights, x)])[0]
        return outputs[:count], tuple(part.first(count) for part in parts)

    def _numbers(
        self, weights: Mapping[str, torch.Tensor], x: torch.Tensor
    ) -> tuple[Floats, tuple[Product | Table, ...]]:
        """What is stored of every record of a whole chunk."""
        found = self._function(weights, x)
        # as float32: squares, products and sums of such numbers neither overflow nor vanish in
        # float64, and what is no float32 is infinite, so that the record adds nothing
        stored = {name: tensor.float().double().numpy() for name, tensor in found.items()}
        parts = self._parts(stored)
        return stored["outputs"], parts if self._mapped is None else mapped_parts(
            parts, self._mapped
        )

    def _parts(self, stored: Mapping[str, Floats]) -> tuple[Product | Table, ...]:
        """In the order of the flat vector."""
        parts: list[Product | Table] = []
        start, names = 0, list(self._sizes)
        for place, name in enumerate(names):
            layer = name.removesuffix(".weight") if name.endswith("weight") else ""
            if name.endswith("weight") and layer in self._factored:
                bias = self._factored[layer]
                right = stored[f"in {layer}"]
                if bias:
                    right = np.concatenate([right, np.ones((len(right), 1))], axis=1)
                parts.append(Product(start, stored[f"out {layer}"], right, bias))
            elif not (place and name.endswith("bias") and self._in_product(names[place - 1], name)):
                rows = stored[name]
                parts.append(Table(start, rows.reshape(*rows.shape[:2], -1)))
            start += self._sizes[name]
        return tuple(parts)

    def _in_product(self, before: str, name: str) -> bool:
        """Whether this is the bias of a layer that is kept in factors."""
        layer = name.removesuffix(".bias")
        return before == f"{layer}.weight" and self._factored.get(layer, False)

    def _examine(self) -> None:
        """Record on made-up records; single ones if a record's bits depend on company."""
        outputs = self.outputs = examine(self._model, self._kind, self._form, self._loss)
        tables = sum(self._sizes.values()) - self._in_factors()
        numbers = outputs * max(tables, 1)
        chunk = max(1, min(_LARGEST_CHUNK, _BYTES // (8 * numbers)))
        weights, x = self._made_up(chunk)
        self._function = self._recorded(weights, x)
        x = x[: self.chunk]
        key = ("tangents", self._form, self.chunk)
        if not verdict(self._model, key, lambda: self._apart(weights, x), loss=self._loss):
            self._function, x = self._recorded(weights, x[:1]), x[:1]
        other = self._kind.records(self.chunk, self._form, seed=3)

        def repeatable() -> bool:
            before = [tensor.clone() for tensor in self._stored(weights, x)]
            self._stored(weights, other)
            return same_bits(before, self._stored(weights, x))

        if not one_thread_each([repeatable])[0]:
            raise GuaranteeError(_CHANGED)

    def _apart(self, weights: Mapping[str, torch.Tensor], x: torch.Tensor) -> bool:
        """Whether what is stored of a record has the same bits in any place and company of a chunk,
        and in one that is short.
        """

        def compute(rows: torch.Tensor, _: torch.Tensor) -> list[torch.Tensor]:
            return self._stored(weights, rows)

        def alike() -> bool:
            whole = compute(x, x)
            return all(
                same_bits([tensor[:count] for tensor in whole], self._stored(weights, x, count))
                for count in {1, len(x) // 2, len(x) - 1} - {0}
            )

        def isolated() -> bool:
            return is_isolated(compute, x, x, company=self._kind.company()) and alike()

        return one_thread_each([isolated])[0]

    def _stored(
        self, weights: Mapping[str, torch.Tensor], x: torch.Tensor, count: int | None = None
    ) -> list[torch.Tensor]:
        """All that is stored of the first records of a whole chunk follows from."""
        outputs, parts = self._numbers(weights, x)
        measured = Measured.of(
            outputs[:count],
            tuple(part.first(len(x) if count is None else count) for part in parts),
            compared=self._task.link(self.outputs) is Link.SOFTMAX,
        )
        lengths = (measured.reach, measured.length, measured.outputs_length)
        numbers = tensors_of(measured.outputs, measured.parts)
        return [*(torch.from_numpy(each) for each in lengths), *numbers]

    def _made_up(self, chunk: int) -> tuple[Mapping[str, torch.Tensor], torch.Tensor]:
        """Parameters and records that examinations look at."""
        generator = torch.Generator().manual_seed(1)
        flat = 0.1 * torch.randn(
            self.dimension, generator=generator, dtype=require_precision(self._model)
        )
        return named_parameters(self._model, flat), self._kind.records(chunk, self._form)

    def _recorded(self, weights: Mapping[str, torch.Tensor], x: torch.Tensor) -> ChunkFunction:
        return certified_gradients(self._model, self._loss, self._single, weights, x)

    def _in_factors(self) -> int:
        return sum(
            size for name, size in self._sizes.items() if name.rpartition(".")[0] in self._factored
        )

    def _single(
        self, weights: Mapping[str, torch.Tensor], record: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Outputs and derivatives of one record: by a layer's outputs where factors are kept, by
        the parameters themselves otherwise.
        """
        dense = {
            name: weights[name]
            for name in self._sizes
            if name.rpartition(".")[0] not in self._factored
        }
        probes = {
            layer: record.new_zeros(weights[f"{layer}.weight"].shape[0], dtype=self._kind.dtype)
            for layer in self._factored
        }

        def outputs_of(
            own: Mapping[str, torch.Tensor], nudges: Mapping[str, torch.Tensor]
        ) -> tuple[torch.Tensor, tuple[torch.Tensor, dict[str, torch.Tensor]]]:
            named = {**weights, **own}
            entered: dict[str, torch.Tensor] = {}
            if not self._factored:
                outputs = call_with(self._model, named, record[None])[0]
            else:
                outputs, entered = self._nudged(named, nudges, record)
            return outputs, (outputs, entered)

        (by_own, by_nudge), (outputs, entered) = jacrev(outputs_of, argnums=(0, 1), has_aux=True)(
            dense, probes
        )
        return (
            {"outputs": outputs}
            | dict(by_own)
            | {f"out {layer}": by_nudge[layer] for layer in self._factored}
            | {f"in {layer}": entered[layer] for layer in self._factored}
        )

    def _nudged(
        self,
        weights: Mapping[str, torch.Tensor],
        nudges: Mapping[str, torch.Tensor],
        record: torch.Tensor,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Outputs of a chain whose factored layers' outputs are moved by something, and what
        entered these layers.
        """
        chain = fresh_chain(self._model)
        if chain is None:
            raise GuaranteeError("model has changed since it was examined. Leave it alone.")
        entered: dict[str, torch.Tensor] = {}
        hidden = record[None]
        for name, layer in _named_layers(chain):
            own = {
                key: weights[f"{name}.{key}"]
                for key, _ in layer.named_parameters()
                if f"{name}.{key}" in weights
            }
            if name in nudges:
                entered[name] = hidden[0]
            hidden = functional_call(layer, own, (hidden,))
            if name in nudges:
                hidden = hidden + nudges[name]
        return hidden[0], entered


def _named_layers(chain: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers of nested rows, by the names that their parameters begin with."""
    names = {id(module): name for name, module in chain.named_modules()}
    return [(names[id(layer)], layer) for layer in layers_of(chain)]


def _factored(model: nn.Module, form: Form) -> dict[str, bool]:
    """Fully connected layers of a chain whose Jacobian is kept in factors, by name, with whether
    they have a bias: those that see one vector a record and are trained whole.
    """
    chain = fresh_chain(model)
    if chain is None or not isinstance(chain, nn.Sequential):
        return {}
    found: dict[str, bool] = {}
    flat = len(form.shape) == 1
    parameters = [id(parameter) for parameter in model.parameters()]
    for name, layer in _named_layers(chain):
        own = list(layer.parameters())
        flat = flat or type(layer) is nn.Flatten
        once = all(parameters.count(id(parameter)) == 1 for parameter in own)
        if flat and type(layer) is nn.Linear and once and all(each.requires_grad for each in own):
            found[name] = layer.bias is not None
    return found
