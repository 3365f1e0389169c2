"""The Kronecker preconditioner of a round, from public things alone: the round's model, made-up
inputs, and labels drawn from the model by a public seed.

    L_b = (E[g_b·g_bᵀ]/mean eigenvalue + damping)^(−1/2),   R_b from E[g_bᵀ·g_b]      each matrix b
    P   = ⊕ L_b ⊗ R_b,       sent: clip(P·g),       the model moves along Pᵀ of the decoded sum

`training.preconditioner = "inputs"` leaves the outputs' side alone, L_b = 1.
Silos and server compute it each for themselves. Should their floats differ in the last bits, the
model moves by a hair less exactly; the guarantee holds for every P that is public
(docs/mathematics.md, theorem 16).

Reference: Martens and Grosse 2015 (arXiv:1503.05671), Gupta, Koren and Singer 2018
    (arXiv:1802.09568).
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import ClassVar, Final, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.func import functional_call

from sumus.errors import PlanError
from sumus.features import made_up_pictures
from sumus.gradients import (
    KroneckerMap,
    OwnLoss,
    PerRecordGradients,
    PublicMap,
    SecondMoments,
    blocks_of,
    one_torch_thread,
)
from sumus.plan import TrainingPlan
from sumus.purity import Form, InputKind, is_chain, made_up_labels
from sumus.tasks import Link, Loss
from sumus.training.frozen_layers import frozen_parameters
from sumus.training.own_loss import own_loss
from sumus.training.preparation import Prepared

__all__ = ["Preconditioner"]

_INPUTS: Final = 640
_SEED: Final = 17
_LOCK: Final = threading.Lock()
_KEPT: Final = 2  # rounds whose map is kept: silos of one process share theirs


@final
class Preconditioner:
    """The public map of every round of a plan.

    Guarantee: `at` is a function of the plan, the model's architecture and the parameters that it
        is given; no record is within its reach.

    Args:
        plan: names damping, loss and features.
        model: with the parameters that are sent.
        form: of a record in front of the model.
        loss: given in Python instead of the task's.
    """

    _maps: ClassVar[OrderedDict[bytes, PublicMap]] = OrderedDict()

    def __init__(
        self, plan: TrainingPlan, model: nn.Module, form: Form, loss: Loss | None = None
    ) -> None:
        if plan.training.local_parameters is not None:
            rule = "cannot stand beside local parameters (the map is that of the whole model)"
            raise PlanError(
                "training.preconditioner",
                plan.training.preconditioner,
                rule,
                "Leave one of them out.",
            )
        self._plan, self._model, self._form = plan, model, form
        self._loss = loss or plan.task
        self._gradients = PerRecordGradients(
            model, loss=self._loss, vocabulary=plan.training.vocabulary
        )

    @classmethod
    def of(
        cls,
        plan: TrainingPlan,
        model: nn.Module,
        shape: Sequence[int],
        *,
        loss: Loss | None = None,
    ) -> Preconditioner | None:
        """Of a plan that asks for one; None where it does not.

        Args:
            shape: of a record in front of the model.
        """
        known = "training.preconditioner" in plan.rules.keys
        if not known or plan.training.preconditioner == "none":
            return None
        kind = InputKind.of(model, plan.training.vocabulary)
        whole = kind.vocabulary is not None and plan.training.features == "none"
        return cls(plan, model, Form(tuple(shape), whole, plan.task.label_shape), loss)

    @classmethod
    def on_server(
        cls, plan: TrainingPlan, prepared: Prepared, shape: Sequence[int]
    ) -> Preconditioner | None:
        """As `of`, for whoever holds the model and perhaps a loss given in Python."""
        return cls.of(plan, prepared.model, shape, loss=own_loss(plan, prepared.loss))

    def at(self, parameters: npt.NDArray[np.float64]) -> PublicMap:
        """The map at a round's public model."""
        sent = np.asarray(parameters, dtype=np.float32)
        asked = hashlib.sha256(
            f"{self._plan.hash}/{self._form}/{self._model}/".encode()
            + sent.tobytes()
            + frozen_parameters(self._model).tobytes()
        ).digest()
        if isinstance(self._loss, OwnLoss):  # which its type does not name
            return self._computed(torch.from_numpy(sent.copy()))
        maps = type(self)._maps
        with _LOCK:
            if asked not in maps:
                maps[asked] = self._computed(torch.from_numpy(sent.copy()))
                while len(maps) > _KEPT:
                    maps.popitem(last=False)
            return maps[asked]

    @classmethod
    def forget(cls) -> None:
        """Drop the maps that are kept, for tests."""
        with _LOCK:
            cls._maps.clear()

    def _computed(self, parameters: torch.Tensor) -> PublicMap:
        """On one thread: the map of a round that is repeated has the same bits, however many
        silos compute side by side.
        """
        with one_torch_thread():
            return self._map(parameters)

    def _map(self, parameters: torch.Tensor) -> PublicMap:
        inputs = made_up_inputs(self._plan, self._model, self._form)
        outputs = self._gradients.examine(self._form)
        labels = made_up_labels(len(inputs), self._form, outputs)
        if not isinstance(self._loss, OwnLoss) and is_chain(self._model):
            labels = self._drawn(parameters, inputs, labels, outputs)
        blocks = blocks_of(self._model)
        moments = SecondMoments(blocks)
        for start, part in self._gradients.parts_of(parameters, inputs, labels):
            moments.add(start, part)
        sides = moments.sides()
        if self._plan.training.preconditioner == "inputs":
            sides = [(torch.zeros_like(left), right) for left, right in sides]
        return KroneckerMap.of_moments(blocks, sides, damping=self._plan.training.damping)

    def _drawn(
        self, parameters: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor, outputs: int
    ) -> torch.Tensor:
        """Labels as the model expects them, drawn by a public seed, where its outputs say how
        likely each is.
        """
        link = self._loss.link(outputs)
        if link not in (Link.SOFTMAX, Link.LOGISTIC) or labels.dim() > 1:
            return labels
        weights, start = {}, 0
        for name, each in self._model.named_parameters():
            if each.requires_grad:
                stretch = parameters[start : start + each.numel()]
                weights[name] = stretch.view_as(each).to(each.dtype)
                start += each.numel()
        with torch.no_grad():
            scores = functional_call(self._model, weights, (inputs,))
        generator = torch.Generator().manual_seed(_SEED)
        likely = torch.nan_to_num(
            scores.softmax(1) if link is Link.SOFTMAX else scores.sigmoid(), nan=0.5
        )
        if link is Link.SOFTMAX:
            return torch.multinomial(likely, 1, generator=generator)[:, 0]
        return (torch.rand(len(likely), generator=generator) < likely[:, 0]).to(labels.dtype)


def made_up_inputs(plan: TrainingPlan, model: nn.Module, form: Form) -> torch.Tensor:
    """Public inputs of a model: pictures of shapes where it takes pictures, otherwise tokens or
    numbers drawn by a public seed.
    """
    kind = InputKind.of(model, plan.training.vocabulary)
    pictures = len(form.shape) == 3 and form.shape[0] in (1, 3) and kind.vocabulary is None
    if not pictures:
        return kind.records(_INPUTS, form, seed=_SEED)
    drawn = made_up_pictures(_INPUTS, form.shape, seed=_SEED)
    centred = plan.training.features == "centred"
    return (2.0 * drawn - 1.0 if centred else drawn).to(kind.dtype).contiguous()
