"""A released model from its bare numbers, by whoever holds the plan: module and `model.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from sumus.data import Encoding
from sumus.parties.agreement import Agreement, declared_facts
from sumus.parties.server_model import prepared_without_records
from sumus.parties.sums import model_hash
from sumus.predicting import ModelFacts
from sumus.purity import released_model
from sumus.training import flat_parameters, load_flat

if TYPE_CHECKING:
    from torch import nn

__all__ = ["rebuilt", "weights_of"]


def rebuilt(
    agreement: Agreement, weights: npt.NDArray[np.floating]
) -> tuple[nn.Module, ModelFacts | None]:
    """The module with these weights, and what predictions need beside it; None of a plan that
    describes.
    """
    plan = agreement.plan
    module = prepared_without_records(agreement).model
    load_flat(module, torch.tensor(weights.astype(np.float64), dtype=torch.float64))
    module = released_model(module)
    if plan.describes:
        return module, None
    known = agreement.design.facts or declared_facts(plan)
    facts = ModelFacts.of(
        plan,
        module,
        labels=known.labels,
        shape=known.shape,
        encoding=Encoding.of_plan(plan.data),
        model_hash=model_hash(flat_parameters(module).double().numpy()),
    )
    return module, facts


def weights_of(module: nn.Module) -> bytes:
    """The trained parameters as a parcel holds them: little-endian, in their own precision."""
    flat = flat_parameters(module).numpy()
    return np.ascontiguousarray(flat, dtype=flat.dtype.newbyteorder("<")).tobytes()
