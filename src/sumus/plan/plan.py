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
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self, final

from sumus.errors import PlanError
from sumus.files import closest, parse_toml, read_toml
from sumus.plan.sections import (
    SECTIONS,
    AggregationPlan,
    DataPlan,
    EvaluationPlan,
    FederationPlan,
    NoisePlan,
    PrivacyPlan,
    ReportPlan,
    SiloPlan,
    TrainingSectionPlan,
)

__all__ = [
    "DEFAULT_PLAN",
    "AggregationPlan",
    "DataPlan",
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
_HASH_DOMAIN = "sumus-plan-v1"
# keys that hold a table, whose entries `--set` reaches by name
_TABLES = ("data.bounds", "data.categories")


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
    evaluation: EvaluationPlan = field(default_factory=EvaluationPlan)
    report: ReportPlan = field(default_factory=ReportPlan)
    silo: Mapping[str, SiloPlan] = field(default_factory=dict)
    # of the plan's file: `data.path` starts here
    folder: Path | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_together(self)

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
                    else f"[silo.{_quoted(heading.removeprefix('silo.'))}]"
                ]
                lines += [f"{key} = {_toml_value(value)}" for key, value in keys.items()]
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
            parts = _steps_to(dotted, value)
            target = entries
            for part in parts[:-1]:
                target = target.setdefault(part, {})
            section = SiloPlan if parts[0] == "silo" else SECTIONS.get(parts[0])
            unset = section is not None and (
                ".".join(parts[:-1]) in _TABLES or section.may_be_unset(parts[-1])
            )
            if value is None or (str(value).strip().lower() == "none" and unset):
                target.pop(parts[-1], None)
            else:
                target[parts[-1]] = _parse_value(value) if isinstance(value, str) else value
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

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical bytes, in hexadecimal."""
        return hashlib.sha256(_HASH_DOMAIN.encode() + b"\0" + self.canonical).hexdigest()

    # -- derived public numbers

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
        return [
            line
            for title, table in tables.items()
            for line in table.without_effect(values, title=title)
        ]

    @property
    def resolution(self) -> int:
        """r: grid steps per clip norm."""
        return 1 << self.noise.resolution_bits


def _check_together(plan: TrainingPlan) -> None:
    """Rules that join several keys."""
    federation, training = plan.federation, plan.training
    if federation.local_steps is not None and federation.local_epochs is not None:
        raise PlanError(
            "federation.local_epochs",
            federation.local_epochs,
            "cannot stand beside local_steps",
            "Keep one of them.",
        )
    if training.sampling_rate is not None and training.batch_size is not None:
        raise PlanError(
            "training.batch_size",
            training.batch_size,
            "cannot stand beside sampling_rate",
            "Keep one of them.",
        )
    if training.algorithm == "single-step" and federation.local_steps not in (None, 1):
        raise PlanError(
            "federation.local_steps",
            federation.local_steps,
            'must be 1 for "single-step"',
            'Use "dp-sgd" for more.',
        )
    if (plan.privacy.unit == "silo") != (
        training.algorithm == "silo"
    ) and training.algorithm != "fedavg":
        rule = 'must be "silo" exactly when training.algorithm is "silo"'
        raise PlanError("privacy.unit", plan.privacy.unit, rule, "Change one of the two.")
    if plan.noise.mechanism == "poisson-binomial" and plan.privacy.unit != "silo":
        rule = 'can be "poisson-binomial" only for privacy.unit = "silo"'
        raise PlanError("noise.mechanism", plan.noise.mechanism, rule, 'Use "skellam".')
    if plan.evaluation.metrics == "secure" and plan.privacy.unit == "silo":
        rule = (
            'must not be "secure" for privacy.unit = "silo" (the counts protect one test record, '
            "not a whole silo)"
        )
        raise PlanError("evaluation.metrics", "secure", rule, 'Use "none".')
    if plan.evaluation.metrics == "secure" and plan.privacy.calibrate_to == "local":
        rule = (
            'must not be "secure" beside privacy.calibrate_to = "local" (counts of test records '
            "need the noise of other silos)"
        )
        raise PlanError(
            "evaluation.metrics", "secure", rule, 'Use "none", or privacy.calibrate_to = "proved".'
        )
    if training.algorithm == "convex-pass" and training.local_momentum:
        rule = "must be 0 for convex-pass (momentum breaks non-expansiveness)"
        raise PlanError(
            "training.local_momentum", training.local_momentum, rule, "Use server_momentum instead."
        )
    if training.algorithm == "convex-pass" and plan.noise.rounding not in ("auto", "sum"):
        rule = "must be auto or sum for convex-pass (its whole update is rounded, once)"
        raise PlanError("noise.rounding", plan.noise.rounding, rule, "Leave it out.")
    if training.l2_penalty and training.algorithm in ("dp-sgd", "split-noise", "single-step"):
        rule = f"must be 0 for {training.algorithm} (its steps are sums of clipped gradients alone)"
        raise PlanError(
            "training.l2_penalty", training.l2_penalty, rule, "Remove it, or use convex-pass."
        )
    if training.learning_rates is not None and training.algorithm in (
        "convex-pass",
        "silo",
        "fedavg",
    ):
        rule = f"has no meaning for {training.algorithm} (one learning rate for all its steps)"
        raise PlanError(
            "training.learning_rates", training.learning_rates, rule, "Use learning_rate."
        )
    if training.learning_rates is not None and any(each.local_steps for each in plan.silo.values()):
        rule = (
            "cannot stand beside a silo's own local_steps (weights of the steps are common to all "
            "silos)"
        )
        raise PlanError(
            "training.learning_rates", training.learning_rates, rule, "Keep one of them."
        )
    if training.learning_rates == ():
        raise PlanError(
            "training.learning_rates",
            [],
            "must hold one rate per local step",
            "Add rates, or use learning_rate.",
        )
    if training.local_momentum and training.learning_rates is not None:
        raise PlanError(
            "training.learning_rates",
            training.learning_rates,
            "cannot stand beside local_momentum",
            "Keep one.",
        )
    if training.learning_rates is not None and federation.local_steps not in (
        None,
        len(training.learning_rates),
    ):
        rule = f"must hold one rate per local step ({federation.local_steps})"
        raise PlanError(
            "training.learning_rates", training.learning_rates, rule, "Add or remove rates."
        )
    if federation.selection == "fixed" and federation.selected is None:
        raise PlanError(
            "federation.selected",
            None,
            'must be set for selection = "fixed"',
            "Give the number of silos per round.",
        )
    if federation.selection == "poisson" and federation.selection_rate is None:
        raise PlanError(
            "federation.selection_rate",
            None,
            'must be set for selection = "poisson"',
            "Give a probability.",
        )
    silos = federation.silos if federation.selection == "all" else federation.selected
    if (
        federation.silos is not None
        and federation.selected is not None
        and federation.selected > federation.silos
    ):
        raise PlanError(
            "federation.selected",
            federation.selected,
            f"must not exceed silos = {federation.silos}",
            "Lower it.",
        )
    if silos is not None and silos - federation.dropouts - plan.colluding < 1:
        # the larger of the two is the one that is out of proportion
        trusted = {"dropouts": federation.dropouts, "colluding": plan.colluding}
        name, other = (
            ("colluding", "dropouts")
            if plan.colluding > federation.dropouts
            else ("dropouts", "colluding")
        )
        most = silos - 1 - trusted[other]
        fix = (
            f"Use at most {most}."
            if most >= 0
            else f"Lower federation.{other} = {trusted[other]} too."
        )
        rule = (
            f"must leave at least one of {silos} silos whose noise counts (dropouts + colluding < "
            "silos)"
        )
        raise PlanError(f"federation.{name}", trusted[name], rule, fix)
    if (
        plan.aggregation.protocol == "secagg"
        and silos is not None
        and silos <= 2 * federation.dropouts + plan.colluding
    ):
        rule = (
            f"must leave silos > 2·dropouts + colluding ({silos} silos, federation.colluding = "
            f"{plan.colluding}) for the secure sum"
        )
        most = (silos - plan.colluding - 1) // 2  # at least 0: one silo is left whose noise counts
        raise PlanError(
            "federation.dropouts",
            federation.dropouts,
            rule,
            f"Use at most {most}, or lower federation.colluding.",
        )
    _check_data(plan.data)


def _check_data(data: DataPlan) -> None:
    """Rules that join several keys of the data section."""
    sources = [name for name in ("name", "path", "objects") if getattr(data, name) is not None]
    if len(sources) > 1:
        field, rule = f"data.{sources[1]}", f"cannot stand beside data.{sources[0]}"
        raise PlanError(field, getattr(data, sources[1]), rule, "Keep one of them.")
    if data.counts == "bounded" and data.records_per_silo is None:
        rule = "needs the bounds in data.records_per_silo"
        raise PlanError(
            "data.counts", "bounded", rule, "Add one bound per silo, or remove the key."
        )
    if data.path is not None and (data.label_column is None or data.silo_column is None):
        missing = "label_column" if data.label_column is None else "silo_column"
        raise PlanError(
            f"data.{missing}", None, "must be set when data.path is", "Name a column of the file."
        )
    if data.columns is not None and (
        not data.columns or len(set(data.columns)) < len(data.columns)
    ):
        fix = "Leave the key out to use all columns, or name each once."
        raise PlanError(
            "data.columns",
            list(data.columns),
            "must name at least one column and none of them twice",
            fix,
        )
    for name in (data.silo_column, data.label_column):
        if name is not None and name in (data.bounds or {}):
            rule = (
                "must not bound the column of silos or labels: their values are names, not numbers"
            )
            raise PlanError(
                f"data.bounds.{name}",
                list((data.bounds or {})[name]),
                rule,
                f"Remove it, or use data.categories.{name}.",
            )


def _steps_to(dotted: str, value: object) -> list[str]:
    """The nested names of an override; names of silos and of columns may have dots in them."""
    head, _, rest = dotted.partition(".")
    if head == "silo" and "." in rest:
        return ["silo", *rest.rsplit(".", 1)]
    table = next((name for name in _TABLES if dotted.startswith(f"{name}.")), None)
    if table is not None:
        return [*table.split("."), dotted.removeprefix(f"{table}.")]
    if head == "silo":
        raise PlanError(
            dotted,
            value,
            "must name a key as silo.NAME.key",
            "For example --set silo.Oslo.local_steps=3.",
        )
    if not rest or "." in rest:
        raise PlanError(
            dotted or "--set",
            value,
            "must name a key as section.key",
            "For example --set privacy.epsilon=3.",
        )
    return [head, rest]


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{_quoted(key)} = {_toml_value(each)}" for key, each in value.items())
            + "}"
        )
    return repr(value)


def _parse_value(source: str) -> Any:
    """A TOML value as typed on a command line; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {source}")["value"]
    except (ValueError, RecursionError):  # ValueError: also of a number with thousands of digits
        return source
