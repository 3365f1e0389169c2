"""A released model that predicts: weights, the plan that trained them, and the rules by which rows
become records and outputs become labels.

    model = Model.of_run("runs/hospitals-…")     # or run.model after sumus.train
    model.predict(frame)                         # classes by their names, or numbers
    model.predictions(frame).write("out.csv")

What it computes of a row is what the run's own evaluation computes of a test record.
"""

from __future__ import annotations

import io
import pickle
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.books import RunFolder
from sumus.data import Encoding, undeclared_feature
from sumus.errors import DataError, PlanError, StorageError
from sumus.files import read_bytes
from sumus.plan import TrainingPlan
from sumus.predicting.facts import ModelFacts, odd_state, state_hash
from sumus.predicting.predictions import Predictions
from sumus.predicting.rows import EncodedRows, records_of
from sumus.purity import InputKind, own_copy, released_model
from sumus.tasks import LabelFacts
from sumus.training import PublicFeatures, in_front, model_behind, outputs_of

__all__ = ["Model"]

_TOGETHER = 65_536  # rows whose features are in memory at once
_LOCAL = (
    "training.local_parameters = {}: predicted by the shared parameters, those that stay with silos "
    "at their public first value; the run's own measures are of models that silos fitted at home"
)
_VOID = "this run has NO GUARANTEE: {}"
_EARLY = "the model of an unfinished run, handed out after {}"


@final
@dataclass(frozen=True, eq=False)
class Model:
    """A released model in use.

    Args:
        module: the trained module, as it is called with records behind the plan's features.
        plan: that trained it.
        facts: how rows become records, and what is public about labels.
        void: why the run's guarantee does not hold, if it does not.
        early: how far the run was that released it, where it was not finished.
    """

    module: nn.Module
    plan: TrainingPlan
    facts: ModelFacts
    void: str | None = None
    early: str | None = None

    @classmethod
    def of_run(cls, path: str | Path, module: nn.Module | str | None = None) -> Self:
        """The model of a run that is finished, or was handed out before its end.

        Guarantee: weights, plan and rules are those that the run wrote, or a `StorageError`.

        Args:
            path: the run's folder.
            module: where the run's model was given in Python, a module of that class or
                "package.module:Class"; its parameters are replaced in a copy.
        """
        run = RunFolder.open(path)
        run.verify()
        _require_model(run)
        facts = ModelFacts.of_run(run)
        built = _module_of(run, facts, module)
        _load(built, run.path / "model.pt", facts)
        return cls(built, run.plan, facts, run.void, _early(run))

    @property
    def encoding(self) -> Encoding | None:
        """How a row becomes a record; None: records are arrays."""
        return self.facts.encoding

    @property
    def labels(self) -> LabelFacts:
        """What is public about labels: names of classes, bounds, cut points."""
        return self.facts.labels

    @property
    def notes(self) -> tuple[str, ...]:
        """What whoever predicts should know, a line each."""
        local = self.plan.training.local_parameters
        return (
            *(() if self.void is None else (_VOID.format(self.void),)),
            *(() if self.early is None else (_EARLY.format(self.early),)),
            *(() if local is None else (_LOCAL.format(local),)),
        )

    @cached_property
    def features(self) -> PublicFeatures:
        """What the plan does to a record in front of the module."""
        return PublicFeatures.of(self.plan, self.facts.shape)

    def predict(self, x: Any, *, warn: bool = True) -> npt.NDArray[Any]:
        """The prediction of every row: a class by its name (whole numbers where classes are
        numbered from 0), a number, the risk of an event; a column a label where there are several.

        Args:
            warn: of rows outside the bounds or with unknown categories.
        """
        columns = self._told(x, warn).columns
        for name in ("prediction", "risk"):
            if name in columns:
                return columns[name]
        return _side_by_side(columns, "prediction:")

    def predict_proba(self, x: Any, *, warn: bool = True) -> npt.NDArray[np.float64]:
        """The probability of every class, in the order of `labels.names`; of several labels that of
        yes to each. Arguments as for `predict`.
        """
        columns = self._told(x, warn).columns
        if not any(name.startswith("probability:") for name in columns):
            rule = "has no probabilities of classes"
            raise PlanError("training.task", self.plan.training.task, rule, "Use predict.")
        return _side_by_side(columns, "probability:")

    def predictions(self, x: Any) -> Predictions:
        """Named columns for every row, with what was odd about the rows.

        Args:
            x: a frame (pandas, Polars, Arrow), a mapping of names to arrays, rows as dictionaries;
                an array, where the run was trained on arrays.
        """
        rows = self.rows(x)
        columns = self.plan.task.predictions(self._outputs(rows), self.labels)
        return Predictions(columns, rows.counts, self.notes)

    def _told(self, x: Any, warn: bool) -> Predictions:
        """Predictions for somebody who does not see the counts beside them."""
        said = self.predictions(x)
        odd = said.counts.unlike_training()
        if odd and warn:
            rows = f"of {said.counts.rows:,} rows"
            warnings.warn(f"{rows}: {'; '.join(odd)}", UserWarning, stacklevel=3)
        return said

    def outputs(self, x: Any) -> torch.Tensor:
        """What the module returns for every row, (rows, outputs)."""
        return self._outputs(self.rows(x))

    def rows(self, x: Any) -> EncodedRows:
        """Rows as records in front of the plan's features; see `predictions`."""
        named = self.plan.data.path is not None and self.encoding is None
        return records_of(
            x,
            encoding=self.encoding,
            shape=self.facts.shape,
            undeclared=undeclared_feature(self.plan.data) if named else None,
            decimal_comma=self.plan.data.decimal_comma or (),
            missing=self.plan.data.missing,
            labels=self._label_columns,
        )

    def __call__(self, records: torch.Tensor) -> Any:
        """The module's own answer to records behind the plan's features."""
        return self.module(records)

    def _outputs(self, rows: EncodedRows) -> torch.Tensor:
        parts = []
        for start in range(0, rows.counts.rows, _TOGETHER):
            at = np.arange(start, min(start + _TOGETHER, rows.counts.rows))
            records = in_front(self.features, self._kind, rows.part(at), "the table")
            parts.append(
                outputs_of(
                    self._whole,
                    records,
                    task=self.plan.task,
                    vocabulary=self.plan.training.vocabulary,
                )
            )
        outputs = torch.cat(parts)
        nothing = np.flatnonzero(outputs.isnan().any(dim=1).numpy())
        if len(nothing):
            raise DataError(
                f"the model has no number for {len(nothing)} rows, first row {nothing[0] + 1}: its "
                "output is NaN. Look at their values, or train with bounded features."
            )
        return outputs

    @cached_property
    def _whole(self) -> nn.Module:
        """The module as it is evaluated: it returns the logits alone."""
        logits = self.plan.training.logits
        return self.module if logits is None else own_copy(self.module, logits=logits)

    @property
    def _label_columns(self) -> tuple[str, ...]:
        """Columns of a table that training learned from."""
        data = self.plan.data
        named = data.named(self.plan.task.label_keys).values()
        return (*(name for name in named if name is not None), *(data.label_columns or ()))

    @property
    def _kind(self) -> InputKind:
        return InputKind.of(self.module, self.plan.training.vocabulary)


