"""How a run ends, in process and across machines alike: the released model and the summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from sumus.books import RunFolder
from sumus.data import Encoding
from sumus.parties import ServerParty, Telling, model_hash, write_model
from sumus.plan import TrainingPlan
from sumus.predicting import ModelFacts
from sumus.purity import released_model
from sumus.tasks import LabelFacts
from sumus.training import flat_parameters, load_flat

__all__ = ["facts_of", "finish", "hash_of", "loaded_model"]


def loaded_model(party: ServerParty) -> nn.Module:
    """The module with the released parameters in it."""
    load_flat(party.model, torch.tensor(party.server.released, dtype=torch.float64))
    return released_model(party.model)


def hash_of(model: nn.Module) -> str:
    """What `training.start_from` of a later plan calls a model."""
    return model_hash(flat_parameters(model).double().numpy())


def facts_of(
    plan: TrainingPlan,
    module: nn.Module,
    *,
    labels: LabelFacts,
    shape: tuple[int, ...],
    encoding: Encoding | None,
) -> ModelFacts | None:
    """What predictions need beside the weights; None of a run that describes.

    Args:
        shape: of one record in front of the plan's features.
        encoding: by which a row became one; None: records were arrays.
    """
    if plan.describes:
        return None
    return ModelFacts.of(
        plan, module, labels=labels, shape=shape, encoding=encoding, model_hash=hash_of(module)
    )


def finish(
    run: RunFolder,
    module: nn.Module,
    facts: ModelFacts | None,
    summary: Mapping[str, Any],
    telling: tuple[Telling, ...] = (),
) -> None:
    """Write the released model with what predictions need, close the journal with the summary, and
    tell who watches.
    """
    write_model(run, module)
    if run.summary is None:
        run.finish(summary, None if facts is None else facts.to_bytes())
    for watcher in telling:
        watcher.run_ends(summary)
