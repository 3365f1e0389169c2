"""`sumus.describe`: private statistics of a federation's records, through one secure sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sumus.books import RunFolder
from sumus.data import FederatedData
from sumus.describing import Description, describing_plan
from sumus.guarantee import Account, NoiseDesign
from sumus.plan import DEFAULT_PLAN, TrainingPlan
from sumus.runs.options import RunOptions
from sumus.runs.run import train

if TYPE_CHECKING:
    from sumus.parties import Simulation

__all__ = ["describe"]


def describe(
    plan: TrainingPlan | None = None,
    *,
    epsilon: float | None = None,
    bins: int | None = None,
    columns: Sequence[str] | None = None,
    numbers: Sequence[str] | None = None,
    silos: Any = None,
    silo: str | None = None,
    label: str | None = None,
    name: str | None = None,
    classes: int | Sequence[str] | None = None,
    groups: Sequence[Any] | Mapping[str, Any] | str | None = None,
    options: RunOptions | None = None,
    simulation: Simulation | None = None,
    begun: Callable[[NoiseDesign, Account | None, FederatedData], None] | None = None,
) -> Description:
    """Count the records of all silos in public cells, in this process, with the real protocol and
    the real noise.

    Guarantee: that of `train`: nothing is released unless ε is certified, the one sum is on the
        ledger before it happens, and a run that was interrupted goes on with the same noise.

    Args:
        plan: of a training, or one that describes already; ignored when resuming.
        epsilon: of the description; omitted: a quarter of the training plan's.
        bins: of columns with bounds.
        columns: that are described; omitted: features and labels. Records given in Python have
            x0, x1, … and label, tables their own columns.
        numbers: columns of numbers without bounds, where that is not to be read off the file.
        silos: python objects, as for `train`; likewise `silo`, `label`, `name`, `classes`,
            `groups`, `options`, `simulation` and `begun`. Missing values are counted as such.
    """
    options = options or RunOptions()
    described = (
        None
        if options.resume is not None
        else describing_plan(
            plan or TrainingPlan.load(DEFAULT_PLAN),
            epsilon=epsilon,
            bins=bins,
            columns=columns,
            numbers=numbers,
        )
    )
    run = train(
        described,
        silos=silos,
        silo=silo,
        label=label,
        name=name,
        classes=classes,
        groups=groups,
        options=options,
        simulation=simulation,
        begun=begun,
    )
    description = Description.of_run(RunFolder.open(run.path))
    description.write()
    return description
