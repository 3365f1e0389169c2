"""The model as the server needs it: without any record."""

from __future__ import annotations

import dataclasses

import numpy as np

from sumus.data import FederatedData, Records, SiloRecords
from sumus.errors import PlanError
from sumus.parties.agreement import Agreement
from sumus.training import Workbench, prepare

__all__ = ["workbench_without_records"]


def workbench_without_records(agreement: Agreement) -> Workbench:
    """Model and first parameters as the server needs them: everything runs on one record of
    zeros.
    """
    facts = agreement.facts
    label = np.zeros(1, dtype=agreement.plan.task.label_type)
    blank = Records(np.zeros((1, *facts.shape), dtype=np.float32), label)
    silo = SiloRecords("no records", blank, blank, blank)
    data = FederatedData(facts.name, (silo,), facts.shape, facts.labels)
    bench = prepare(agreement.plan, data)
    expected = agreement.plan.training.dimension
    if len(bench.first_parameters) != expected:
        rule = f"must be the {len(bench.first_parameters)} parameters of the model"
        raise PlanError("training.dimension", expected, rule, "Omit it to have it counted.")
    return dataclasses.replace(bench, data=data)
