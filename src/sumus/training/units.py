"""A silo's records in units of privacy, as the plan groups them."""

from __future__ import annotations

from sumus.data import Records
from sumus.errors import DataError
from sumus.gradients import Units
from sumus.plan import TrainingPlan

__all__ = ["require_persons", "units_of"]


def units_of(plan: TrainingPlan, records: Records) -> Units:
    """Persons with the weights of their rows where they are the unit, otherwise rows one by one.

    Guarantee: refuses records that do not say whose they are where persons are protected, and a
        person with more rows than the plan's public bound, which rounding is accounted for.
    """
    if not plan.protects_persons:
        return Units.single(len(records))
    require_persons(records)
    most = plan.rows_per_person
    if records.rows_per_unit.max(initial=0) > most:
        raise DataError(
            f"data.records_per_person = {most} is exceeded by a person's rows. Load the records by "
            "the plan that is trained."
        )
    weights = records.weights(plan.data.person_weighting, most)
    return Units(records.units, records.persons, weights)


def require_persons(records: Records) -> None:
    """Refuse records that do not say whose they are."""
    if records.persons is None:
        raise DataError(
            'records must say whose they are for privacy.unit = "person". Name '
            "data.person_column, or pass groups."
        )
