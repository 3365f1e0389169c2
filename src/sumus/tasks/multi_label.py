"""Several questions of yes or no about one record: a logistic loss for each.

    stored     one number 0 or 1 for every label                       K labels
    loss       Σ_k log(1 + e^{z_k}) − y_k·z_k
    a record   adds 4 to a cell (yes or no, bin of z_k) of every label and 3 to the number of records

Its gradient is (r ⊗ x), |r_k| ≤ t, so C = t·√K·R; the labels' weights are apart, so β is that of one
logistic loss, R²/4. Counts of a record have length √(16K + 9) units, rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from sumus.errors import DataError, PlanError
from sumus.tasks.concordance import concordance, noisy_concordance
from sumus.tasks.measures import Measure, Metrics
from sumus.tasks.task import (
    CountShape,
    Curvature,
    Declared,
    LabelColumn,
    LabelFacts,
    Labels,
    Link,
    Task,
)
from sumus.tasks.uncertainty import Measured, noisy_share
from sumus.tasks.yes_or_no import yes_or_no

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MultiLabel", "multi_label"]

_GRID = 1 << 6
_CELL, _RECORD = 4, 3
_BINS = 16  # of log-odds, eight to either side of even odds
_REACH = 4.0
_EDGES = np.linspace(-_REACH, _REACH, _BINS + 1)


@final
class MultiLabel(Task):
    """Yes or no to several questions.

    Args:
        columns: names of the labels.
    """

    name = "classification"
    label_keys = ("label_columns",)
    label_declaration = None
    measures = (
        Measure("accuracy", larger_is_better=True, is_share=True),
        Measure("auroc", larger_is_better=True, word="AUROC"),
    )
    constant = ("majority", "most frequent answers")

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns, self.label_shape = columns, (len(columns),)
        longest = math.ceil(_GRID * math.sqrt(_CELL**2 * len(columns) + _RECORD**2))
        self.counts = CountShape(
            length=2 * _BINS * len(columns) + 1,
            l2_grid=longest,
            largest_grid=_CELL * _GRID,
            record_place=2 * _BINS * len(columns),
            record_grid=_RECORD * _GRID,
        )

    # -- labels

    def read(self, columns: Mapping[str, LabelColumn]) -> Labels:
        """0 and 1 of every column."""
        fix = "Write yes or no, or learn one column with data.label_column."
        answers = [yes_or_no(column, f"data.{key}", fix) for key, column in columns.items()]
        return Labels(np.stack(answers, axis=1), LabelFacts(columns=self.columns))

    def store(self, labels: npt.NDArray[Any], where: str) -> npt.NDArray[np.int64]:
        """One number 0 or 1 for every label."""
        if labels.ndim != 2 or labels.shape[1] != len(self.columns):
            raise DataError(
                f"{where} must have {len(self.columns)} labels per record (data.label_columns), got "
                f"labels {labels.shape}. Check the pair (x, y)."
            )
        if not np.isin(labels, (0, 1)).all():
            raise DataError(f"{where} has labels that are neither 0 nor 1. Recode them.")
        return labels.astype(np.int64)

    def accept(self, labels: npt.NDArray[Any], declared: int | None) -> Labels:
        """Labels are named by the plan."""
        if declared is not None:
            raise DataError("classes must be left out beside data.label_columns. Remove classes=.")
        return Labels(labels, LabelFacts(columns=self.columns))

    def check(self, labels: npt.NDArray[Any], outputs: int) -> None:
        """One number 0 or 1 for every output."""
        if labels.ndim != 2 or (len(labels) and labels.shape[1] != outputs):
            raise DataError(
                f"labels must be {outputs} numbers a record, got shape {labels.shape}. Load them anew."
            )
        if labels.size and not ((labels == 0) | (labels == 1)).all():
            raise DataError("labels must be 0 or 1. Load them anew.")

    def farthest(
        self, labels: npt.NDArray[Any], facts: LabelFacts, below: Callable[[int, int], Any]
    ) -> npt.NDArray[Any]:
        """Every answer turned round."""
        wrong: npt.NDArray[Any] = 1 - labels
        return wrong

    def outputs(self, labels: LabelFacts, model: str) -> int:
        """One logit for every label."""
        _require_columns(labels, self.columns)
        return len(self.columns)

    def check_outputs(self, outputs: int, labels: LabelFacts) -> None:
        """One output for every label."""
        if outputs != len(self.columns):
            raise DataError(
                f"model must return one number for each of {len(self.columns)} labels, got {outputs} "
                f"outputs. Give its last layer {len(self.columns)}."
            )

    def model_name(self, model: str) -> str:
        """Each label has a logistic regression of its own, whatever the linear model is called."""
        return "linear" if model in ("softmax", "logistic") else model

    def linear_outputs(self, model: str, rows: int) -> int:
        """A row of weights for every label."""
        return len(self.columns)

    def target_bound(self, outputs: int) -> float | None:
        """Answers are ±1."""
        return math.sqrt(outputs)

    def targets(self, labels: npt.NDArray[Any], outputs: int) -> npt.NDArray[np.float64]:
        """+1 for yes, −1 for no."""
        return np.where(labels == 1, 1.0, -1.0).reshape(len(labels), outputs)

    # -- loss

    def link(self, outputs: int) -> Link | None:
        """Every output by itself."""
        return Link.LOGISTIC

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The sum of the labels' logistic losses."""
        from torch.nn import functional

        return functional.binary_cross_entropy_with_logits(
            outputs, labels.to(outputs.dtype), reduction="none"
        ).sum(1)

    def predict(self, outputs: Tensor) -> Tensor:
        """Yes where the odds are better than even."""
        return (outputs > 0).long()

    def predictions(self, outputs: Tensor, labels: LabelFacts) -> dict[str, npt.NDArray[Any]]:
        """Of every label 1 for yes and 0 for no, and the probability of yes."""
        answers, shares = self.predict(outputs).numpy(), outputs.double().sigmoid().numpy()
        columns = {f"prediction:{name}": answers[:, k] for k, name in enumerate(self.columns)}
        return columns | {
            f"probability:{name}": shares[:, k] for k, name in enumerate(self.columns)
        }

    def curvature(
        self, model: str, *, feature_bound: float, residual_cap: float
    ) -> Curvature | None:
        """C = t·√K·R, β = R²/4."""
        if self.model_name(model) != "linear":
            return None
        reach = residual_cap * math.sqrt(len(self.columns)) * feature_bound
        return Curvature(reach, feature_bound**2 / 4.0)

    # -- measures

    def scores(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Log-odds and answers, (records, labels); NaN counts as the wrong end."""
        import torch

        wrong = torch.where(labels == 1, -torch.inf, torch.inf).to(outputs.dtype)
        return torch.where(outputs.isnan(), wrong, outputs), labels

    def exact(
        self, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> dict[str, float]:
        """Means over the labels."""
        each = self._each(scores, weights)
        return {name: float(np.mean(values)) for name, values in each.items()}

    def _each(
        self, scores: tuple[npt.NDArray[Any], ...], weights: npt.NDArray[np.float64] | None
    ) -> dict[str, list[float]]:
        """Of every label: 1 is a yes that comes first, 2 a no, in the codes of `concordance`."""
        odds, answers = scores[0].astype(np.float64), scores[1] == 1
        right = (odds > 0.0) == answers
        return {
            "accuracy": [float(np.average(column, weights=weights)) for column in right.T],
            "auroc": [
                concordance(risk, np.where(yes, 1, 2), weights)
                for risk, yes in zip(odds.T, answers.T, strict=True)
            ],
        }

    def metrics(
        self, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> Metrics:
        """The means, and what they are means of."""
        plain = super().metrics(*scores, weights=weights)
        each = self._each(scores, weights)
        return replace(plain, tables={"labels": {name: tuple(told) for name, told in each.items()}})

    def pooled(self, parts: Sequence[Metrics]) -> Metrics | None:
        """Of all records together: ranks are no means over silos."""
        held = [part for part in parts if part.records]
        if not held:
            return None
        scores = (np.concatenate(column) for column in zip(*(p.scores for p in held), strict=True))
        weights = [part.weights for part in held if part.weights is not None]
        return self.metrics(*scores, weights=np.concatenate(weights) if weights else None)

    def count(self, *scores: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """4 in a cell of every label, 3 for the record."""
        odds, answers = scores[0].astype(np.float64), (scores[1] == 1).astype(np.int64)
        # an answer of exactly even odds is no, as in `predict`
        bins = np.searchsorted(_EDGES[1:-1], np.nan_to_num(odds), side="left")
        rows = np.zeros((len(odds), self.counts.length), dtype=np.int64)
        for place in range(len(self.columns)):
            cells = (2 * place + answers[:, place]) * _BINS + bins[:, place]
            rows[np.arange(len(odds)), cells] = _CELL * _GRID
        rows[:, -1] = _RECORD * _GRID
        return rows

    def measured(self, total_grid: npt.NDArray[np.float64], *, noise_std_grid: float) -> Metrics:
        """Means over the labels; widths are means too, whatever the labels have in common."""
        std = noise_std_grid / (_GRID * _CELL)
        cells = total_grid[:-1].reshape(len(self.columns), 2, _BINS) / (_GRID * _CELL)
        each = {
            "accuracy": [_accuracy(no, yes, std) for no, yes in cells],
            "auroc": [
                noisy_concordance(np.stack([np.zeros(_BINS), yes, no]), noise_std=std)
                for no, yes in cells
            ],
        }
        values = {
            name: Measured(
                float(np.mean([one.value for one in told])),
                float(np.mean([one.plus_minus or 0.0 for one in told])),
            )
            for name, told in each.items()
        }
        table: dict[str, tuple[float, ...]] = {}
        for name, told in each.items():
            table[name] = tuple(one.value for one in told)
            table[f"{name}_plus_minus"] = tuple(one.plus_minus or 0.0 for one in told)
        records = float(total_grid[-1]) / (_GRID * _RECORD)
        return Metrics(values, round(max(records, 0.0)), tables={"labels": table})

    def baseline(self, train: npt.NDArray[Any], test: npt.NDArray[Any]) -> float:
        """The mean accuracy of each label's most frequent answer."""
        return float(np.mean((train.mean(axis=0) > 0.5) == test))


def _accuracy(no: npt.NDArray[np.float64], yes: npt.NDArray[np.float64], std: float) -> Measured:
    """Even odds are an edge of the bins, so that what is right and what is wrong are sums of cells."""
    half = _BINS // 2
    right = float(no[:half].sum() + yes[half:].sum())
    wrong = float(no[half:].sum() + yes[:half].sum())
    noise = std * math.sqrt(2.0 * _BINS)
    return noisy_share(
        (right - wrong) / 2.0,
        right + wrong,
        numerator_std=noise / 2.0,
        denominator_std=noise,
    )


def _require_columns(labels: LabelFacts, columns: tuple[str, ...]) -> None:
    if labels.columns != columns:
        rule = "must name labels of these data, which have others"
        fix = "Leave it out, or use data of your own."
        raise PlanError("data.label_columns", list(columns), rule, fix)


def multi_label(declared: Declared) -> MultiLabel:
    """The task of a plan's `data.label_columns`."""
    return _asked(declared.label_columns or ())


@lru_cache(maxsize=64)
def _asked(columns: tuple[str, ...]) -> MultiLabel:
    """One object for equal labels: what is known about a model and a loss is kept by the loss's
    identity.
    """
    return MultiLabel(columns)
