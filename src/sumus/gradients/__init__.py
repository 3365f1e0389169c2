"""Σ of clipped integer gradients, exact in any order. Needs no plan.

A gradient is kept in one of three shapes and rounded in one of three ways:

    shape of a record's gradient                    rounding of the sum
    linear    residual ⊗ input    (linear.py)       record      truncated, record by record
    layers    parts per layer     (layers.py)       stochastic  unbiased, record by record
    rows      one row per record  (vmapped.py)      sum         of the float sum, once

`per_record` chooses the shape for a model, `parts` says what a shape must offer, `totals` adds up,
`kernels` holds the compiled loops, `images` those of convolutions, `threads` runs silos side by
side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.gradients.kernels import (
        outer_norms2 as outer_norms2,
        run_pass as run_pass,
        scales as scales,
    )
    from sumus.gradients.losses import record_loss as record_loss
    from sumus.gradients.per_record import (
        PerRecordGradients as PerRecordGradients,
        made_up_parameters as made_up_parameters,
    )
    from sumus.gradients.threads import one_torch_thread as one_torch_thread

__getattr__, __dir__, __all__ = door(
    __name__,
    kernels="outer_norms2 run_pass scales",
    losses="record_loss",
    per_record="PerRecordGradients made_up_parameters",
    threads="one_torch_thread",
)
