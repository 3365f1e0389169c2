"""δ against the number of records it speaks of.

A mechanism that publishes every record whole with probability δ is (0, δ)-private: of n records it
exposes δ·n on average. So δ must be well below one over n before a small ε means anything.

    δ ≥ 1/n           refused, unless the plan says that it accepts this (`privacy.delta_may_expose_a_record`)
    δ > 1/(10 n)      accepted with a caution
"""

from __future__ import annotations

import math

from sumus.errors import GuaranteeError
from sumus.guarantee.counts import tests_per_training_record
from sumus.guarantee.words import in_units
from sumus.plan import TrainingPlan

__all__ = ["delta_caution", "protected_units", "refuse_large_delta", "units_in_words"]

_CLEAR = 10  # times below one over n, and nothing more is said


def protected_units(plan: TrainingPlan) -> int | None:
    """n: records (or persons) of all silos by the plan's public bounds, or silos where a silo is the
    unit; None while it is not known.

    Training records, or the test records that the plan's fractions imply where these are more and
    are counted securely.
    """
    if plan.protects_silos:
        return plan.federation.silos
    if plan.data.records_per_silo is None:
        return None
    trained = sum(plan.data.records_per_silo)
    return (
        math.ceil(trained * tests_per_training_record(plan)) if _tests_are_more(plan) else trained
    )


def units_in_words(plan: TrainingPlan) -> str:
    """What `protected_units` counts."""
    if plan.protects_silos:
        return "silos"
    return in_units(plan, "test records" if _tests_are_more(plan) else "training records")


def _tests_are_more(plan: TrainingPlan) -> bool:
    return plan.evaluation.metrics == "secure" and tests_per_training_record(plan) > 1


def _reaches(delta: float, units: int) -> bool:
    """Whether δ ≥ 1/n, exactly, and for the float next to 1/n too, which is what 1/n is written as;
    δ·n would round.
    """
    return delta >= 1.0 / units


def refuse_large_delta(plan: TrainingPlan) -> None:
    """Raise `GuaranteeError` where δ ≥ 1/n and the plan does not say that it accepts it."""
    units, delta = protected_units(plan), plan.privacy.delta
    if units is None or not _reaches(delta, units) or plan.privacy.delta_may_expose_a_record:
        return
    rule = (
        f"privacy.delta = {delta:g} must be below one over the {units:,} {units_in_words(plan)} it "
        f"speaks of ({1.0 / units:.2g})"
    )
    because = f"at this δ a mechanism may publish {_expected(delta * units)} of them whole"
    fix = (
        f"Use at most {_usual(units):.0e}, or accept it with privacy.delta_may_expose_a_record = "
        "true."
    )
    raise GuaranteeError(f"{rule}: {because}. {fix}")


def delta_caution(plan: TrainingPlan) -> str | None:
    """What to say about a δ that is not well below 1/n; None where it is, or where n is not
    known.
    """
    units, delta = protected_units(plan), plan.privacy.delta
    if units is None or delta <= 1.0 / (_CLEAR * units):
        return None
    size = "at least" if _reaches(delta, units) else "more than a tenth of"
    return (
        f"δ = {delta:g} is {size} one over the {units:,} {units_in_words(plan)}: "
        f"it allows for {_expected(delta * units)} of them to be exposed whole; "
        f"{_usual(units):.0e} or less is usual"
    )


def _expected(number: float) -> str:
    return f"{number:.2g}" if number < 100.0 else f"{number:,.0f}"


def _usual(units: int) -> float:
    """A power of ten at most a tenth of 1/n."""
    return 10.0 ** -(len(str(units - 1)) + 1) if units > 1 else 0.1
