"""A draft: the plan for a table, what it says about every column, and what only the terminal says.

Guarantee: the plan is one that trains: it was resolved on the table and its ε certified before
    anybody sees it. Of the records it holds the kinds of columns and what follows from the order of
    magnitude of their number; values only of columns that somebody declared to be public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from sumus.data import NumberColumn, TextColumn, as_text, looks_like, public_facts
from sumus.drafting.asked import Asked, LookedAt, check_task, values_of
from sumus.drafting.choices import Choice, Size, choices_for
from sumus.drafting.findings import Finding
from sumus.drafting.schema import Known
from sumus.errors import DataError, PlanError
from sumus.guarantee import Account, calibrated, certify
from sumus.plan import DataPlan, PrivacyPlan, PublicFacts, TrainingPlan
from sumus.tasks import TASKS

__all__ = ["Draft", "Used", "draft"]

_RARE = 0.1  # share of a class below which accuracy says little
_LEAST_RECORDS = 5  # of a value whose name may become public


@final
@dataclass(frozen=True)
class Used:
    """How a column of features is encoded, and by which public knowledge."""

    finding: Finding
    bounds: tuple[float, float] | None = None
    categories: tuple[str, ...] | None = None
    by_type: bool = False  # the file's own type says what it can hold

    @property
    def how(self) -> str:
        """What becomes of a value, in words."""
        if self.bounds is not None:
            return "scaled to its bounds"
        if self.categories is not None or (self.by_type and self.finding.kind == "category"):
            return "a feature for each on its list, one for others"
        if self.finding.is_number:
            return "no bounds, so piecewise linear at fixed knots"
        if self.by_type:
            return "yes or no"
        return "no list, so hashed into 2 × 32 buckets"


@final
@dataclass(frozen=True)
class Draft:
    """A plan for a table, and everything that is said beside it.

    Args:
        plan: as it will be written.
        account: of the same plan.
        choices: what was chosen, key by key.
        used: columns that make features, in the order of the file.
        left_out: columns that do not.
        listed: columns whose values were read off the table because somebody said so.
        remarks: for the terminal of whoever holds the records; they count records, and no file may
            hold them.
    """

    asked: Asked
    looked_at: LookedAt
    plan: TrainingPlan
    facts: PublicFacts
    account: Account
    choices: tuple[Choice, ...]
    used: tuple[Used, ...]
    left_out: tuple[Finding, ...]
    listed: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def unbounded(self) -> tuple[str, ...]:
        """Columns of numbers whose bounds are not known."""
        return tuple(each.finding.name for each in self.used if _wants_bounds(each))

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Columns of text whose categories are not known."""
        return tuple(
            each.finding.name
            for each in self.used
            if each.finding.kind == "category" and each.categories is None and not each.by_type
        )


def _wants_bounds(used: Used) -> bool:
    return used.finding.is_number and used.bounds is None and used.categories is None


def draft(looked_at: LookedAt, asked: Asked) -> Draft:
    """A plan for a table.

    Args:
        looked_at: the table, read.
        asked: what is wanted and known.
    """
    table = looked_at.table
    given = {"epsilon": asked.epsilon, "delta": asked.delta}
    PrivacyPlan.from_table({key: value for key, value in given.items() if value is not None})
    task = _task(looked_at, asked)
    person, unit = _person(looked_at, asked)
    labels = _labels(looked_at, asked, task)
    asked.known.check_columns(table.columns)
    known = asked.known.joined(_listed(looked_at, asked))
    reserved = {asked.silo, *labels.values(), *filter(None, [person])}
    used, left_out = _features(looked_at, asked, known, reserved)
    if not used:
        raise DataError(
            f"{table.path.name} has no column that can be a feature besides {', '.join(sorted(reserved))}: "
            f"{', '.join(f'{each.name} ({each.kind})' for each in left_out[:6]) or 'there is no other'}. "
            "Add one, or give its bounds or categories in a schema file."
        )
    data = _data(looked_at, asked, labels, person, used, known)
    if TASKS[task].label_declaration == "bounds" and asked.label not in known.bounds:
        rule = f"must say between which public numbers {asked.label} lies (--task {task})"
        fix = f"Give --bounds {asked.label}=LOW,HIGH, or a --schema that has them."
        raise PlanError("--bounds", None, rule, fix)
    entries = {"data": data, "training": {"task": task}, "privacy": {"unit": unit}}
    facts = public_facts(_plan(entries, looked_at))
    size = Size(
        units=sum(facts.records_per_silo),
        smallest=min(facts.records_per_silo),
        silos=facts.silos,
        features=facts.shape[0],
        classes=len(facts.labels.names),
    )
    choices = choices_for(task, size, epsilon=asked.epsilon, delta=asked.delta, unit=unit)
    for choice in choices:
        entries.setdefault(choice.section, {})[choice.name] = choice.value
    account = certify(calibrated(_plan(entries, looked_at)))
    return Draft(
        asked=replace(asked, task=task, person=person, unit=unit, known=known),
        looked_at=looked_at,
        plan=_plan(entries, looked_at),
        facts=facts,
        account=account,
        choices=choices,
        used=used,
        left_out=left_out,
        listed=asked.listed,
        remarks=_remarks(looked_at, asked, facts, person, unit, used),
    )


