"""Which parameters of a model are trained and sent, by how their names begin."""

from __future__ import annotations

from typing import Final

from torch import nn

from sumus.errors import PlanError
from sumus.plan import TrainingPlan
from sumus.training.local_parameters import freeze_local
from sumus.training.parameter_names import names_begun_by

__all__ = ["freeze_untrained"]

_FIELD: Final = "training.tangent_layers"


def freeze_untrained(plan: TrainingPlan, model: nn.Module) -> nn.Module:
    """Take parameters out of the flat vector that stay with a silo, or that
    `training.tangent_layers` leaves at their first value, in place.
    """
    wanted = plan.training.tangent_layers
    if wanted is None:
        return freeze_local(plan, model)
    trained = set(names_begun_by(model, wanted, field=_FIELD))
    for name, parameter in model.named_parameters():
        if name not in trained:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        rule = "must name parameters that take a gradient"
        raise PlanError(_FIELD, wanted, rule, "Leave it out to train all of them.")
    return freeze_local(plan, model)
