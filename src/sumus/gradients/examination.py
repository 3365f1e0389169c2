"""What is found out about a model before it sees a real record: its path, its outputs, and how many
records may be computed at once.

The fastest path is chosen by the shape of the model and its loss. Made-up records then show whether
a record's bits depend on its company; where they do, records are computed one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar, final

import numpy as np
import torch
from torch import nn

from sumus.errors import GuaranteeError, PlanError
from sumus.gradients.devices import PROCESSOR, DevicePath
from sumus.gradients.layered import LayeredPath
from sumus.gradients.linear import LinearModel
from sumus.gradients.losses import OwnLoss, record_loss
from sumus.gradients.parts import Outer
from sumus.gradients.preconditioning import PublicMap
from sumus.gradients.threads import one_thread_each
from sumus.gradients.vmapped import VmapPath
from sumus.noise import Grid
from sumus.purity import (
    Form,
    InputKind,
    examine,
    examine_loss,
    is_isolated,
    made_up_labels,
    require_precision,
    same_bits,
    try_out,
    verdict,
)
from sumus.tasks import Loss

__all__ = ["ExaminedModel", "made_up_parameters"]

T = TypeVar("T")
_CHUNK: Final = {"linear": 256, "layers": 64, "vmap": 64}


@final
class ExaminedModel:
    """A model with the path that its per-record gradients take, examined for each form of record
    when it is first used with it.

    Guarantee: what a record gets from `path` in chunks of the size that `chunk_for` returns has the
        same bits in any place and company, and after any other record, on this machine.

    Args:
        kind: of its input.
        memory_cap_bytes: bounds what a chunk may hold.
        device: that computes gradients, and on which records are shown to be apart.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        kind: InputKind,
        *,
        memory_cap_bytes: int,
        device: torch.device = PROCESSOR,
    ) -> None:
        self.loss, self.kind = loss, kind
        self._model, self._record_loss = model, record_loss(loss)
        layered = None if isinstance(loss, OwnLoss) else LayeredPath.of(model, loss)
        self.path: LayeredPath | DevicePath | VmapPath = layered or VmapPath(
            model, self._record_loss, most_bytes=memory_cap_bytes
        )
        self.device = device
        if device != PROCESSOR:
            self.path = self._on_device(layered)
        self.linear = LinearModel.of(model, loss) if self.path.name == "linear" else None
        self._largest_chunk = min(_CHUNK[self.path.name], self._most_records(memory_cap_bytes))
        self._chunks: dict[tuple[Form, bool], tuple[int, int]] = {}
        self._batches = 0
        self._lock = threading.Lock()

    def _on_device(self, layered: LayeredPath | None) -> DevicePath:
        if layered is None or not layered.on_devices:
            rule = 'must be "cpu" unless the model is a chain of Linear and Conv2d layers'
            raise PlanError("training.device", self.device.type, rule, 'Use "cpu".')
        return DevicePath(layered, self.device)

    def _most_records(self, memory_cap_bytes: int) -> int:
        """How many records' gradients fit below the cap."""
        numbers = self.path.numbers_per_record
        records = memory_cap_bytes // (require_precision(self._model).itemsize * numbers)
        if records < 1:
            rule = f"must hold one record's gradient ({numbers} numbers)"
            raise PlanError(
                "memory_cap_bytes", memory_cap_bytes, rule, "Raise the cap or use a smaller model."
            )
        return records

    def run(self, work: Sequence[Callable[[], T]]) -> list[T]:
        """Run work on one torch thread each, for the isolation check and for every batch, so that
        both give the same bits. Recorded functions run on all threads, one after the other.
        """
        if not isinstance(self.path, VmapPath):
            return one_thread_each(work)
        with torch.no_grad():
            return [piece() for piece in work]

    def chunk_for(self, form: Form, mapped: PublicMap | None = None) -> tuple[int, int]:
        """(records per chunk, model outputs) for a form of record; examines the model the first
        time and rechecks it now and then.

        Args:
            mapped: a public map in front of clipping, which is examined with the model.
        """
        asked = (form, mapped is not None)
        with self._lock:
            self._batches += 1
            if asked not in self._chunks:
                self._chunks[asked] = self._examined(form, mapped)
            elif isinstance(self.path, VmapPath) and _now_and_then(self._batches):
                self.run([self.path.recheck])
            return self._chunks[asked]

    def _examined(self, form: Form, mapped: PublicMap | None) -> tuple[int, int]:
        """What `_examine` says; of a chain that was examined already in this process, as by another
        silo's party, what it said then.
        """

        def examine_it() -> tuple[int, int]:
            with torch.no_grad():
                return self._examine(form, mapped)

        # a recording is made anew, of which purity keeps what it found out; a map is a party's own
        if isinstance(self.path, VmapPath) or mapped is not None:
            return examine_it()
        key = ("layers", self.kind, form, self._largest_chunk, self.device)
        return verdict(self._model, key, examine_it, loss=self._record_loss)

    def _examine(self, form: Form, mapped: PublicMap | None) -> tuple[int, int]:
        """Try the model on made-up records; fall back to single records if a record's bits depend
        on its company.
        """
        chunk, path = self._largest_chunk, self.path
        x = self.kind.records(chunk, form)
        outputs = self._outputs(form)
        y = made_up_labels(chunk, form, outputs).to(getattr(torch, self.loss.label_type))
        parameters = made_up_parameters(self._model)
        compute = self.computed_at(parameters, mapped)

        def isolated() -> bool:
            return self.run(
                [lambda: is_isolated(compute, x[:chunk], y[:chunk], company=self.kind.company())]
            )[0]

        if not isinstance(path, VmapPath):
            chunk = chunk if isolated() else 1
        else:
            for aligned in (False, True):
                record = partial(path.record, parameters, x, y, aligned=aligned)
                chunk = self.run([record])[0]
                key = ("isolated", form, chunk, aligned)
                if (
                    verdict(self._model, key, isolated, loss=self._record_loss)
                    if mapped is None
                    else isolated()
                ):
                    break
            else:
                chunk = 1
                self.run([lambda: path.record(parameters, x[:1], y[:1])])
        other = self.kind.records(chunk, form, seed=3)
        self.run([lambda: _require_repeatable(compute, x[:chunk], other, y[:chunk])])
        return chunk, outputs

    def _outputs(self, form: Form) -> int:
        """What the model returns for a record; whatever is a user's code must be a pure
        function.
        """
        if isinstance(self.path, VmapPath):
            asked = (self._model, self.kind, form, self._record_loss)
            label_type = getattr(torch, self.loss.label_type)
            if isinstance(self.loss, OwnLoss):
                examine_loss(*asked, label_type)
                return examine(*asked, label_type)
            return examine(*asked)
        return try_out(self._model, self.kind.records(1, form)).shape[1]

    def computed_at(
        self, parameters: torch.Tensor, mapped: PublicMap | None = None
    ) -> Callable[[torch.Tensor, torch.Tensor], list[torch.Tensor]]:
        """What a chunk's gradients are made of, in every form in which they are used."""
        chunk_gradients = self.path.bind(parameters, mapped)
        linear = self.linear.at(parameters) if self.linear and mapped is None else None

        def compute(chunk_x: torch.Tensor, chunk_y: torch.Tensor) -> list[torch.Tensor]:
            parts = chunk_gradients(chunk_x, chunk_y, ghost=False)
            # only what has positions is kept in another form for sums that are rounded once
            if not all(isinstance(part, Outer) for part in parts):
                parts = [*parts, *chunk_gradients(chunk_x, chunk_y, ghost=True)]
            integers = np.zeros(self.path.dimension, np.int64)
            closed = (
                [
                    torch.from_numpy(
                        linear.add(chunk_x, chunk_y, grid=Grid(1.0, 1), integers=integers)[0]
                    )
                ]
                if linear
                else []
            )
            return [*closed, *(tensor for part in parts for tensor in part.tensors())]

        return compute


def made_up_parameters(model: nn.Module) -> torch.Tensor:
    """A flat vector of parameters that is the same for every model of this size and precision."""
    size = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return 0.1 * torch.randn(
        size, generator=torch.Generator().manual_seed(1), dtype=require_precision(model)
    )


def _now_and_then(batches: int) -> bool:
    """At the 2nd, 4th, 8th, … batch, and at every 64th."""
    return batches % 64 == 0 or batches & (batches - 1) == 0


def _require_repeatable(
    compute: Callable[[torch.Tensor, torch.Tensor], list[torch.Tensor]],
    first: torch.Tensor,
    other: torch.Tensor,
    y: torch.Tensor,
) -> None:
    """Chunks a, b, a of what runs on real records: a must have the same bits again."""
    before = [tensor.clone() for tensor in compute(first, y)]
    compute(other, y)
    if not same_bits(before, compute(first, y)):
        raise GuaranteeError(
            "model gives a record other gradients after another one was computed, so records would "
            "see each other."
        )
