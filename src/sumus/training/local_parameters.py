"""Parameters that never leave a silo: an intercept of its own, or tagged layers of a network.

They start every round from the public value that the model has, take part in the local steps, and
are left out of what is sent. What they became is thrown away with the round: kept, they would carry
a record's influence from round to round, and no account here would hold. A released model has their
public value; whoever holds records fits them at home (`at_home`), with what was released fixed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Final, Self, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.func import functional_call

from sumus.data import Records
from sumus.errors import PlanError
from sumus.plan import TrainingPlan
from sumus.purity import InputKind, is_chain
from sumus.training.models import OwnIntercept, flat_parameters, load_flat
from sumus.training.parameter_names import names_begun_by

__all__ = ["LocalPart", "at_home", "freeze_local", "knows_its_code"]

_FIELD: Final = "training.local_parameters"
_STEPS: Final = 50  # of L-BFGS, each with a line search
Floats = npt.NDArray[np.float64]


def freeze_local(plan: TrainingPlan, model: nn.Module) -> nn.Module:
    """Take local parameters out of the flat vector, in place: they keep their public value."""
    local = tuple(_local_names(plan, model))
    for name in local:
        model.get_parameter(name).requires_grad_(False)
    if local and not any(parameter.requires_grad for parameter in model.parameters()):
        rule = "must leave parameters that are trained together"
        raise PlanError(_FIELD, plan.training.local_parameters, rule, "Name fewer.")
    return model


def _local_names(plan: TrainingPlan, model: nn.Module) -> list[str]:
    """Of the parameters that stay with a silo, in the model's order."""
    wanted = plan.training.local_parameters
    if wanted is None:
        return []
    if wanted == "intercept":
        return [_intercept(model)]
    return names_begun_by(model, wanted, field=_FIELD)


def _intercept(model: nn.Module) -> str:
    """The name of the intercept of a linear model, or of the last layer of a named network."""
    if isinstance(model, OwnIntercept):
        return "intercept"
    last = model[-1] if type(model) is nn.Sequential and len(model) else None
    if not isinstance(last, nn.Linear) or last.bias is None:
        rule = "must name parameters of a model of your own (it has no intercept that is known)"
        raise PlanError(_FIELD, "intercept", rule, 'For example "head.bias".')
    return f"{len(model) - 1}.bias"  # type: ignore[arg-type]


@final
@dataclass(frozen=True, eq=False)
class LocalPart:
    """A model whose local parameters are trained beside the others.

    Args:
        model: a copy in which all of them take a gradient.
        sent: which numbers of its flat vector are sent.
        first: that vector's public first values of those that are not.
    """

    model: nn.Module
    sent: npt.NDArray[np.bool_]
    first: Floats

    @classmethod
    def of(cls, plan: TrainingPlan, model: nn.Module) -> Self | None:
        """Of a model whose local parameters are frozen; None: there are none."""
        names = set(_local_names(plan, model))
        if not names:
            return None
        joint = copy.deepcopy(model)
        for name in names:
            joint.get_parameter(name).requires_grad_(True)
        pieces = [
            np.full(parameter.numel(), name not in names)
            for name, parameter in joint.named_parameters()
            if parameter.requires_grad
        ]
        sent = np.concatenate(pieces)
        first = flat_parameters(joint).double().numpy()[~sent]
        return cls(joint, sent, first)

    def joined(self, parameters: Floats) -> Floats:
        """The whole flat vector at shared parameters, local ones at their public value."""
        whole = np.empty(len(self.sent))
        whole[self.sent], whole[~self.sent] = parameters, self.first
        return whole


def knows_its_code(model: nn.Module) -> bool:
    """Whether a model is made of torch's layers or ours, so that no code of a user's would see
    records.
    """
    return isinstance(model, OwnIntercept) or is_chain(model)


def at_home(
    plan: TrainingPlan, model: nn.Module, parameters: Floats, records: Records
) -> nn.Module:
    """The released model with local parameters fitted to a silo's own records, for its own use; the
    model as it is where it has none.

        min_φ  mean of the records' losses at (θ, φ) + |φ − φ₀|²/(2n)

    What it returns depends on the records without any noise: it must not leave the silo, nor must
    numbers that are made with it.

    Args:
        model: of the plan, its local parameters at their public value.
        parameters: θ, released.
        records: the silo's own for training.
    """
    local = LocalPart.of(plan, model)
    if local is None:
        return model
    fitted = copy.deepcopy(model)
    load_flat(fitted, torch.tensor(parameters, dtype=next(model.parameters()).dtype))
    names = _local_names(plan, model)
    if not len(records):
        return fitted
    kind = InputKind.of(model, plan.training.vocabulary)
    x, y = kind.cast(torch.from_numpy(records.x)), torch.from_numpy(records.y)
    weights = torch.ones(len(y)) if records.persons is None else torch.from_numpy(records.weights())
    weights = weights.to(next(model.parameters()).dtype) / records.units
    leaves = {name: fitted.get_parameter(name).detach().clone() for name in names}
    first = {name: value.clone() for name, value in leaves.items()}
    for leaf in leaves.values():
        leaf.requires_grad_(True)
    optimizer = torch.optim.LBFGS(
        list(leaves.values()), max_iter=_STEPS, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        outputs = functional_call(fitted, leaves, (x,))
        objective = (plan.task.loss(outputs, y) * weights).sum()
        for name, leaf in leaves.items():
            objective = objective + (leaf - first[name]).square().sum() / (2.0 * records.units)
        objective.backward()  # type: ignore[no-untyped-call]
        return objective

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for name, leaf in leaves.items():
            if torch.isfinite(leaf).all():
                fitted.get_parameter(name).copy_(leaf)
    return fitted
