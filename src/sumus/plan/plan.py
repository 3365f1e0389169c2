"""The training plan: every public number that all silos agree on, in one frozen value.

A plan is one TOML file. Unknown keys are refused, every value is checked when the plan is made, and
the canonical hash of the plan binds every protocol message and every ledger entry. Data-dependent
values never live here; speed and paths do not either.

    plan = TrainingPlan.load("plans/digits.toml")
    plan = plan.with_overrides({"privacy.epsilon": "3"})
    plan.hash                                       # 64 hexadecimal digits
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

from sumus.errors import PlanError
from sumus.files import closest, parse_toml, read_toml, toml_value
from sumus.plan.algorithms import RULES, AlgorithmRules
from sumus.plan.checks import check_together
from sumus.plan.overrides import TABLES, parse_value, steps_to
from sumus.plan.sections import (
    SECTIONS,
    AggregationPlan,
    DataPlan,
    DescribePlan,
    EvaluationPlan,
    FederationPlan,
    NoisePlan,
    PrivacyPlan,
    ReportPlan,
    SiloPlan,
    TrainingSectionPlan,
)
from sumus.tasks import TASKS, Declared, Task, declared_task

__all__ = [
    "DEFAULT_PLAN",
    "DEFAULT_ROWS_PER_PERSON",
    "UNNAMED",
    "AggregationPlan",
    "DataPlan",
    "DescribePlan",
    "EvaluationPlan",
    "FederationPlan",
    "NoisePlan",
    "PrivacyPlan",
    "ReportPlan",
    "SiloPlan",
    "TrainingPlan",
    "TrainingSectionPlan",
]

DEFAULT_PLAN = Path(__file__).parent / "plans" / "digits.toml"  # the embedded data, in seconds
DEFAULT_ROWS_PER_PERSON = 100
UNNAMED = "own-data"
"""The data set, and so the ledger, of all records given in Python that nobody named."""
"""Rows of a person that are used where the plan does not say, and each person counts with a mean."""
_HASH_DOMAIN = "sumus-plan-v1"


@final
@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Every public number of a federation.

    Guarantee: two plans have the same `hash` if and only if all their values are equal (up to
        SHA-256 collisions); a plan that exists satisfies every rule that does not depend on data.
    """

    privacy: PrivacyPlan = field(default_factory=PrivacyPlan)
    federation: FederationPlan = field(default_factory=FederationPlan)
    training: TrainingSectionPlan = field(default_factory=TrainingSectionPlan)
    noise: NoisePlan = field(default_factory=NoisePlan)
    aggregation: AggregationPlan = field(default_factory=AggregationPlan)
    data: DataPlan = field(default_factory=DataPlan)
    describe: DescribePlan = field(default_factory=DescribePlan)
    evaluation: EvaluationPlan = field(default_factory=EvaluationPlan)
    report: ReportPlan = field(default_factory=ReportPlan)
    silo: Mapping[str, SiloPlan] = field(default_factory=dict)
    # of the plan's file: `data.path` starts here
    folder: Path | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_together(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Plans are pickled as tables: their mappings are read-only views."""
        return _unpickled, (self.as_table(), self.folder)

    # -- TOML in and out

    @classmethod
    def load(cls, path: str | Path) -> TrainingPlan:
        """Read a plan from a TOML file; its relative `data.path` is one below the file's folder."""
        return replace(cls.from_toml(read_toml(path, "plan")), folder=Path(path).absolute().parent)

    @classmethod
    def from_toml(cls, source: str) -> TrainingPlan:
        """Parse a plan from TOML text."""
        return cls.from_table(parse_toml(source, "plan"))

    @classmethod
    def from_table(cls, entries: Mapping[str, Any]) -> TrainingPlan:
        """Build a plan from nested tables."""
        sections: dict[str, Any] = {}
        for title, value in entries.items():
            if title == "silo":
                if not isinstance(value, Mapping):
                    raise PlanError(
                        "silo",
                        value,
                        "must be a table of tables",
                        "Write [silo.NAME] for each silo that differs.",
                    )
                sections["silo"] = {
                    name: SiloPlan.from_table(each, prefix=f"silo.{name}")
                    for name, each in sorted(value.items())
                }
            elif title in SECTIONS:
                sections[title] = SECTIONS[title].from_table(value)
            elif homes := [f"[{name}]" for name, section in SECTIONS.items() if section.has(title)]:
                rule = "is a key of a section and stands outside of one"
                raise PlanError(title, value, rule, f"Put it below a line {' or '.join(homes)}.")
            else:
                raise PlanError(
                    title,
                    value,
                    "is not a section of the plan",
                    closest(title, [*SECTIONS, "silo"]),
                )
        return cls(**sections)

    def as_table(self) -> dict[str, Any]:
        """The plan as nested plain tables, defaults included, unset keys left out."""
        out: dict[str, Any] = {title: getattr(self, title).as_table() for title in SECTIONS}
        if self.silo:
            out["silo"] = {name: each.as_table() for name, each in sorted(self.silo.items())}
        return out

    def to_toml(self) -> str:
        """The plan as TOML text; `from_toml` of it gives an equal plan."""
        lines: list[str] = []
        for title, entries in self.as_table().items():
            groups = (
                {f"{title}.{name}": each for name, each in entries.items()}
                if title == "silo"
                else {title: entries}
            )
            for heading, keys in groups.items():
                lines += [
                    f"[{heading}]"
                    if title != "silo"
                    else f"[silo.{toml_value(heading.removeprefix('silo.'))}]"
                ]
                lines += [f"{key} = {toml_value(value)}" for key, value in keys.items()]
                lines += [""]
        return "\n".join(lines)

    # -- change and identity

    def with_overrides(self, overrides: Mapping[str, object]) -> TrainingPlan:
        """A plan with some values replaced: keys as `section.key`, values as TOML text or as Python
        values.

        "none" unsets a key that can be unset; for every other key it is a word like any other
        (`evaluation.metrics=none`).
        """
        entries = self.as_table()
        for dotted, value in overrides.items():
            parts = steps_to(dotted, value)
            target = entries
            for part in parts[:-1]:
                target = target.setdefault(part, {})
            section = SiloPlan if parts[0] == "silo" else SECTIONS.get(parts[0])
            unset = section is not None and (
                ".".join(parts[:-1]) in TABLES or section.may_be_unset(parts[-1])
            )
            if value is None or (str(value).strip().lower() == "none" and unset):
                target.pop(parts[-1], None)
            else:
                target[parts[-1]] = parse_value(value) if isinstance(value, str) else value
        return replace(TrainingPlan.from_table(entries), folder=self.folder)

    def moved_to(self, folder: str | Path) -> Self:
        """The plan as it is to be written into another folder: a relative `data.path` still names
        the same file.
        """
        folder = Path(folder).absolute()
        path = self.data.path
        if path is None or self.folder in (None, folder) or not (self.folder / path).exists():
            return replace(self, folder=folder)
        kept = replace(
            self.data,
            path=path if Path(path).is_absolute() else os.path.relpath(self.folder / path, folder),
        )
        return replace(self, data=kept, folder=folder)

    def replace(self, section: str, **changes: Any) -> TrainingPlan:
        """A plan with keys of one section replaced by Python values."""
        return replace(self, **{section: replace(getattr(self, section), **changes)})

    @property
    def canonical(self) -> bytes:
        """Canonical bytes of the plan: JSON with sorted keys and shortest round-trip numbers."""
        return json.dumps(
            self.as_table(), sort_keys=True, separators=(",", ":"), allow_nan=False
        ).encode()

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the canonical bytes, in hexadecimal; every message asks for it."""
        return hashlib.sha256(_HASH_DOMAIN.encode() + b"\0" + self.canonical).hexdigest()

    # -- derived public numbers

    @property
    def task(self) -> Task:
        """What is learned, as `training.task` names it and the data section declares its labels;
        `data.bounds.label` stands for the labels of records given in Python.
        """
        task, data = TASKS[self.training.task], self.data
        given = "label" if data.objects is not None else None
        columns = {key: getattr(data, key) or given for key in task.label_keys}
        solved = self.rules.sums == "moments"  # by least squares, unless every class has a matrix
        weights = self.training.class_weights  # by name: in no order before the classes are known
        return declared_task(
            self.training.task,
            Declared(
                columns,
                data.bounds or {},
                intervals=data.intervals,
                classes=self.evaluation.classes,
                start_hazard=self.training.start_hazard,
                class_weights=weights if isinstance(weights, tuple) else None,
                label_columns=data.label_columns,
                squares=solved and task.moment_matrices(self.training.model) == 1,
            ),
        )

    @property
    def rules(self) -> AlgorithmRules:
        """What the plan's algorithm protects, knows and refuses."""
        return RULES[self.training.algorithm]

    @property
    def describes(self) -> bool:
        """Whether records are described and no model is trained."""
        return self.rules.sums == "cells"

    @property
    def protects_silos(self) -> bool:
        """Whether the unit of privacy is all records of one silo."""
        return self.privacy.unit == "silo"

    @property
    def protects_persons(self) -> bool:
        """Whether the unit of privacy is all rows of one person."""
        return self.privacy.unit == "person"

    @property
    def rows_per_person(self) -> int:
        """M: the most rows of a unit of privacy that are used; 1 where a row is a unit of its own."""
        if not self.protects_persons:
            return 1
        most = self.data.records_per_person
        return DEFAULT_ROWS_PER_PERSON if most is None else most

    @property
    def noise_contributors(self) -> int:
        """k: silos of a round whose noise the guarantee may count, N − tolerated drop-outs −
        colluding silos.
        """
        return self.least_invited - self.federation.dropouts - self.colluding

    @property
    def least_invited(self) -> int:
        """The number of silos that every round invites at least."""
        federation = self.federation
        if federation.selection != "poisson":
            return self.invited
        if federation.selected is not None:
            return federation.selected
        return 1 + federation.dropouts + self.colluding

    @property
    def invited(self) -> int:
        """The number of silos that a round invites at most."""
        federation = self.federation
        taking_part = federation.selected if federation.selection == "fixed" else federation.silos
        if taking_part is None:
            raise PlanError(
                "federation.silos",
                None,
                "must be known to size the noise",
                "Set it or name a data set.",
            )
        return taking_part

    @property
    def colluding(self) -> int:
        """c: silos that may share what they know, their own noise first of all, with the server or
        with each other.

        Every silo sees the model and knows its own noise, so whoever is curious by himself counts
        as one. A plan that does not say takes 1 from three silos up, where the protocol can bear it
        (N > 2·dropouts + c), and 0 below: of two silos each is all the other has.
        """
        federation = self.federation
        if federation.colluding is not None:
            return federation.colluding
        silos = federation.silos if federation.selection == "all" else federation.selected
        return 1 if silos is not None and silos >= 3 and silos > 2 * federation.dropouts + 1 else 0

    def measures_after(self, number: int) -> bool:
        """Whether the model that round `number` (from 0) leaves is measured on test records."""
        if self.evaluation.metrics == "none":
            return False
        last = self.federation.rounds
        every = self.evaluation.every or (last if self.evaluation.metrics == "secure" else 1)
        return number + 1 == last or (number + 1 < last and (number + 1) % every == 0)

    def without_effect(self) -> list[str]:
        """What was set and means nothing in this plan, in words."""
        tables = {title: getattr(self, title) for title in SECTIONS} | {
            f"silo.{name}": each for name, each in self.silo.items()
        }
        values = {
            f"{title}.{item.name}": getattr(table, item.name)
            for title, table in tables.items()
            for item in fields(table)
        }
        if self.data.objects is not None:
            values["data.path"] = self.data.objects  # its columns, or its labels, are declared
        return [
            line
            for title, table in tables.items()
            for line in table.without_effect(values, title=title)
        ]

    @property
    def resolution(self) -> int:
        """r: grid steps per clip norm."""
        return 1 << self.noise.resolution_bits


def _unpickled(entries: Mapping[str, Any], folder: Path | None) -> TrainingPlan:
    return replace(TrainingPlan.from_table(entries), folder=folder)
