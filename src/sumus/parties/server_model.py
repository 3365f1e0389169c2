"""The model as the server needs it: without any record."""

from __future__ import annotations

import dataclasses

import numpy as np

from sumus.data import FederatedData, Records, SiloRecords
from sumus.errors import PlanError
from sumus.parties.agreement import Agreement, declared_facts
from sumus.plan import feature_shape
from sumus.training import Preconditioner, Prepared, prepare

__all__ = ["preconditioner_of", "prepared_without_records"]


def prepared_without_records(agreement: Agreement) -> Prepared:
    """Model and first parameters as the server needs them: everything runs on one record of
    zeros.
    """
    facts = agreement.design.facts or declared_facts(agreement.plan)
    task = agreement.plan.task
    label = np.zeros((1, *task.label_shape), dtype=task.label_type)
    blank = Records(np.zeros((1, *facts.shape), dtype=np.float32), label)
    silo = SiloRecords("no records", blank, blank, blank)
    data = FederatedData(facts.name, (silo,), facts.shape, facts.labels)
    prepared = prepare(agreement.plan, data)
    expected = agreement.plan.training.dimension
    if len(prepared.first_parameters) != expected:
        rule = f"must be the {len(prepared.first_parameters)} parameters of the model"
        raise PlanError("training.dimension", expected, rule, "Omit it to have it counted.")
    return dataclasses.replace(prepared, data=data)


def preconditioner_of(agreement: Agreement, prepared: Prepared) -> Preconditioner | None:
    """What the silos' gradients went through in front of clipping; None where the plan has no
    preconditioner.
    """
    plan = agreement.plan
    if plan.training.preconditioner == "none":
        return None
    facts = agreement.design.facts or declared_facts(plan)
    shape = feature_shape(plan.training.features, facts.shape)
    return Preconditioner.on_server(plan, prepared, shape)
