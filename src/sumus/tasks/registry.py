"""Every task that a plan may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from sumus.tasks.classification import Classification
from sumus.tasks.counts import Counts
from sumus.tasks.multi_label import multi_label
from sumus.tasks.regression import Regression
from sumus.tasks.several_numbers import several_numbers
from sumus.tasks.survival import Survival
from sumus.tasks.task import Declared, Task

__all__ = ["TASKS", "declared_task"]

_TASKS: Final[tuple[type[Task], ...]] = (Classification, Regression, Survival, Counts)

TASKS: Final[Mapping[str, Task]] = MappingProxyType({task.name: task() for task in _TASKS})
"""By `training.task`; one object each, so that what is known about a model and a loss is kept."""

_SEVERAL: Final[Mapping[str, Callable[[Declared], Task]]] = MappingProxyType(
    {"classification": multi_label, "regression": several_numbers}
)


def declared_task(name: str, declared: Declared) -> Task:
    """The task of that name as a plan declares its labels; several labels of one record are a task
    of their own.
    """
    if declared.label_columns is not None and name in _SEVERAL:
        return _SEVERAL[name](declared)
    return TASKS[name].of(declared)