def _require_model(run: RunFolder) -> None:
    """Refuse a run that has no model to predict with."""
    if run.plan.describes:
        rule = "must be a training run: this one has described records and has no model"
        raise PlanError("RUN", run.name, rule, "Use `sumus describe RUN` to read it.")
    if run.summary is None and run.released is None:
        of = f"{run.last_round} of {run.plan.federation.rounds} rounds"
        raise StorageError(
            f"{run.path} is not finished ({of}), so it has no model yet. Go on with: sumus train "
            f"--resume {run.path}"
        )


def _early(run: RunFolder) -> str | None:
    """How far an unfinished run was when it released its model."""
    if run.summary is not None or run.released is None:
        return None
    return f"round {run.released.round} of {run.plan.federation.rounds}"


def _module_of(run: RunFolder, facts: ModelFacts, given: nn.Module | str | None) -> nn.Module:
    """The module of the run, its parameters still the first ones."""
    shape = PublicFeatures.of(run.plan, facts.shape).shape
    if run.own_model is None:
        if given is not None:
            rule = f"is for runs whose model was given in Python; this one's is {facts.model!r}"
            raise PlanError("model", str(given)[:60], rule, "Leave it out.")
        return released_model(model_behind(run.plan, shape, facts.labels))
    if given is None:
        rule = f"must be given: the run trained a {run.own_model} that was given in Python"
        fix = "Pass --model package.module:Class, or module= in Python."
        raise PlanError("model", None, rule, fix)
    if isinstance(given, str):
        if ":" not in given:
            rule = 'must be an importable "package.module:Class"'
            raise PlanError("model", given, rule, "Write the class behind a colon.")
        named = run.plan.replace("training", model=given)
        return released_model(model_behind(named, shape, facts.labels))
    return own_copy(given)


def _load(module: nn.Module, file: Path, facts: ModelFacts) -> None:
    """Put the released weights into a module.

    Guarantee: the weights are those that the run wrote, all of them and no others.
    """
    try:
        state = torch.load(io.BytesIO(read_bytes(file)), map_location="cpu", weights_only=True)
        found = state_hash(state)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, TypeError, AttributeError):
        found = "unreadable"
    if found != facts.state_hash:
        raise StorageError(
            f"{file} is not the model that the run wrote: it was changed since. Restore it from a "
            "backup."
        )
    odd = odd_state(state)
    if odd is not None:
        raise StorageError(
            f"{file}: {odd} holds a {type(state[odd]).__name__} of values that no hash stands for, "
            "so a change would not be seen. Keep numbers, texts, lists and dictionaries in a "
            "module's extra state."
        )
    try:
        module.load_state_dict(state)
    except RuntimeError:
        rule = f"must have the parameters of the run's model, {len(state)} tensors such as "
        rule += repr(next(iter(state), ""))
        raise PlanError(
            "model", type(module).__name__, rule, "Give the class that was trained."
        ) from None


def _side_by_side(columns: Any, beginning: str) -> npt.NDArray[Any]:
    return np.stack([values for name, values in columns.items() if name.startswith(beginning)], 1)
