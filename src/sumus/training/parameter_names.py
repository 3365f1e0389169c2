"""Parameters of a model by how their names begin."""

from __future__ import annotations

from torch import nn

from sumus.errors import PlanError

__all__ = ["names_begun_by"]


def names_begun_by(model: nn.Module, wanted: str, *, field: str) -> list[str]:
    """Names of the model's parameters that begin with one of these, in the model's order.

    Args:
        wanted: beginnings, with commas between; each must begin some name.
        field: the plan's key that holds them, for errors.
    """
    beginnings = tuple(part.strip() for part in wanted.split(","))
    names = [name for name, _ in model.named_parameters()]
    for beginning in beginnings:
        if not beginning or not any(name.startswith(beginning) for name in names):
            rule = f"must name parameters of the model, {beginning!r} begins none"
            raise PlanError(field, wanted, rule, f"There are {', '.join(names[:8])}.")
    return [name for name in names if name.startswith(beginnings)]
