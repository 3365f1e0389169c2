"""A loss that takes the place of the task's, where the plan names one: a function that this machine
can import, or one that was given in Python.
"""

from __future__ import annotations

from sumus.errors import PlanError
from sumus.files import object_at
from sumus.gradients import OwnLoss
from sumus.plan import TrainingPlan
from sumus.purity import RecordLoss

__all__ = ["GIVEN", "own_loss"]

GIVEN = "(given in Python)"
"""How the plan's name of a function ends that no plan leads to."""


def own_loss(plan: TrainingPlan, function: RecordLoss | None = None) -> OwnLoss | None:
    """The loss that `training.loss` names; None: the task's.

    Guarantee: what clips single records holds for any loss, so ε does not depend on it; that it is
        a function of one record is examined where gradients are taken, or it is refused.

    Args:
        function: that was given in Python.
    """
    name = plan.training.loss
    if name is None:
        return None
    if function is None:
        if ":" not in name:
            raise PlanError(
                "training.loss",
                name,
                'must be an importable "package.module:function"',
                "Pass it again: sumus.train(loss=…)."
                if name.endswith(GIVEN)
                else "Name the function with its module.",
            )
        function = object_at(name, field="training.loss")
    if not callable(function):
        rule = "must be a function of one record's outputs and label"
        raise PlanError("training.loss", name, rule, f"It is a {type(function).__name__}.")
    return OwnLoss(function, plan.task)
