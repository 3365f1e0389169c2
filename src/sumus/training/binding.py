"""What a run's noise belongs to, in 32 bytes: records, their features, and the function that the
model is.

The name and the layers of a module say little about it: the same class with another attribute, or
    with another `forward`, is another
function. So what is bound is what runs: the recorded operators with their constants, and the bits
of gradients.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from sumus.gradients import PerRecordGradients, made_up_parameters
from sumus.plan import TrainingPlan
from sumus.purity import CHUNK, InputKind, bits_of, certified_logits, is_chain, made_up_labels
from sumus.tasks import Task
from sumus.training.local import UPDATERS
from sumus.training.local.plain_steps import mean_loss
from sumus.training.own_loss import own_loss
from sumus.training.preparation import Prepared

__all__ = ["bound_to"]


def bound_to(secret: bytes, bench: Prepared, plan: TrainingPlan) -> bytes:
    """A keyed digest of everything that silos compute from besides plan and checkpoint.

    Guarantee: other records, other persons behind them, features, fixed weights or operators of the
        model give another digest. Without the secret nobody can try out records on it. A user's
        module sees made-up records only; real ones go through what was recorded of it.

    Args:
        secret: of the run, 32 bytes.
        bench: records behind the feature map, and the model.
        plan: resolved.
    """
    digest = hmac.new(secret, f"sumus run/{bench.model}".encode(), "sha256")
    for silo in bench.data.silos:
        for part in (silo.train, silo.validation, silo.test):
            digest.update(f"/{silo.name}/{part.x.shape}/{part.x.dtype}/".encode())
            digest.update(np.ascontiguousarray(part.x).data)
            digest.update(np.ascontiguousarray(part.y).data)
            if part.persons is not None:  # whose rows they are
                digest.update(b"/persons/")
                digest.update(np.ascontiguousarray(part.persons).data)
    fixed = [parameter for parameter in bench.model.parameters() if not parameter.requires_grad]
    digest.update(bits_of([*fixed, *bench.model.buffers()]))
    # what promises nothing takes any module, and what counts has none
    if plan.rules.private and not plan.describes:
        for piece in _function(bench, plan):
            digest.update(piece)
    return digest.digest()


def _function(bench: Prepared, plan: TrainingPlan) -> Iterator[bytes]:
    """Digests of the model's operators and of its gradients at made-up parameters: the trained ones
    come from the checkpoint.
    """
    model, training, train = bench.model, plan.training, [silo.train for silo in bench.data.silos]
    kind = InputKind.of(model, training.vocabulary)
    form = kind.form(torch.from_numpy(train[0].x[:0]), torch.from_numpy(train[0].y[:0]))
    classes = len(bench.data.labels.names)
    labels = made_up_labels(CHUNK, form, classes)
    x, y = kind.records(CHUNK, form), labels.to(getattr(torch, plan.task.label_type))
    if not is_chain(model):
        yield certified_logits(model, kind, form).digest()
    if not UPDATERS[training.algorithm].per_record and is_chain(model):
        yield _plain_gradient(model, plan.task, x, y)
        return
    loss = own_loss(plan, bench.loss) or plan.task
    gradients = PerRecordGradients(
        model, loss=loss, vocabulary=training.vocabulary, device=training.device
    )
    yield gradients.digest(x, y)
    firsts = [records for records in train if len(records)][:CHUNK]
    if firsts:
        first_x, first_y = (
            np.concatenate([part[:1] for part in parts])
            for parts in zip(*((r.x, r.y) for r in firsts), strict=True)
        )
        yield gradients.digest(torch.from_numpy(first_x), torch.from_numpy(first_y))


def _plain_gradient(model: nn.Module, task: Task, x: torch.Tensor, y: torch.Tensor) -> bytes:
    """Loss and gradient of a made-up batch, as algorithms with plain steps take them."""
    parameters = made_up_parameters(model).requires_grad_()
    loss = mean_loss(model, task, parameters, x, y)
    return bits_of([loss, *torch.autograd.grad(loss, parameters)])
