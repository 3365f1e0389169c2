"""Layers that `training.tangent_layers` leaves alone, with the values of a public start.

    training.frozen_layers = sha256 of their numbers as little-endian float32, in flat order

The plan names the values, and whoever prepares the plan's model must hold them: a party that does
not is refused before a record is touched.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sumus.errors import PlanError
from sumus.plan import TrainingPlan

if TYPE_CHECKING:  # a plain install reads starts without torch
    from torch import nn

__all__ = ["frozen_hash", "frozen_parameters", "load_frozen"]

Vector = npt.NDArray[np.float64]
_FIELD = "training.frozen_layers"


def frozen_hash(values: Vector) -> str:
    """What a plan calls them."""
    sent = np.ascontiguousarray(values, dtype="<f4")
    return f"sha256:{hashlib.sha256(sent.data.cast('B')).hexdigest()}"


def frozen_parameters(model: nn.Module) -> Vector:
    """All parameters that take no gradient as one vector, in the order of `model.parameters()`."""
    import torch

    kept = [each.detach().reshape(-1) for each in model.parameters() if not each.requires_grad]
    numbers: Vector = torch.cat(kept).double().numpy() if kept else np.zeros(0)
    return numbers


def load_frozen(plan: TrainingPlan, model: nn.Module, values: Vector | None) -> None:
    """Write the values that the plan names into the layers that are not trained.

    Guarantee: refuses a plan that names values without them, and other values than it names.

    Args:
        values: of a public start; None: this party has none.
    """
    import torch

    named = plan.training.frozen_layers
    if named is None and values is None:
        return
    if values is None:
        rule = "names layers of a public start, which this party cannot have"
        raise PlanError(_FIELD, named, rule, "Run it with `sumus train --start-from FILE`.")
    if frozen_hash(values) != named:
        rule = f"names other layers than those that were given, {frozen_hash(values)}"
        raise PlanError(_FIELD, named, rule, "Give the public start of the plan.")
    kept = [each for each in model.parameters() if not each.requires_grad]
    count = sum(each.numel() for each in kept)
    if len(values) != count:
        rule = f"names {len(values)} numbers, the model has {count} that are not trained"
        raise PlanError(_FIELD, named, rule, "Make the public start with the same plan.")
    place = 0
    with torch.no_grad():
        for each in kept:
            stretch = torch.from_numpy(values[place : place + each.numel()])
            each.copy_(stretch.view_as(each))
            place += each.numel()
