"""A user's loss must be a pure function of one record's outputs and label.

It is tried on made-up outputs, one record at a time and in company. That it sees one record at a
time when gradients are taken rests on `recording`; here is said what is wrong while it can be
mended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from sumus.errors import DataError, GuaranteeError
from sumus.purity.checks import RECORDS, require_pure
from sumus.purity.made_up import Form, made_up_labels
from sumus.purity.recording import first_line, operators_only

__all__ = ["require_pure_loss"]

_TOLERANCE = 1e-3  # of the largest loss: far above rounding, far below what another record does


def require_pure_loss(
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    *,
    outputs: int,
    form: Form,
    dtype: torch.dtype,
    label_type: torch.dtype,
) -> None:
    """Refuse a loss that is no pure function of one record.

    Guarantee: for made-up records the same bits every time, nothing kept, nothing drawn, a
        gradient at the outputs, and of several records the sum or the mean of theirs.

    Args:
        loss: (outputs (1, K), label (1, …)) → one number.
        outputs: K.
        form: of a record, for the shape of its label.
        dtype: of outputs; `label_type`: of labels, as the task stores them.
    """
    generator = torch.Generator().manual_seed(4)
    z = torch.randn(RECORDS, outputs, generator=generator, dtype=dtype)
    y = made_up_labels(RECORDS, form, outputs).to(label_type)

    def compute(record: int) -> list[torch.Tensor]:
        leaf = z[record : record + 1].clone().requires_grad_()
        with torch.enable_grad():
            value = _value(loss, leaf, y[record : record + 1].clone())
            if not value.requires_grad:
                raise DataError(
                    "loss has no gradient at the model's outputs. Compute it from them by torch's "
                    "operators."
                )
            (gradient,) = torch.autograd.grad(value, leaf)
        return [value.detach(), gradient.clone(memory_format=torch.contiguous_format)]

    with operators_only():
        alone = require_pure(compute, watched={"": loss}, what="loss")
        with torch.no_grad():
            _refuse_company(loss, z, y, torch.stack([outcome[0] for outcome in alone]))


def _value(loss: Callable[..., Any], outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """One record's loss; whatever goes wrong in its code becomes one line."""
    try:
        value = loss(outputs, labels)
    except GuaranteeError:
        raise
    except Exception as error:
        taken = f"outputs {tuple(outputs.shape)} and a label {tuple(labels.shape)}"
        raise DataError(
            f"loss cannot take {taken} of one record: {first_line(error)}. Return one number for "
            "one record."
        ) from None
    if not isinstance(value, torch.Tensor) or value.dim() or not value.is_floating_point():
        shown = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise DataError(
            f"loss must return one number for one record, a tensor without dimensions, got {shown}."
            " Take its sum or mean."
        )
    return value


def _refuse_company(
    loss: Callable[..., Any], z: torch.Tensor, y: torch.Tensor, alone: torch.Tensor
) -> None:
    """A loss that compares records would be another function than its author's where it sees them
    one by one. One for single records only may fail or look at the first.
    """
    try:
        together = loss(z.clone(), y.clone())
    except Exception:
        return
    if not isinstance(together, torch.Tensor) or together.dim():
        return
    scale = float(torch.nan_to_num(alone).abs().max()) * len(alone)
    expected = torch.stack([alone.sum(), alone.mean(), alone[0]])
    close = torch.isclose(
        expected,
        together.to(expected.dtype),
        rtol=0.0,
        atol=_TOLERANCE * (scale + 1e-30),
        equal_nan=True,
    )
    if not bool(close.any()):
        raise GuaranteeError(
            "loss mixes records: of three together it is neither the sum nor the mean of theirs. "
            "Compute it from one record's outputs and label."
        )
