"""What is learned and how well: labels, loss, prediction, measures with their uncertainty.

    TASKS["classification"]              # the object that a plan's `training.task` names

`task` is the shape that every task has, `classification`, `regression`, `survival` and `counts` are some,
`registry` lists them, `uncertainty` says how far off a share may be that is known through noise,
`multi_label` and `several_numbers` learn several labels of one record, `concordance` and
`life_table` are what is known about times. A new task is one file
here and its class in the tuple of `registry`; `tests/conformance/test_tasks.py` tests it by being
there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.tasks.classification import Classification as Classification
    from sumus.tasks.counts import Counts as Counts
    from sumus.tasks.least_squares import (
        KNOTS as KNOTS,
        SLOPE as SLOPE,
        shares_of_squares as shares_of_squares,
    )
    from sumus.tasks.life_table import kaplan_meier as kaplan_meier
    from sumus.tasks.measures import Measure as Measure, Metrics as Metrics
    from sumus.tasks.multi_label import MultiLabel as MultiLabel
    from sumus.tasks.registry import TASKS as TASKS, declared_task as declared_task
    from sumus.tasks.regression import Regression as Regression
    from sumus.tasks.several_numbers import SeveralNumbers as SeveralNumbers
    from sumus.tasks.survival import Survival as Survival
    from sumus.tasks.task import (
        Categories as Categories,
        CountShape as CountShape,
        Curvature as Curvature,
        Declared as Declared,
        LabelColumn as LabelColumn,
        LabelFacts as LabelFacts,
        Labels as Labels,
        LinearRows as LinearRows,
        Link as Link,
        Loss as Loss,
        Task as Task,
    )
    from sumus.tasks.uncertainty import (
        CONFIDENCE as CONFIDENCE,
        Measured as Measured,
        noisy_ratio as noisy_ratio,
        noisy_share as noisy_share,
        number_text as number_text,
        percent_text as percent_text,
    )
    from sumus.tasks.yes_or_no import events_of as events_of

__getattr__, __dir__, __all__ = door(
    __name__,
    classification="Classification",
    counts="Counts",
    measures="Measure Metrics",
    multi_label="MultiLabel",
    registry="TASKS declared_task",
    regression="Regression",
    least_squares="KNOTS SLOPE shares_of_squares",
    life_table="kaplan_meier",
    several_numbers="SeveralNumbers",
    survival="Survival",
    task=(
        "Categories CountShape Curvature Declared LabelColumn LabelFacts Labels LinearRows Link "
        "Loss Task"
    ),
    uncertainty="CONFIDENCE Measured noisy_ratio noisy_share number_text percent_text",
    yes_or_no="events_of",
)
