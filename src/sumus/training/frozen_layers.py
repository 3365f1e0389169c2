"""Layers that `training.tangent_layers` leaves alone, with the values of a public start.

    training.frozen_layers = sha256 of their numbers as little-endian float32, in flat order

The plan names the values, and whoever prepares the plan's model must hold them: a party that does
not is refused before a record is touched. Across machines every party keeps them in its folder of
prepared data, under their hash.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sumus.data import cache_folder
from sumus.errors import DataError, PlanError
from sumus.files import replace_atomically
from sumus.plan import TrainingPlan

if TYPE_CHECKING:  # a plain install reads starts without torch
    from pathlib import Path

    from torch import nn

__all__ = ["frozen_hash", "frozen_parameters", "keep_frozen", "kept_frozen", "load_frozen"]

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


def keep_frozen(values: Vector) -> Path:
    """Keep them on this machine for plans that name them; returns the file."""
    path = _place(frozen_hash(values))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_atomically(path, np.ascontiguousarray(values, dtype="<f4").tobytes())
    except OSError as error:
        fix = "Make room there, or set SUMUS_DATA to another folder."
        raise DataError(f"{path} cannot be written: {error.strerror or error}. {fix}") from None
    return path


def kept_frozen(plan: TrainingPlan) -> Vector | None:
    """Those of a plan that are kept on this machine; None: there are none."""
    named = plan.training.frozen_layers
    if named is None:
        return None
    try:
        content = _place(named).read_bytes()
    except OSError:
        return None
    whole = content[: len(content) // 4 * 4]  # of a damaged file, whose hash is another one
    return np.frombuffer(whole, dtype="<f4").astype(np.float64)


def _place(named: str) -> Path:
    """The file of this name's values."""
    return cache_folder() / "frozen-layers" / f"{named.removeprefix('sha256:')}.f4"


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
        rule = "names layers of a public start that is not on this machine"
        fix = "Run: sumus data keep FILE, with the file that `sumus pretrain` wrote."
        raise PlanError(_FIELD, named, rule, fix)
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
