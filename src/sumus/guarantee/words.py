"""What a guarantee is about, as every front end says it: records or persons, how many, which
columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from sumus.plan import TrainingPlan

__all__ = ["against_participant", "in_units", "neighbours", "records_in_words"]

_SHOWN = 12  # columns that are named; a table may have hundreds


def in_units(plan: TrainingPlan, text: str) -> str:
    """Words about records, about persons where these are the unit."""
    return text.replace("record", "person") if plan.protects_persons else text


def neighbours(plan: TrainingPlan) -> str:
    """Which data sets a guarantee compares."""
    if plan.protects_silos:
        return "all records of one silo: present, or emptied while the silo still takes part"
    data = plan.data
    if data.path is None and data.objects is None:
        how = "record counts and the split into training and test are public and stay as they are"
    elif data.records_per_silo is None or data.counts == "public":
        how = (
            "record counts are taken as public, and rates, bins and divisors stay as the stated "
            "counts made them"
        )
    else:
        left_out = in_units(plan, "leaves records out")
        several = plan.protects_persons and plan.privacy.silos_per_person > 1
        differ = "one other may differ in each such silo" if several else "two differ"
        how = f"silos within data.records_per_silo (one beyond its bound {left_out}, and then {differ})"
        return f"{_one(plan)}; {how}"
    return f"{_one(plan)}; {in_units(plan, how)}"


def _one(plan: TrainingPlan) -> str:
    if not plan.protects_persons:
        return "one record of one silo, add or remove"
    silos = plan.privacy.silos_per_person
    if silos > 1:
        return f"one person with all its rows in up to {silos} silos, add or remove"
    return (
        "one person of one silo with all its rows there, add or remove; a person with rows in "
        "several silos is protected in each by itself (privacy.silos_per_person)"
    )


def against_participant(unit: str) -> str:
    """Against whom a participant's ε is: nobody is protected from whoever has its rows."""
    whom = (
        "one of the silos that has no row of the person,"
        if unit == "person"
        else "one of the silos,"
    )
    return f"against {whom} who knows its own noise"


def records_in_words(
    records_per_silo: Sequence[int], columns: Sequence[str], unit: str = "record"
) -> list[tuple[str, str]]:
    """(name, value) of what is known: nothing where an account is not about records, no columns
    where there is no table.

    Args:
        unit: what is counted.
    """
    lines = []
    if records_per_silo:
        fewest, most = min(records_per_silo), max(records_per_silo)
        each = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
        lines.append(
            (
                "persons" if unit == "person" else "records",
                f"at most {sum(records_per_silo):,} for training, {each} in each of "
                f"{len(records_per_silo)} silos",
            )
        )
    if columns:
        rest = f", … ({len(columns)} in all)" if len(columns) > _SHOWN else ""
        lines.append(("columns", ", ".join(columns[:_SHOWN]) + rest))
    return lines
