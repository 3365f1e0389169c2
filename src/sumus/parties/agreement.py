"""What every party works out for itself from the plan alone, before a byte is exchanged: facts,
design, model, terms.

A federation's plan must be complete without any record: a named data set has published facts, a
table declares its columns, classes, silos and record bounds in the plan. So the coordinator, who
holds no record, and every silo arrive at the same design and the same hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from sumus.data import (
    OwnTable,
    TextColumn,
    described_pool,
    label_columns,
    public_facts,
    table_pool,
)
from sumus.errors import GuaranteeError, PlanError
from sumus.guarantee import Account, NoiseDesign, calibrated, certify, sum_length
from sumus.parties.sums import terms_of
from sumus.plan import PublicFacts, TrainingPlan
from sumus.secagg import Terms

__all__ = ["Agreement", "agree_on", "declared_facts"]


@final
@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The plan as it runs and everything public that follows from it.

    Args:
        design: of the resolved and calibrated plan; its hash names the federation.
        certified: the guarantee, by this party's own Sumus; None without privacy, and for audits,
            which release nothing.
        asked: rounds that may be asked for; None: the plan's. An audit releases nothing and may ask
            for more.
    """

    design: NoiseDesign
    certified: Account | None
    asked: int | None = None

    @property
    def plan(self) -> TrainingPlan:
        return self.design.plan

    @property
    def account(self) -> Account:
        """The guarantee; raises where there is none."""
        if self.certified is None:
            raise GuaranteeError("this plan runs without a guarantee. Only a simulation does.")
        return self.certified

    @property
    def names(self) -> tuple[str, ...]:
        """Of all silos, by their places in the plan."""
        return self.design.resolved.silo_names

    @property
    def rounds(self) -> int:
        """How many rounds a silo answers."""
        return self.plan.federation.rounds if self.asked is None else self.asked

    def design_of(self, number: int) -> NoiseDesign:
        """What round `number` (from 0) draws; where more rounds are answered than the plan has, they
        begin anew.
        """
        beyond = self.asked is not None
        return self.design.in_round(number % self.plan.federation.rounds if beyond else number)

    @property
    def trusted(self) -> bool:
        """Whether somebody whom everybody trusts adds the vectors up: simulation only."""
        plan = self.plan
        return plan.aggregation.protocol == "trusted" or not plan.rules.private

    @property
    def terms(self) -> Terms:
        """The terms of the secure sum of all silos."""
        return self.terms_for(len(self.design.silos))

    def terms_for(self, silos: int) -> Terms:
        """The terms of a secure sum of so many silos: a threshold is silos − drop-outs, so keys
        belong to a set of invited silos.
        """
        return terms_of(self.plan, silos=silos, length=sum_length(self.design.resolved))


def agree_on(plan: TrainingPlan) -> Agreement:
    """Resolve, calibrate and certify a plan from public facts. A plan that is resolved and
    calibrated already stays as it is.

    Guarantee: raises unless the plan can run across machines: real secure aggregation, all silos
        invited, a certified ε.
    """
    if plan.aggregation.protocol != "secagg":
        rule = 'must be "secagg" across machines (the server would see every silo\'s vector)'
        raise PlanError(
            "aggregation.protocol",
            plan.aggregation.protocol,
            rule,
            "Use sumus train to simulate a trusted aggregator.",
        )
    if plan.federation.selection != "all":
        raise PlanError(
            "federation.selection",
            plan.federation.selection,
            'must be "all" across machines',
            "Invite every silo.",
        )
    if not plan.rules.private:
        raise GuaranteeError(
            f'training.algorithm "{plan.training.algorithm}" adds no noise: no silo would take part. Use "convex-pass" '
            'or "split-noise".'
        )
    facts = declared_facts(plan)
    design = calibrated(plan, facts)
    return Agreement(design=design, certified=certify(design))


def declared_facts(plan: TrainingPlan) -> PublicFacts:
    """The public facts of a plan without looking at any record."""
    data = plan.data
    if data.path is None:
        return public_facts(plan)
    listed, bounded = data.categories or {}, data.bounds or {}
    task = plan.task
    labels = {} if plan.describes or not task.label_declaration else data.named(task.label_keys)
    for key, column, table_name in (
        ("silo_column", data.silo_column, "categories"),
        *((key, column, task.label_declaration or "") for key, column in labels.items()),
    ):
        if column not in (getattr(data, table_name) or {}):
            rule = f"must be listed in data.{table_name} across machines: no party sees all records"
            raise PlanError(
                f"data.{key}", column, rule, f"Add the values of {column!r} to data.{table_name}."
            )
    undeclared = [name for name in data.columns or () if name not in listed and name not in bounded]
    if plan.describes:
        _require_described(plan)
    elif data.columns is None or undeclared:
        rule = (
            "must name the feature columns, each declared in data.bounds or data.categories, "
            "across machines"
        )
        raise PlanError(
            "data.columns", undeclared[:1] or None, rule, "Every silo must encode records alike."
        )
    if data.records_per_silo is None:
        rule = "must bound the records of every silo across machines"
        raise PlanError(
            "data.records_per_silo", None, rule, "Give one public upper bound per silo."
        )
    if data.counts == "public":
        rule = (
            'must be "bounded" across machines: a silo may gain or lose a record without anybody '
            "seeing it"
        )
        raise PlanError(
            "data.counts",
            "public",
            rule,
            "Remove the key and give bounds in data.records_per_silo.",
        )
    persons = () if data.person_column is None else (data.person_column,)
    described = plan.describe.columns or ()
    named = () if plan.describes and not data.intervals else label_columns(data, task).values()
    columns = dict.fromkeys(
        [*listed, *bounded, *(data.columns or ()), *named, *described, *persons]
    )
    empty = np.zeros(0, dtype=np.int32)
    table = OwnTable(
        Path(data.path), {name: TextColumn(name, (), empty) for name in columns}, typed=False
    )
    pool = (
        described_pool(table, plan)
        if plan.describes
        else table_pool(table, data, plan.task, persons=plan.protects_persons)
    )
    return PublicFacts(
        name=pool.name,
        silo_names=pool.silo_names or (),
        records_per_silo=data.records_per_silo,
        shape=pool.shape,
        labels=pool.labels.facts,
        assumptions=pool.assumptions,
        bounded=True,
        columns=pool.columns,
        numbers=pool.numbers,
    )


def _require_described(plan: TrainingPlan) -> None:
    """Across machines a description must say of every column how it is counted."""
    for key in ("columns", "numbers"):
        if getattr(plan.describe, key) is None:
            rule = "must be listed across machines: every silo must count alike"
            fix = "Use the plan that `sumus describe PLAN --write FILE` makes."
            raise PlanError(f"describe.{key}", None, rule, fix)
