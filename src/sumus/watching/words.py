"""A plan, its guarantee and its measure, in the words of the report."""

from __future__ import annotations

from collections.abc import Mapping

from sumus.guarantee import Account
from sumus.plan import TrainingPlan
from sumus.tasks import Task
from sumus.watching.state import Measured, PlanInWords, Promise, finite

__all__ = ["measured_of", "plan_in_words", "promise_of", "title_of"]

_MEASURED = {
    "secure": "by noisy counts of test records, through secure sums that are accounted",
    "simulation": "on test records in the clear: simulation only",
    "none": "nothing is measured",
}


def title_of(plan: TrainingPlan) -> str:
    """What is learned from, in a word or two."""
    data = plan.data
    path = None if data.path is None else data.path.replace("\\", "/").rsplit("/", 1)[-1]
    return data.name or path or data.objects or "digits"


def plan_in_words(plan: TrainingPlan, *, silos: int, needed: int) -> PlanInWords:
    """A resolved plan.

    Args:
        silos: of the federation.
        needed: of them, in a round.
    """
    training, federation = plan.training, plan.federation
    features = "" if training.features == "none" else f" on {training.features} features"
    steps = federation.local_steps
    each = "" if steps is None or steps == 1 else f" of {steps:,} local steps"
    trusted = plan.aggregation.protocol == "trusted"
    rounds = "1 round" if federation.rounds == 1 else f"{federation.rounds:,} rounds"
    return PlanInWords(
        title=title_of(plan),
        hash=plan.hash,
        terms=(
            ("Learns", f"{training.task}, {training.model}{features}"),
            ("Algorithm", training.algorithm),
            ("Rounds", f"{rounds}{each}"),
            ("Silos", f"{silos:,}, of which a round needs {needed:,}"),
            ("Sum", "a trusted aggregator (simulation)" if trusted else "secure aggregation"),
            ("Measured", _MEASURED[plan.evaluation.metrics]),
        ),
    )


def promise_of(
    account: Account | None, *, void: str | None = None, spent: float | None = 0.0
) -> Promise:
    """What a run guarantees.

    Args:
        account: None: nothing.
        void: why the guarantee does not hold for this run, if it does not.
        spent: ε so far; not finite: nothing is promised.
    """
    if account is None:
        return Promise(verdict="none", why="no noise is added: treat the model like the data")
    if void is not None:
        return Promise(verdict="void", why=void)
    if spent is not None and finite(spent) is None:
        return Promise(verdict="void", why="no bound holds for what was released")
    return Promise(
        verdict="proved" if account.proved else "not proved",
        spent=spent,
        epsilon=account.epsilon,
        delta=account.delta,
        unit=account.unit,
        neighbours=account.neighbours,
        trust=account.trust,
        analysis=account.analysis,
    )


def measured_of(
    task: Task,
    values: Mapping[str, float],
    plus_minus: Mapping[str, float],
    *,
    how: str,
    number: int,
) -> Measured | None:
    """The headline measure of a round's model; None where it was not measured.

    Args:
        how: the journal's `metrics_are`.
    """
    measure = task.headline
    value = finite(values.get(measure.name))
    if value is None or how not in ("secure", "simulation-only"):
        return None
    width = finite(plus_minus.get(measure.name))
    return Measured(
        name=measure.name,
        title=measure.title,
        text=measure.text(value, width),
        value=value,
        plus_minus=width,
        how=how,
        round=number,
        share=measure.is_share,
        larger_is_better=measure.larger_is_better,
    )