def _plan(entries: Mapping[str, Mapping[str, Any]], looked_at: LookedAt) -> TrainingPlan:
    return replace(TrainingPlan.from_table(entries), folder=looked_at.folder)


def _task(looked_at: LookedAt, asked: Asked) -> str:
    """The task that is asked for, otherwise what time and event, or the label, suggest."""
    timed = asked.time is not None or asked.event is not None
    if asked.task is not None:
        check_task(asked.task)
    if timed and asked.task in (None, "survival"):
        return "survival"
    if timed:
        rule = f"is for survival, not for --task {asked.task}"
        raise PlanError("--time", asked.time or asked.event, rule, "Remove one of them.")
    if asked.task is not None:
        return asked.task
    if asked.label is None:
        rule = "must name the column that is to be learned"
        raise PlanError("--label", None, rule, _columns(looked_at))
    looked_at.column(asked.label, "--label")
    return looked_at.task_of(asked.label, asked.known)


def _columns(looked_at: LookedAt) -> str:
    names = list(looked_at.table.columns)
    return f"Columns: {', '.join(names[:20])}{', …' if len(names) > 20 else ''}."


def _person(looked_at: LookedAt, asked: Asked) -> tuple[str | None, str]:
    """The column of persons and the unit: persons with several rows are protected whole, unless
    somebody says otherwise.
    """
    if asked.unit not in (None, "record", "person"):
        rule = 'must be "record" or "person"'
        raise PlanError("--unit", asked.unit, rule, "Leave it out to choose by the columns.")
    if asked.person is not None:
        looked_at.column(asked.person, "--person")
        return asked.person, asked.unit or "person"
    taken = (asked.silo, asked.label, asked.time, asked.event)
    suggested = [
        name
        for name in looked_at.persons
        if name not in taken and _is_complete(looked_at.table.columns[name])
    ]
    if asked.unit == "record" or not suggested:
        if asked.unit == "person":
            rule = "needs the column that says whose row it is"
            raise PlanError("--unit", "person", rule, "Give --person COLUMN.")
        return None, "record"
    return suggested[0], "person"


def _is_complete(column: NumberColumn | TextColumn) -> bool:
    """Whether every row says whose it is."""
    if isinstance(column, NumberColumn):
        return not np.any(np.isnan(column.values))
    return not np.any(column.codes < 0)


def _labels(looked_at: LookedAt, asked: Asked, task: str) -> dict[str, str]:
    """The columns that labels are read from, by their keys of the plan."""
    options = {
        "label_column": ("--label", asked.label),
        "time_column": ("--time", asked.time),
        "event_column": ("--event", asked.event),
    }
    labels: dict[str, str] = {}
    for key in TASKS[task].label_keys:
        option, name = options[key]
        if name is None:
            rule = f"must name a column for --task {task}"
            raise PlanError(option, None, rule, _columns(looked_at))
        looked_at.column(name, option)
        labels[key] = name
    if task == "survival" and asked.label is not None:
        rule = "is not what survival learns from (--time and --event are)"
        raise PlanError("--label", asked.label, rule, "Remove it.")
    if task == "survival" and asked.intervals is None:
        rule = "must say where time is cut, in the units of --time"
        fix = "Give public cut points, such as --intervals 30,90,365."
        raise PlanError("--intervals", None, rule, fix)
    looked_at.column(asked.silo, "--silo")
    return labels


def _listed(looked_at: LookedAt, asked: Asked) -> Known:
    """Values of columns that somebody declares to be public."""
    lists = {
        name: values_of(looked_at.column(name, "--list"), _LEAST_RECORDS) for name in asked.listed
    }
    return Known(categories=lists)


