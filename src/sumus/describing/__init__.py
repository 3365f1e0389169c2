"""Private statistics of a federation's records: the plan that counts them, and what its one noisy
sum says.

| module | has |
|---|---|
| `deriving` | from a training plan to the plan that describes its records |
| `estimates` | ratios, quantiles and spreads of noisy counts, each with the interval that its noise allows |
| `columns` | what is said of one column |
| `description` | a run's sum read as statistics, and the bounds that follow from it |
| `filling` | these bounds in the plan's own file |

A description is a plan like any other (`training.algorithm = "describe"`), so everything else is
where it is for training: cells in `sumus.plan`, values in `sumus.data`, proof in `sumus.guarantee`,
counting in `sumus.training`, running in `sumus.runs`, the page in `sumus.report`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.describing.columns import ColumnStatistics as ColumnStatistics
    from sumus.describing.deriving import describing_plan as describing_plan, written as written
    from sumus.describing.description import Description as Description
    from sumus.describing.estimates import Estimate as Estimate
    from sumus.describing.filling import fill_bounds as fill_bounds

__getattr__, __dir__, __all__ = door(
    __name__,
    columns="ColumnStatistics",
    deriving="describing_plan written",
    description="Description",
    estimates="Estimate",
    filling="fill_bounds",
)
