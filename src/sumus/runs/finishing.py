"""How a run ends, in process and across machines alike: the released model and the summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from sumus.books import RunFolder
from sumus.parties import ServerParty, Telling, model_hash, write_model
from sumus.purity import released_model
from sumus.training import flat_parameters, load_flat

__all__ = ["finish", "hash_of", "loaded_model"]


def loaded_model(party: ServerParty) -> nn.Module:
    """The module with the released parameters in it."""
    load_flat(party.model, torch.tensor(party.server.released, dtype=torch.float64))
    return released_model(party.model)


def hash_of(model: nn.Module) -> str:
    """What `training.start_from` of a later plan calls a model."""
    return model_hash(flat_parameters(model).double().numpy())


def finish(
    run: RunFolder,
    model: nn.Module,
    summary: Mapping[str, Any],
    telling: tuple[Telling, ...] = (),
) -> None:
    """Write the released model, close the journal with the summary, and tell who watches."""
    write_model(run, model)
    if run.summary is None:
        run.finish(summary)
    for watcher in telling:
        watcher.run_ends(summary)
