"""Σ of clipped integer gradients, exact in any order. Needs no plan.

A record's gradient has one of three shapes, and the sum is rounded in one of three ways:

    shape, by the model                            rounding "record"  "stochastic"  "sum"
    linear   δ ⊗ [x, 1]        linear.py           compiled loop      as layers     as layers
    layers   a part per layer  layered.py          truncated          stored rows   kept as factors
    vmap     one a parameter   vmapped.py          truncated          stored rows   kept as factors

    "record"      every record is truncated towards zero (compiled, int32 in blocks)
    "stochastic"  every record is rounded at random, without bias
    "sum"         the float64 sum is truncated once

A batch goes through the room like this: `per_record` (checks, chunks, threads) asks `examination`
for the path of the model and for how many records may be computed at once; the path returns `parts`
(`Outer`, `Rows`, `Tokens`, `Positions`: norms, truncated or weighted sums); `totals` clips and adds
them with the loops of `kernels`.

A chain goes through `layered`: `layers` is the table of layers whose gradient is known (`LAYERS`),
`passes` has those without parameters, `trunks` runs convolutions, activations and maxima of a record
as one program. `convolutions` and `windows` say where the numbers of a convolution lie, `tiles` adds
up products over such places. Any other model is recorded and goes through `vmapped`.

`tokens` has the loops of tables, `moments` and `scatter` those of normal equations, `losses` a user's
own loss, `preconditioning` public maps in front of clipping, `tangents` and `stored_tangents` outputs
and Jacobians as stored numbers, `frozen_front` the layers before any that is trained, `devices` lets
a chain's passes run elsewhere, `threads` one torch thread a piece of work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.gradients.devices import (
        device_facts as device_facts,
        require_device as require_device,
    )
    from sumus.gradients.examination import made_up_parameters as made_up_parameters
    from sumus.gradients.frozen_front import (
        behind as behind,
        split_at_training as split_at_training,
    )
    from sumus.gradients.kernels import (
        outer_norms2 as outer_norms2,
        row_norms2 as row_norms2,
        run_pass as run_pass,
        scales as scales,
        to_capped_residuals as to_capped_residuals,
    )
    from sumus.gradients.layers import LAYERS as LAYERS
    from sumus.gradients.losses import OwnLoss as OwnLoss, record_loss as record_loss
    from sumus.gradients.moments import add_moments as add_moments
    from sumus.gradients.per_record import PerRecordGradients as PerRecordGradients
    from sumus.gradients.preconditioning import (
        Block as Block,
        KroneckerMap as KroneckerMap,
        PublicMap as PublicMap,
        SecondMoments as SecondMoments,
        blocks_of as blocks_of,
    )
    from sumus.gradients.scatter import ONE as ONE, centred_moments as centred_moments
    from sumus.gradients.stored_tangents import StoredChunk as StoredChunk
    from sumus.gradients.tangents import Tangents as Tangents
    from sumus.gradients.threads import (
        one_thread_each as one_thread_each,
        one_torch_thread as one_torch_thread,
    )
    from sumus.gradients.units import Units as Units

__getattr__, __dir__, __all__ = door(
    __name__,
    devices="device_facts require_device",
    examination="made_up_parameters",
    frozen_front="behind split_at_training",
    kernels="outer_norms2 row_norms2 run_pass scales to_capped_residuals",
    losses="OwnLoss record_loss",
    layers="LAYERS",
    moments="add_moments",
    per_record="PerRecordGradients",
    preconditioning="Block KroneckerMap PublicMap SecondMoments blocks_of",
    scatter="ONE centred_moments",
    stored_tangents="StoredChunk",
    tangents="Tangents",
    threads="one_thread_each one_torch_thread",
    units="Units",
)