def _features(
    looked_at: LookedAt, asked: Asked, known: Known, reserved: set[str]
) -> tuple[tuple[Used, ...], tuple[Finding, ...]]:
    """Columns that make features, and those that are left out with the reason."""
    for name in asked.unwanted:
        looked_at.column(name, "--leave-out")
    used: list[Used] = []
    left_out: list[Finding] = []
    for name, finding in looked_at.findings.items():
        if name in reserved:
            continue
        if name in asked.unwanted:
            left_out.append(replace(finding, left_out="as you said (--leave-out)"))
        elif finding.left_out is None or name in known:  # what is declared is wanted
            used.append(
                Used(
                    finding,
                    known.bounds.get(name),
                    known.categories.get(name),
                    _is_typed(looked_at.table.columns[name]),
                )
            )
        else:
            left_out.append(finding)
    return tuple(used), tuple(left_out)


def _is_typed(column: NumberColumn | TextColumn) -> bool:
    """Whether the file's own type says which values there can be."""
    return column.declared if isinstance(column, TextColumn) else column.bounds is not None


def _data(
    looked_at: LookedAt,
    asked: Asked,
    labels: Mapping[str, str],
    person: str | None,
    used: tuple[Used, ...],
    known: Known,
) -> dict[str, Any]:
    names = [each.finding.name for each in used]
    meant = {asked.silo, *labels.values(), *names}
    commas = [
        name
        for name, finding in looked_at.findings.items()
        if (finding.kind == "decimal comma" and name in meant)
        or (name in labels.values() and looks_like(looked_at.table.columns[name]) == "commas")
    ]
    entries: dict[str, Any] = {"path": looked_at.path, "silo_column": asked.silo, **labels}
    entries |= {"encoding": looked_at.encoding} if looked_at.encoding is not None else {}
    entries |= {"person_column": person} if person is not None else {}
    entries |= {"intervals": list(asked.intervals)} if asked.intervals is not None else {}
    entries |= {"columns": names}
    entries |= {"decimal_comma": commas} if commas else {}
    bounds = {name: list(ends) for name, ends in known.bounds.items() if name in meant}
    lists = {name: list(each) for name, each in known.categories.items() if name in meant}
    entries |= {"bounds": bounds} if bounds else {}
    entries |= {"categories": lists} if lists else {}
    DataPlan.from_table(entries)  # every value by its own rule, before they are joined
    return entries


def _remarks(
    looked_at: LookedAt,
    asked: Asked,
    facts: PublicFacts,
    person: str | None,
    unit: str,
    used: tuple[Used, ...],
) -> tuple[str, ...]:
    """What the records look like, counted; for the eyes of whoever holds them."""
    table = looked_at.table
    counts = facts.records_per_silo
    what = "persons" if unit == "person" else "records"
    lines = [
        f"{table.records:,} rows, {facts.silos} silos with {min(counts):,} to {max(counts):,} "
        f"training {what}"
    ]
    if facts.silos == 1:
        lines.append("there is one silo: nobody else's noise or records join in")
    if asked.label is not None and facts.labels.names:
        labels = as_text(table.columns[asked.label])
        shares = np.bincount(labels.codes[labels.codes >= 0]) / max(table.records, 1)
        rarest = float(shares[shares > 0].min())
        if rarest < _RARE and len(facts.labels.names) <= 5:
            lines.append(
                f"the rarest class of {asked.label} has {rarest:.1%} of the rows: read AUROC rather "
                'than accuracy; if it is public that it is rare, training.model = "linear" is '
                "steadier under normal-equations"
            )
    missing = [
        each.finding.name for each in used if not _is_complete(table.columns[each.finding.name])
    ]
    if missing:
        lines.append(
            f"values are missing in {', '.join(missing[:6])}"
            f"{f' and {len(missing) - 6} more' if len(missing) > 6 else ''}: a feature of its own "
            "says so"
        )
    if person is not None:
        rows = as_text(table.columns[person])
        repeated = np.bincount(rows.codes[rows.codes >= 0])
        if repeated.max(initial=0) > 1:
            lines.append(f"one value of {person} stands in {int(repeated.max()):,} rows")
        if unit == "person":
            lines += _in_several_silos(rows, as_text(table.columns[asked.silo]))
    return tuple(lines)


def _in_several_silos(persons: TextColumn, silos: TextColumn) -> list[str]:
    """How many persons have rows in more than one silo, and what protects them across silos."""
    known = (persons.codes >= 0) & (silos.codes >= 0)
    pairs = np.unique(np.stack([persons.codes[known], silos.codes[known]], axis=1), axis=0)
    counts = np.unique(pairs[:, 0], return_counts=True)[1]
    several = int(np.count_nonzero(counts > 1))
    if not several:
        return []
    are = "1 person is" if several == 1 else f"{several:,} persons are"
    most = int(counts.max())
    return [
        f"{are} in several silos, at most in {most:,}: each silo protects its rows of them by "
        f"itself; privacy.silos_per_person = {most} protects them in all together"
    ]
