"""Records and models that were given in Python: the plan that runs names them, since no file
does.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sumus.data import (
    UNNAMED,
    FederatedData,
    described,
    from_arrays,
    hold_to_plan,
    left_out_lines,
    load,
)
from sumus.errors import PlanError
from sumus.files import name_of_file
from sumus.plan import TrainingPlan
from sumus.training import GIVEN

__all__ = ["class_of", "with_loss", "with_model", "with_records"]

_SPLIT_IS_PUBLIC = (
    "which records train and which test was decided beforehand and is taken as public"
)
_LEDGER_IS_NAMELESS = (
    "the ledger {} goes by the names of the silos and the shape of a record; name= says which data "
    "set this is"
)
_OF_FILES = (
    "name",
    "path",
    "silo_column",
    "label_column",
    "time_column",
    "event_column",
    "person_column",
    "columns",
    "categories",
)


def with_records(
    plan: TrainingPlan,
    silos: Sequence[Any] | Mapping[str, Any] | FederatedData | None,
    *,
    name: str | None,
    classes: int | None,
    groups: Sequence[Any] | Mapping[str, Any] | None = None,
) -> tuple[TrainingPlan, FederatedData]:
    """The plan that says which records are trained on, and those records.

    Guarantee: objects take the place of whatever data the plan names, and the plan says that they
        did: no command takes other records for them.

    Args:
        silos: objects given in Python; None for the records that the plan names.
        name: of the objects' data set.
        classes: number of their labels.
        groups: whose their rows are, for `privacy.unit = "person"`.
    """
    _check_groups(plan, silos, groups)
    if classes is not None and (silos is None or isinstance(silos, FederatedData)):
        raise PlanError(
            "classes", classes, "is for arrays, tensors and datasets in silos=", "Leave it out."
        )
    if name is not None and silos is None:
        raise PlanError(
            "name",
            name,
            "is for records given in silos=",
            "Leave it out: the plan names its records.",
        )
    if name is not None and not (name.strip() and name.isprintable()):
        raise PlanError(
            "name", name, "must be printable text", "Give the data set a name, or leave it out."
        )
    if silos is None:
        return plan, load(plan)
    split, data = plan.data, silos
    bounds = _label_bounds(plan, data if isinstance(data, FederatedData) else None)
    files = dict.fromkeys(_OF_FILES)
    if plan.describes:  # columns go by their places, and may be declared
        bounds = {**(split.bounds or {}), **(bounds or {})} or None
        files.pop("categories")
    with_objects = plan.replace(
        "data", **files, bounds=bounds, objects=name or split.objects or "?"
    )
    if name is not None and split.objects not in (None, name):
        raise PlanError(
            "name",
            name,
            f"must be the plan's data.objects, {split.objects!r}",
            "Leave one of them out.",
        )
    if not isinstance(data, FederatedData):
        data = from_arrays(
            data,
            groups=groups,
            task=with_objects.task,
            classes=classes,
            test_fraction=split.test_fraction,
            validation_fraction=split.validation_fraction,
            split_seed=split.split_seed,
            records_per_person=plan.rows_per_person,
            silos_per_person=plan.privacy.silos_per_person,
        )
    if not data.split_by_record:
        data = replace(data, assumptions=(*data.assumptions, _SPLIT_IS_PUBLIC))
    chosen = name or split.objects or _dataset_name(data)
    if plan.describes:
        data = described(data, with_objects)
    if chosen.startswith(UNNAMED):
        data = replace(data, assumptions=(*data.assumptions, _LEDGER_IS_NAMELESS.format(chosen)))
    plan = with_objects.replace("data", objects=chosen)
    held = hold_to_plan(replace(data, name=chosen), plan.data)
    # said here and nowhere else: a record of the run would tell others
    for line in (*held.remarks, *(f"left out: {line}" for line in left_out_lines(held))):
        warnings.warn(line, stacklevel=3)
    return plan, held


def _check_groups(
    plan: TrainingPlan,
    silos: Sequence[Any] | Mapping[str, Any] | FederatedData | None,
    groups: Sequence[Any] | Mapping[str, Any] | None,
) -> None:
    """Persons are the unit exactly where it is known whose row it is."""
    persons, loaded = plan.protects_persons, isinstance(silos, FederatedData)
    if groups is not None and (silos is None or loaded):
        rule = "is for arrays, tensors and datasets in silos="
        raise PlanError("groups", "identifiers", rule, "Leave it out.")
    if groups is not None and not persons:
        rule = f'needs privacy.unit = "person", and the plan\'s is "{plan.privacy.unit}"'
        raise PlanError("groups", "identifiers", rule, "Set the unit, or leave groups out.")
    if persons and silos is not None and groups is None and not loaded:
        rule = 'must say whose every row is for privacy.unit = "person"'
        raise PlanError("groups", None, rule, "Pass one array of identifiers per silo.")
    if isinstance(silos, FederatedData):
        known = {silo.train.persons is not None for silo in silos.silos}
        if known != {persons}:
            rule = f"must be {'record' if persons else 'person'} for these records, which "
            rule += "do not say whose rows they are" if persons else "are grouped by person"
            fix = "Load them by a plan of the same unit, or change privacy.unit."
            raise PlanError("privacy.unit", plan.privacy.unit, rule, fix)
        most = plan.privacy.silos_per_person
        if persons and most > 1 and not silos.same_part_everywhere:
            rule = (
                "must be 1 for records in which a person may train in one silo and test in another"
            )
            fix = f"Load them with silos_per_person = {most}."
            raise PlanError("privacy.silos_per_person", most, rule, fix)


def _label_bounds(
    plan: TrainingPlan, loaded: FederatedData | None
) -> dict[str, tuple[float, float]] | None:
    """Between which numbers labels lie, where they are numbers: what the plan says of its label
    column, or of `label`.

    Args:
        loaded: of records that were scaled by their bounds already.
    """
    task, declared = plan.task, plan.data.bounds or {}
    if task.label_declaration != "bounds":
        return None
    if plan.data.label_columns is not None:
        return {name: declared[name] for name in plan.data.label_columns}
    column = getattr(plan.data, task.label_keys[0]) or "label"
    known = (
        loaded.labels.bounds[0]
        if loaded is not None and loaded.labels.bounds
        else declared.get(column)
    )
    if known is not None and declared.get(column, known) != known:
        raise PlanError(
            f"data.bounds.{column}",
            list(declared[column]),
            f"must be those of the given records, {list(known)}",
            "Leave it out.",
        )
    return None if known is None else {"label": known}


def _dataset_name(data: FederatedData) -> str:
    """The ledger of these records; a file that was loaded beforehand has the same one as in a plan
    that names it.
    """
    return name_of_file(data.name) if data.columns else data.name


def with_model(plan: TrainingPlan, model: object | None) -> TrainingPlan:
    """The plan with the class of a module of one's own in the place of the model that it names."""
    if model is None:
        return plan
    return plan.replace("training", model=f"{class_of(model)} {GIVEN}")


def with_loss(plan: TrainingPlan, loss: object | None) -> TrainingPlan:
    """The plan with the name of a loss of one's own, if one was given."""
    if loss is None:
        return plan
    named = plan.training.loss
    own = loss if hasattr(loss, "__qualname__") else type(loss)
    given = f"{own.__module__}.{own.__qualname__} {GIVEN}"
    if named not in (None, given):
        raise PlanError("loss", given, f"must be the plan's {named}", "Leave one of them out.")
    return plan.replace("training", loss=given)


def class_of(model: object) -> str:
    """The class of a model of one's own, as records and reports name it."""
    return f"{type(model).__module__}.{type(model).__qualname__}"
