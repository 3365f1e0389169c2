"""Records and models that were given in Python: the plan that runs names them, since no file
does.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from sumus.data import (
    FederatedData,
    GivenTable,
    described,
    from_arrays,
    given_table,
    hold_to_plan,
    left_out_lines,
    load,
    load_table,
)
from sumus.errors import PlanError, dotted
from sumus.files import name_of_file
from sumus.plan import UNNAMED, TrainingPlan
from sumus.training import GIVEN, kept_features

__all__ = ["Given", "class_of", "with_loss", "with_model", "with_records"]

_SPLIT_IS_PUBLIC = (
    "which records train and which test was decided beforehand and is taken as public"
)
_LEDGER_IS_NAMELESS = (
    f"the ledger {UNNAMED} adds up all runs on this machine whose records nobody named, so it may "
    "count too much; name= says which data set this is"
)
LABEL = "label"
"""How the plan calls the labels of arrays."""
_SOURCE = ("name", "path", "encoding", "sheet")  # of a named data set or a file
_OF_FILES = (
    *_SOURCE,
    "silo_column",
    "label_column",
    "time_column",
    "event_column",
    "person_column",
    "columns",
    "decimal_comma",
    "texts",
    "categories",
)


@final
@dataclass(frozen=True, kw_only=True)
class Given:
    """What is told about records given in Python, beside the plan.

    Args:
        name: of the data set, for its ledger.
        classes: how many classes its labels have, or their names.
        groups: whose every row is: identifiers per silo, or the name of a table's column.
        silo: the column of a table that says whose record it is.
        label: the column of a table that is learned.
        missing: "flag", see `data.missing`.
    """

    name: str | None = None
    classes: int | Sequence[str] | None = None
    groups: Sequence[Any] | Mapping[str, Any] | str | None = None
    silo: str | None = None
    label: str | None = None
    missing: str | None = None

    def refuse(self, fields: Sequence[str], rule: str) -> None:
        """Refuse the first of these that was told."""
        for field in fields:
            value = getattr(self, field)
            if value is not None:
                shown = value if isinstance(value, int | str) else type(value).__name__
                raise PlanError(field, shown, rule, "Leave it out.")


def with_records(
    plan: TrainingPlan,
    silos: Any,
    given: Given,
    *,
    records_too: bool = True,
) -> tuple[TrainingPlan, FederatedData]:
    """The plan that says which records are trained on, and those records.

    Guarantee: objects take the place of whatever data the plan names, and the plan says that they
        did: no command takes other records for them.

    Args:
        silos: objects given in Python; None for the records that the plan names.
        given: what is told about them.
        records_too: records before the plan's features are asked for after training too; otherwise
            they need not be kept.
    """
    if silos is None:
        given.refuse(
            ("name", "classes", "groups", "silo", "label", "missing"),
            "is for records given in silos=",
        )
        return plan, load(plan, features=None if records_too else kept_features(plan))
    plan = _named(plan, given)
    if isinstance(silos, FederatedData):
        given.refuse(
            ("classes", "groups", "silo", "label", "missing"),
            "is for arrays, tables and datasets in silos=",
        )
        _check_loaded(plan, silos)
        return _of_arrays(plan, silos, given)
    if given.missing is not None:
        plan = _with(plan, "missing", given.missing, "data.missing")
    silo = _agreed("silo", given.silo, plan.data.silo_column)
    label = _agreed("label", given.label, plan.data.label_column)
    table = given_table(silos, silo=silo, label=label)
    if table is None:
        given.refuse(("silo", "label"), "is for tables in silos=, and these are none")
        _check_groups(plan, given.groups)
        return _of_arrays(plan, silos, given)
    return _of_table(plan, table, given)


def _agreed(field: str, told: str | None, planned: str | None) -> str | None:
    """A column that the caller or the plan names, or both alike."""
    if told is not None and planned not in (None, told):
        rule = f"must be the plan's data.{field}_column, {planned!r}"
        raise PlanError(field, told, rule, "Leave one of them out.")
    return told if planned is None else planned


def _with(plan: TrainingPlan, key: str, value: Any, field: str) -> TrainingPlan:
    """The plan with a key of the data section that must not say something else already."""
    planned = getattr(plan.data, key)
    if planned not in (None, value):
        rule = f"must be the plan's data.{key}, {planned!r}"
        raise PlanError(field, value, rule, "Leave one of them out.")
    return plan.replace("data", **{key: value})


def _named(plan: TrainingPlan, given: Given) -> TrainingPlan:
    """The plan whose `data.objects` is the name that the caller tells, if one is told."""
    name, planned = given.name, plan.data.objects
    if name is None:
        return plan
    if not (name.strip() and name.isprintable()):
        raise PlanError(
            "name", name, "must be printable text", "Give the data set a name, or leave it out."
        )
    if planned not in (None, name):
        rule = f"must be the plan's data.objects, {planned!r}"
        raise PlanError("name", name, rule, "Leave one of them out.")
    return plan.replace("data", **dict.fromkeys(_SOURCE), objects=name)


def _of_table(
    plan: TrainingPlan, given: GivenTable, told: Given
) -> tuple[TrainingPlan, FederatedData]:
    """Records of a table: what the plan says about columns holds for it as for a file's."""
    split, column = plan.data, given.silo_column
    label = given.label_column or told.label or split.label_column
    categories = dict(split.categories or {})
    if told.classes is not None:
        if isinstance(told.classes, int) or label is None:
            rule = "must be the names of the classes for a table, whose labels may be any text"
            raise PlanError("classes", told.classes, rule, "Pass classes=[…].")
        categories |= _listed(categories, label, told.classes)
    if given.silo_names is not None:
        categories |= _listed(categories, column, given.silo_names)
    chosen = split.objects or UNNAMED
    plan = plan.replace(
        "data",
        **dict.fromkeys(_SOURCE),
        objects=chosen,
        silo_column=column,
        label_column=label,
        person_column=_person_column(plan, told.groups),
        categories=categories or None,
    )
    unnamed = [key for key in plan.task.label_keys if getattr(plan.data, key) is None]
    if unnamed and not plan.describes:
        rule = "must name a column of the table in silos="
        fix = "Name it in the plan" + (", or pass label=." if "label_column" in unnamed else ".")
        raise PlanError(f"data.{unnamed[0]}", None, rule, fix)
    return _held(plan, load_table(plan, given.table), chosen)


