"""From a plan to records: the one place that decides where records come from.

A named data set is known without the modules that read files of one's own (`own_files`).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from sumus.data.catalogue import named_facts, named_set
from sumus.data.pool import federate
from sumus.data.silos import FeaturesFor, FederatedData
from sumus.errors import DataError
from sumus.plan import PublicFacts, TrainingPlan

__all__ = ["load", "load_silo", "public_facts"]


def load(
    plan: TrainingPlan, *, cache: Path | None = None, features: FeaturesFor | None = None
) -> FederatedData:
    """All records that the plan's data section names.

    A plan without data section means the digits. A file of one's own always keeps the silos of its
    silo column.

    Guarantee: every record is in at most one part of one silo, and in none only beyond a declared
        bound; the result is a function of the files, the data section and `federation.silos` alone;
        whatever was taken as public without being declared is listed in `assumptions`. Adding or
        removing a row of one's own file (a person with all its rows, where persons are the unit)
        moves no other row from one part to another.

    Args:
        plan: the plan.
        cache: a folder to look for data sets in before all others.
        features: kept instead of records, `FederatedData.behind`.
    """
    _refuse_objects(plan)
    if plan.data.path is not None:
        from sumus.data.own_files import load_file

        return load_file(plan, features=features)
    _refuse_persons(plan)
    facts = named_facts(plan, cache)
    pool = named_set(facts.name).load(cache).behind(features)
    data = federate(
        pool, plan, natural=plan.data.partition == "natural", bounds=facts.records_per_silo
    )
    data = dataclasses.replace(data, assumptions=(*facts.assumptions, *data.assumptions))
    if plan.describes:
        from sumus.data.cells import described

        data = described(data, plan)
    return data


def load_silo(
    plan: TrainingPlan,
    silo: str,
    *,
    cache: Path | None = None,
    features: FeaturesFor | None = None,
) -> FederatedData:
    """The records of one silo, as that organisation loads them on its own machine.

    Its file may hold the records of other silos too. If it does not, classes and columns must be
    declared in the plan: read off one silo's own file they could differ from silo to silo.

    Guarantee: with silos, classes, columns and bounds declared a silo loads whatever number of
        records it has, none included, and nothing is raised by which somebody else could learn that
        number.

    Args:
        plan: the plan.
        silo: name of the silo.
        cache: a folder to look for data sets in before all others.
        features: see `load`.
    """
    _refuse_objects(plan)
    if plan.data.path is None:
        data = load(plan, cache=cache, features=features)
        of_that_name = tuple(records for records in data.silos if records.name == silo)
        if not of_that_name:
            raise DataError(
                f"{data.name}: has no silo {silo!r}. Silos: "
                f"{', '.join(records.name for records in data.silos[:60])}."
            )
        return dataclasses.replace(data, silos=of_that_name)
    from sumus.data.own_files import load_silo_of_file

    return load_silo_of_file(plan, silo, features=features)


def public_facts(plan: TrainingPlan, *, cache: Path | None = None) -> PublicFacts:
    """What is public about the plan's data: from published counts for a named data set, by one pass
    over a file of one's own.

    Args:
        plan: the plan.
        cache: a folder to look for data sets in before all others.
    """
    _refuse_objects(plan)
    if plan.data.path is None:
        _refuse_persons(plan)
        facts = named_facts(plan, cache)
        if plan.describes:
            from sumus.data.cells import described_facts

            facts = described_facts(facts)
        return facts
    from sumus.data.own_files import facts_of_file

    return facts_of_file(plan)


def _refuse_objects(plan: TrainingPlan) -> None:
    """Records that were given in Python are in no file, and nothing else may be loaded in their
    place.
    """
    if plan.data.objects is not None:
        fix = "Use sumus.train(plan, silos=…) with those objects."
        raise DataError(
            f"data.objects: the records {plan.data.objects!r} were given in Python, so no command "
            f"can load them. {fix}"
        )


def _refuse_persons(plan: TrainingPlan) -> None:
    """Named data sets say nothing about persons."""
    if plan.protects_persons:
        fix = (
            "Use a file with data.person_column, or records given in Python with groups= (one "
            "identifier per row)."
        )
        raise DataError(f'privacy.unit = "person" needs to know whose every row is. {fix}')
