"""A user's own measures of the models of a simulation, on test records in the clear.

No guarantee covers what they return: they are for data that may be looked at, and the journal marks
them so.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import torch

from sumus.books import RoundEntry, RunFolder
from sumus.data import FederatedData, Records
from sumus.errors import PlanError
from sumus.parties import ServerParty
from sumus.plan import TrainingPlan
from sumus.predicting import Model
from sumus.purity import first_line, released_model
from sumus.runs.callbacks import Told
from sumus.runs.finishing import facts_of
from sumus.training import load_flat

__all__ = ["EVALUATED", "Evaluate", "OwnEvaluation", "require_simulation_of"]

Evaluate = Callable[[Model, Records], Mapping[str, float]]
EVALUATED: Final = "evaluated"
"""The journal's event that holds the values."""


def require_simulation_of(plan: TrainingPlan, evaluate: Evaluate | None) -> None:
    """Refuse to show test records to a function where measures are accounted or not wanted."""
    metrics = plan.evaluation.metrics
    if evaluate is not None and metrics != "simulation":
        rule = f'is for evaluation.metrics = "simulation", and the plan\'s is "{metrics}"'
        raise PlanError(
            "evaluate", "a function", rule, "Leave it out: it sees test records in the clear."
        )


@final
@dataclass
class OwnEvaluation:
    """Calls `evaluate` after every round that the plan measures.

    Args:
        evaluate: (model, records) → numbers by name. The model predicts on the records' array x;
            y are classes by number, or numbers as the task stores them.
        told: callbacks, which get the numbers among the round's metrics.
    """

    evaluate: Evaluate | None
    party: ServerParty
    data: FederatedData
    run: RunFolder
    told: Told

    def round_entered(self, entry: RoundEntry) -> None:
        """See `Telling.round_entered`; what goes wrong costs no round."""
        self.told.measured = {}
        plan = self.party.agreement.plan
        if self.evaluate is None or not plan.measures_after(entry.round - 1):
            return
        part = "validation" if plan.data.validation_fraction > 0.0 else "test"
        records = Records.joined([getattr(silo, part) for silo in self.data.silos])
        try:
            values = _numbers(self.evaluate(self._model(plan), _copied(records)))
        except Exception as error:
            self.evaluate = None
            warnings.warn(
                f"evaluate raised {type(error).__name__} after round {entry.round}: "
                f"{first_line(error)}. It is not called again, and the run goes on.",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        self.told.measured = values
        self.run.note(
            EVALUATED, {"round": entry.round, "metrics": values, "metrics_are": "simulation-only"}
        )

    def run_ends(self, summary: Mapping[str, Any]) -> None:
        """See `Telling.run_ends`."""

    def _model(self, plan: TrainingPlan) -> Model:
        """The model that the round released, in a copy."""
        module = copy.deepcopy(self.party.model)
        load_flat(module, torch.tensor(self.party.server.released, dtype=torch.float64))
        module = released_model(module)
        facts = facts_of(
            plan, module, labels=self.data.labels, shape=self.data.shape, encoding=None
        )
        if facts is None:
            raise PlanError("evaluate", "a function", "needs a model", "Leave it out.")
        return Model(module, plan, facts, self.run.void)


def _copied(records: Records) -> Records:
    return Records(np.array(records.x), np.array(records.y))


def _numbers(values: Any) -> dict[str, float]:
    """Finite or not, by name."""
    if not isinstance(values, Mapping):
        raise TypeError(f"it must return numbers by name, got {type(values).__name__}")
    numbers = {str(name): float(value) for name, value in values.items()}
    return {name: value if math.isfinite(value) else math.nan for name, value in numbers.items()}