def _listed(
    categories: Mapping[str, tuple[str, ...]], column: str, names: Sequence[Any]
) -> dict[str, tuple[str, ...]]:
    """The public list of a column, which the plan must not have otherwise."""
    listed = tuple(map(str, names))
    if categories.get(column, listed) != listed:
        rule = f"must be those of the given records, {list(listed)[:5]}"
        shown = list(categories[column])[:5]
        raise PlanError(dotted("data.categories", column), shown, rule, "Leave it out.")
    return {column: listed}


def _person_column(plan: TrainingPlan, groups: Any) -> str | None:
    """The column of a table that says whose every row is."""
    column = plan.data.person_column
    if groups is not None:
        if not isinstance(groups, str):
            rule = "must name a column of the table in silos="
            raise PlanError("groups", "identifiers", rule, "Put the identifiers into a column.")
        _require_persons(plan)
        column = _agreed("groups", groups, column)
    if plan.protects_persons and column is None:
        rule = 'must name a column of the table in silos= for privacy.unit = "person"'
        raise PlanError("data.person_column", None, rule, "Name it, or pass groups= with its name.")
    return column


def _of_arrays(plan: TrainingPlan, silos: Any, told: Given) -> tuple[TrainingPlan, FederatedData]:
    """Records without columns of their own, or records that were loaded before."""
    split, data = plan.data, silos
    bounds = _label_bounds(plan, data if isinstance(data, FederatedData) else None)
    classes = told.classes if told.classes is not None else _label_names(plan)
    files: dict[str, Any] = dict.fromkeys(_OF_FILES)
    if plan.describes:  # columns go by their places, and may be declared
        bounds = {**(split.bounds or {}), **(bounds or {})} or None
        files.pop("categories")
    elif classes is not None and not isinstance(classes, int | str):
        files["categories"] = {LABEL: tuple(map(str, classes))}
    with_objects = plan.replace("data", **files, bounds=bounds, objects=split.objects or "?")
    if not isinstance(data, FederatedData):
        data = from_arrays(
            data,
            groups=told.groups,
            task=with_objects.task,
            classes=classes,
            missing="keep" if plan.describes else split.missing,
            test_fraction=split.test_fraction,
            validation_fraction=split.validation_fraction,
            split_seed=split.split_seed,
            records_per_person=plan.rows_per_person,
            silos_per_person=plan.privacy.silos_per_person,
        )
    if not data.split_by_record:
        data = replace(data, assumptions=(*data.assumptions, _SPLIT_IS_PUBLIC))
    chosen = split.objects or _dataset_name(data)
    if plan.describes:
        data = described(data, with_objects)
    return _held(with_objects.replace("data", objects=chosen), data, chosen)


