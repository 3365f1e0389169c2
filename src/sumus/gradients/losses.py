"""The losses that gradients are taken of: those of a task, or a function of one's own."""

from __future__ import annotations

from functools import cache
from typing import Any, final

import numpy.typing as npt
import torch

from sumus.errors import DataError
from sumus.purity import RecordLoss
from sumus.tasks import TASKS, Loss

__all__ = ["OwnLoss", "record_loss"]


def record_loss(loss: Loss) -> RecordLoss:
    """The loss of one record: (outputs (1, K), label (1, …)) → scalar."""
    return loss.function if isinstance(loss, OwnLoss) else _mean_loss(loss)


@cache
def _mean_loss(loss: Loss) -> RecordLoss:
    """One object per loss: what `purity` finds out about a model and a loss is kept by the loss's
    identity, and a bound method is a new object every time.
    """
    return loss.mean_loss


@final
class OwnLoss(Loss):
    """A user's function (outputs, label) → scalar, called with one made-up record at a time.

    It has no link, so only the general path takes it.

    Args:
        function: a pure function of one record's outputs (1, K) and label (1, …).
        labels: whose labels these are, as a task stores and checks them; None: whole numbers of any
            shape, each one of the classes.
    """

    def __init__(self, function: RecordLoss, labels: Loss | None = None) -> None:
        self.function, self._labels = function, labels
        if labels is not None:
            self.label_type = labels.label_type  # type: ignore[misc]

    def link(self, outputs: int) -> None:
        """None is known."""

    def check(self, labels: npt.NDArray[Any], outputs: int) -> None:
        """As the labels' task does, or every number of a label is one of the classes."""
        if self._labels is not None:
            self._labels.check(labels, outputs)
            return
        if len(labels) and not labels.size:
            raise DataError(
                f"labels must hold a number a record, got shape {labels.shape}. Check the data set."
            )
        TASKS["classification"].check(labels.reshape(-1), outputs)

    def loss(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """One number per record."""
        pairs = zip(outputs, labels, strict=True)
        return torch.stack([self.function(output[None], label[None]) for output, label in pairs])
