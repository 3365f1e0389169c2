"""Every task that a plan may name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sumus.tasks.classification import Classification
from sumus.tasks.counts import Counts
from sumus.tasks.regression import Regression
from sumus.tasks.survival import Survival
from sumus.tasks.task import Task

__all__ = ["TASKS"]

_TASKS: Final[tuple[type[Task], ...]] = (Classification, Regression, Survival, Counts)

TASKS: Final[Mapping[str, Task]] = MappingProxyType({task.name: task() for task in _TASKS})
"""By `training.task`; one object each, so that what is known about a model and a loss is kept."""