def _label_names(plan: TrainingPlan) -> tuple[str, ...] | None:
    """Names of the classes that the plan lists for the labels of arrays."""
    if plan.task.label_declaration != "categories" or plan.describes:
        return None
    return (plan.data.categories or {}).get(LABEL)


def _held(
    plan: TrainingPlan, data: FederatedData, chosen: str
) -> tuple[TrainingPlan, FederatedData]:
    """The records within what the plan states about their numbers.

    Args:
        chosen: name of the data set.
    """
    if chosen == UNNAMED:
        data = replace(data, assumptions=(*data.assumptions, _LEDGER_IS_NAMELESS))
    held = hold_to_plan(replace(data, name=chosen), plan.data)
    # said here and nowhere else: a record of the run would tell others
    for line in (*held.remarks, *(f"left out: {line}" for line in left_out_lines(held))):
        warnings.warn(line, stacklevel=4)
    return plan, held


def _require_persons(plan: TrainingPlan) -> None:
    if not plan.protects_persons:
        rule = f'needs privacy.unit = "person", and the plan\'s is "{plan.privacy.unit}"'
        raise PlanError("groups", "identifiers", rule, "Set the unit, or leave groups out.")


def _check_groups(plan: TrainingPlan, groups: Any) -> None:
    """Persons are the unit exactly where it is known whose row it is."""
    if isinstance(groups, str):
        rule = "names a column, and there is no table in silos="
        raise PlanError("groups", groups, rule, "Pass one array of identifiers per silo.")
    if groups is not None:
        _require_persons(plan)
    elif plan.protects_persons:
        rule = 'must say whose every row is for privacy.unit = "person"'
        raise PlanError("groups", None, rule, "Pass one array of identifiers per silo.")


def _check_loaded(plan: TrainingPlan, silos: FederatedData) -> None:
    """Records that were loaded before know about persons what the plan protects."""
    persons = plan.protects_persons
    known = {silo.train.persons is not None for silo in silos.silos}
    if known != {persons}:
        rule = f"must be {'record' if persons else 'person'} for these records, which "
        rule += "do not say whose rows they are" if persons else "are grouped by person"
        fix = "Load them by a plan of the same unit, or change privacy.unit."
        raise PlanError("privacy.unit", plan.privacy.unit, rule, fix)
    most = plan.privacy.silos_per_person
    if persons and most > 1 and not silos.same_part_everywhere:
        rule = "must be 1 for records in which a person may train in one silo and test in another"
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
            dotted("data.bounds", column),
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
