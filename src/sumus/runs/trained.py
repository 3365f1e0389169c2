"""What a finished run leaves in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

from torch import nn

from sumus.books import DatasetTotal, RoundEntry, RunFolder
from sumus.comparing import Comparison
from sumus.errors import DataError
from sumus.guarantee import Account, as_table, labelled
from sumus.parties import summary_of
from sumus.plan import TrainingPlan
from sumus.predicting import Model, ModelFacts
from sumus.runs.finishing import hash_of

__all__ = ["TrainedRun"]


@final
@dataclass(frozen=True)
class TrainedRun:
    """What a finished run leaves in memory; everything is also in `path`."""

    path: Path
    plan: TrainingPlan
    account: Account | None
    module: nn.Module
    facts: ModelFacts | None  # of the module, None where nothing can be predicted with it
    rounds: tuple[RoundEntry, ...]
    baselines: dict[str, float]
    assumptions: tuple[str, ...]
    seconds: float
    void: str | None = None  # why the guarantee does not hold for this run, if it does not
    # of the data set on its ledger, this run included; None if the run was not entered
    spent: DatasetTotal | None = None
    # this run's model beside others without privacy, by the measures that tell; simulation only
    comparison: tuple[Comparison, ...] = ()

    @cached_property
    def model(self) -> Model:
        """The released model in use: it predicts on frames and arrays."""
        if self.facts is None:
            raise DataError(f"{self.path} has described records: there is no model to use.")
        return Model(self.module, self.plan, self.facts, self.void)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Of classification; empty otherwise."""
        names = () if self.facts is None else self.facts.labels.names
        return tuple(names) if self.plan.training.task == "classification" else ()

    @property
    def model_hash(self) -> str:
        """What `training.start_from` of a later plan calls the released model."""
        return hash_of(self.module)

    @property
    def metrics(self) -> Mapping[str, float]:
        """The task's measures of the released model by name, as far as the plan measures it."""
        return self.rounds[-1].metrics if self.rounds else {}

    @property
    def score(self) -> str:
        """The task's headline measure of the released model with its half-width, or why there is
        none.
        """
        measure = self.plan.task.headline
        if measure.name not in self.metrics:
            return self.why_not_measured
        width = self.rounds[-1].metrics_plus_minus.get(measure.name)
        return measure.text(self.metrics[measure.name], width)

    @property
    def accuracy(self) -> float | None:
        """Of the released model, where the task is classification."""
        return self.metrics.get("accuracy")

    @property
    def why_not_measured(self) -> str:
        """What stands in the place of a measure that is not there; a simulation measures whenever
        it has records for it.
        """
        return (
            "not measured: no test records"
            if self.plan.evaluation.metrics == "simulation"
            else "not measured"
        )

    @property
    def accuracy_plus_minus(self) -> float | None:
        """Half-width of the accuracy's 95 % interval; None where it is exact, or not measured."""
        return self.rounds[-1].metrics_plus_minus.get("accuracy") if self.rounds else None

    @property
    def loss(self) -> float | None:
        """Of the released model."""
        return self.metrics.get("loss")

    def summary(self) -> dict[str, Any]:
        """Plain values for `--json` and `summary.json`; a void run has no ε."""
        summary = summary_of(
            self.plan, self.account, self.rounds, void=self.void, seconds=self.seconds
        )
        return summary | {
            "run": str(self.path),
            "model_hash": self.model_hash,
            "measures": {
                each.name: each.among(self.class_names).shown
                for each in self.plan.task.measures
                if each.name in self.metrics
            },
            "baselines": self.baselines,
            "assumptions": list(self.assumptions),
            "ledger": None if self.spent is None else asdict(self.spent),
            **(
                {"comparison": [each.as_json() for each in self.comparison]}
                if self.comparison
                else {}
            ),
        }

    @property
    def evaluated(self) -> dict[int, dict[str, float]]:
        """What `evaluate` returned, by round; simulation only, no guarantee covers it."""
        events = RunFolder.open(self.path).events
        return {
            int(detail["round"]): dict(detail["metrics"])
            for event, detail in events
            if event == "evaluated"
        }

    def report(self, path: str | Path | None = None) -> Path:
        """Write the run's page and return where it is (`sumus report`).

        Args:
            path: of the page; omitted: report.html in the run's folder.
        """
        from sumus.report import write_report

        page = self.path / "report.html" if path is None else Path(path)
        write_report([RunFolder.open(self.path)], page)
        return page

    def _repr_html_(self) -> str:
        bound = (
            "no privacy guarantee"
            if self.account is None
            else f"VOID: {self.void}"
            if self.void
            else str(self.account).splitlines()[0]
        )
        lines = [] if self.account is None else labelled(str(self.account).splitlines()[1:])
        measured = f"{self.plan.task.headline.shown} {self.score}"
        title = f"{len(self.rounds)} rounds, {measured}, {' '.join(bound.split())}"
        return as_table(title, [*lines, ("run", str(self.path))])
