"""How many records (or persons, where they are the unit) a silo of one's own has: bounded by the plan and private, or counted and taken
as public.

no data.records_per_silo     the counts are taken as public
data.counts = "public"       so are those that were counted when the plan was resolved; a silo with
                             another number is refused, or the plan would state what is not so
otherwise                    the numbers are bounds: a silo may have fewer records without anybody
                             seeing it, and leaves out what it has beyond its bound
"""

from __future__ import annotations

from dataclasses import replace

from sumus.data.persons import first_units
from sumus.data.silos import FederatedData, SiloRecords
from sumus.errors import DataError, PlanError
from sumus.plan import DataPlan

__all__ = [
    "COUNTS_ARE_PUBLIC",
    "OtherCountError",
    "hold_silo",
    "hold_to_plan",
    "left_out_lines",
    "stated_counts",
]

COUNTS_ARE_PUBLIC = (
    "record counts of the silos are taken as public (data.records_per_silo declares bounds instead)"
)


class OtherCountError(DataError):
    """A silo has another number of records than the public one that the plan states."""


def hold_to_plan(data: FederatedData, plan: DataPlan) -> FederatedData:
    """The same silos, each within the number of training records that the plan states for it.

    Guarantee: whatever the plan states about numbers of records is true of the result; what it does
        not state is in `assumptions`.

    Args:
        data: silos of one's own, split record by record.
        plan: the data section.
    """
    stated = stated_counts(plan, len(data.silos), data.name) or (None,) * len(data.silos)
    silos = tuple(
        hold_silo(silo, count, plan, data.name)
        for silo, count in zip(data.silos, stated, strict=True)
    )
    public = plan.counts == "public" or any(silo.bound is None for silo in silos)
    # of an earlier plan, if they were held to one
    others = tuple(line for line in data.assumptions if line != COUNTS_ARE_PUBLIC)
    return replace(
        data, silos=silos, assumptions=(*others, COUNTS_ARE_PUBLIC) if public else others
    )


def stated_counts(plan: DataPlan, silos: int, name: str) -> tuple[int, ...] | None:
    """The numbers of training records that the plan states, if it does, one for each silo of the
    data set `name`.
    """
    stated = plan.records_per_silo
    if stated is not None and len(stated) != silos:
        rule = f"must have one bound for each of the {silos} silos of {name}"
        raise PlanError("data.records_per_silo", list(stated)[:5], rule, "Add or remove bounds.")
    return stated


def hold_silo(silo: SiloRecords, stated: int | None, plan: DataPlan, name: str) -> SiloRecords:
    """One silo with at most the stated number of training records, or as it is where that number is
    its public count.

    Guarantee: under a bound nothing is raised, so nobody learns from a refusal how many records
        there are. Adding one record to a silo below its bound adds that record to one part; at or
        beyond the bound it adds one and removes at most one.

    Args:
        stated: what the plan states for this silo, if it does.
        name: of the data set, for errors.
    """
    if stated is None:
        return silo
    if plan.counts == "public":
        if stated != max(silo.train.units, 1):
            fix = (
                "Remove data.records_per_silo and data.counts to count anew, or set data.counts to "
                '"bounded" for bounds.'
            )
            counted = f"silo {silo.name!r} has {silo.train.units} training {silo.counted}"
            raise OtherCountError(
                f"{name}: {counted}, the plan states {stated} as its public count. {fix}"
            )
        return silo
    kept = first_units(silo.train, stated, seed=plan.split_seed, silo=silo.name)
    left_out = silo.train.units - len(kept)
    train = silo.train.take(kept) if left_out else silo.train
    return replace(silo, train=train, bound=stated, left_out=left_out)


def left_out_lines(data: FederatedData) -> list[str]:
    """What silos do not use, a line each, for their own eyes: no record or report may hold it."""
    lines = [
        f"{silo.left_out:,} training {silo.counted} of {silo.name} beyond the bound {silo.bound:,}"
        for silo in data.silos
        if silo.left_out
    ]
    return lines + [
        f"{silo.rows_left_out:,} rows of {silo.name} beyond the most that count of a person"
        for silo in data.silos
        if silo.rows_left_out
    ]
