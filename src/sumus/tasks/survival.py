"""Time until something happens: discrete-time hazards, c-index, Kaplan–Meier.

    intervals   (0, c_1], (c_1, c_2], … (c_{J−1}, c_J]      public cut points c_j
    a person    at risk in intervals 1 … m; e = 1: the event is in interval m
    loss        (1/J)·Σ_{j ≤ m} [log(1 + e^{z_j}) − e_j·z_j]      e_m = e, e_j = 0 before
    stored      2j + 1: event in interval j (from 0); 2b: followed through b intervals without one

Whoever is followed beyond c_J counts as followed up to c_J. Whoever is lost within an interval was at
risk in it if more than half of it had passed (Gensheimer and Narasimhan, PeerJ 7:e6257).

The linear model has one vector of slopes and an intercept for every interval. A row of a convex pass
is the record with its bias feature in the place of one interval's intercept, as long as the record
itself; J rows of weight 1/J have the constants of one logistic loss.

A test record adds 12 to the cell (code, bin of risk), 4 to its code and 3 to the number of records:
Δ₂ = |(12, 4, 3)| = 13 units, exactly. Cells tell the c-index, codes Kaplan–Meier's curve, together
with the sums of their cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from sumus.errors import DataError, PlanError
from sumus.tasks.concordance import concordance, noisy_concordance
from sumus.tasks.life_table import kaplan_meier
from sumus.tasks.measures import Measure, Metrics
from sumus.tasks.task import (
    CountShape,
    Curvature,
    Declared,
    LabelColumn,
    LabelFacts,
    Labels,
    LinearRows,
    Link,
    Task,
)
from sumus.tasks.uncertainty import Measured
from sumus.tasks.yes_or_no import yes_or_no

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Survival"]

_GRID = 1 << 6  # grid steps per unit of a count
_CELL, _CODE, _RECORD = 12, 4, 3
_LONGEST = 13  # |(12, 4, 3)|
_BINS = 16  # of risk
_REACH = 3.0  # of the bins, in units of log-risk to either side of the first model's
_MOST_INTERVALS = 50
_START_HAZARD = 0.1
_Z = 2.0


@final
class Survival(Task):
    """When something happens, to people who are not all followed until it does.

    Args:
        intervals: cut points of time.
        start_hazard: of the first model, in every interval.
    """

    name = "survival"
    label_keys = ("time_column", "event_column")
    label_declaration = None
    keeps_lengths = True
    shared_slopes = True
    measures = (
        Measure("c_index", larger_is_better=True, word="c-index"),
        Measure("calibration_error", larger_is_better=False, word="calibration error"),
    )
    constant = ("constant", "same risk for everybody")

    def __init__(
        self,
        intervals: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0),
        start_hazard: float = _START_HAZARD,
    ) -> None:
        self.intervals = intervals
        self.rows_per_record = len(intervals)
        self.canary_label = 2 * len(intervals)  # at risk in all intervals, without an event
        self.first_intercept = math.log(start_hazard / (1.0 - start_hazard))
        centre = math.log(len(intervals) * -math.log1p(-start_hazard))
        self._edges = centre + np.linspace(-_REACH, _REACH, _BINS + 1)
        self.counts = CountShape(
            length=self._codes * (_BINS + 1) + 1,
            l2_grid=_LONGEST * _GRID,
            largest_grid=_CELL * _GRID,
            record_place=self._codes * (_BINS + 1),
            record_grid=_RECORD * _GRID,
        )

    def of(self, declared: Declared) -> Task:
        """With the plan's cut points."""
        cuts = declared.intervals
        if cuts is None and all(column is None for column in declared.columns.values()):
            return self
        if not cuts:
            raise PlanError(
                "data.intervals",
                None if cuts is None else [],
                "must say where time is cut (training.task = survival)",
                "List public cut points in the units of data.time_column, such as [30, 90, 365].",
            )
        if any(later <= earlier for earlier, later in itertools.pairwise(cuts)):
            raise PlanError(
                "data.intervals",
                list(cuts),
                "must be in rising order, none twice",
                "Sort the cut points.",
            )
        if len(cuts) > _MOST_INTERVALS:
            rule = f"must hold at most {_MOST_INTERVALS} cut points"
            raise PlanError("data.intervals", len(cuts), rule, "Cut time less finely.")
        return _cut_at(cuts, declared.start_hazard or _START_HAZARD)

    @property
    def _codes(self) -> int:
        return 2 * len(self.intervals) + 1

    # -- labels

    def read(self, columns: Mapping[str, LabelColumn]) -> Labels:
        """Codes of times and events."""
        followed, happened = columns["time_column"], columns["event_column"]
        times = followed.numbers()
        for wrong, what in ((np.isnan(times), "no value"), (times < 0.0, "a negative time")):
            places = np.flatnonzero(wrong)
            if len(places):
                raise DataError(
                    f"data.time_column {followed.name!r} has {what} in {len(places)} records, first "
                    f"in record {places[0] + 1}. Correct them or remove them."
                )
        fix = "Write 1 where the event happened and 0 where the person was not followed any longer."
        events = yes_or_no(happened, "data.event_column", fix)
        return Labels(self.encode(times, events), LabelFacts(intervals=self.intervals))

    def store(self, labels: npt.NDArray[Any], where: str) -> npt.NDArray[np.int64]:
        """Pairs (time, event)."""
        if labels.ndim != 2 or labels.shape[1] != 2:
            raise DataError(
                f"{where} must have one pair (time, event) per record, got labels {labels.shape}. "
                "Stack them: numpy.stack([time, event], axis=1)."
            )
        times, events = labels.astype(np.float64).T
        if not (times >= 0.0).all():  # NaN fails too
            raise DataError(
                f"{where} has times that are negative or missing. Correct or remove them."
            )
        if not np.isin(events, (0.0, 1.0)).all():
            raise DataError(
                f"{where} has events that are neither 0 nor 1. Write 1 where the event happened and "
                "0 where the person was not followed any longer."
            )
        return self.encode(times, events.astype(np.int64))

    def encode(
        self, times: npt.NDArray[np.float64], events: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """2j + 1 for an event in interval j, 2b for b intervals without one."""
        cuts = np.array(self.intervals)
        middles = np.concatenate([[0.0], cuts[:-1]]) / 2.0 + cuts / 2.0  # a sum may overflow
        interval = np.searchsorted(cuts, times, side="left")  # J: beyond the last
        followed = np.searchsorted(middles, times, side="right")
        inside = (events == 1) & (interval < len(cuts))
        codes = np.where(inside, 2 * interval + 1, 2 * followed)
        return codes.astype(np.int64)

    def accept(self, labels: npt.NDArray[Any], declared: int | None) -> Labels:
        """Times need no classes; their cut points are the plan's."""
        if declared is not None:
            raise DataError("classes must be left out in survival. Remove classes=.")
        return Labels(labels, LabelFacts(intervals=self.intervals))

    def check(self, labels: npt.NDArray[Any], outputs: int) -> None:
        """Codes of as many intervals as there are outputs."""
        if labels.ndim != 1:
            raise DataError(
                f"labels must be one code a record, got shape {labels.shape}. Load them anew."
            )
        if len(labels) and not (labels.min() >= 0 and labels.max() <= 2 * outputs):
            raise DataError(
                f"labels must be codes of {outputs} intervals, 0 … {2 * outputs}. Load them anew."
            )

    def farthest(
        self, labels: npt.NDArray[Any], facts: LabelFacts, below: Callable[[int, int], Any]
    ) -> npt.NDArray[Any]:
        """The event at once for whoever had none, no event ever for whoever had it."""
        return np.where(labels % 2 == 1, 2 * len(self.intervals), 1).astype(labels.dtype)

    def outputs(self, labels: LabelFacts, model: str) -> int:
        """One logit of a hazard for every interval."""
        if not labels.intervals:
            rule = "must be learned from times and events, and the labels of these data are others"
            fix = (
                'Use "classification" or "regression", or data of your own with data.time_column, '
                "data.event_column and data.intervals."
            )
            raise PlanError("training.task", self.name, rule, fix)
        return len(labels.intervals)

    def check_outputs(self, outputs: int, labels: LabelFacts) -> None:
        """One output per interval."""
        intervals = len(labels.intervals)
        if outputs != intervals:
            raise DataError(
                f"model must return one number for each of {intervals} intervals, got {outputs} "
                f"outputs. Give its last layer {intervals}."
            )

    def model_name(self, model: str) -> str:
        """Hazards are logistic regressions with common slopes, whatever the linear model is called."""
        return "linear" if model in ("softmax", "logistic") else model

    def linear_outputs(self, model: str, rows: int) -> int:
        """One row of weights: slopes and intercepts."""
        return 1

    # -- loss

    def link(self, outputs: int) -> Link | None:
        """None: a record has several residuals."""
        return None

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The mean over all intervals of the logistic losses of those at risk."""
        import torch
        from torch.nn import functional

        places = torch.arange(outputs.shape[1], device=outputs.device)
        through = labels[:, None] // 2
        survived = (places < through).to(outputs.dtype)
        event = ((places == through) & (labels[:, None] % 2 == 1)).to(outputs.dtype)
        # log(1 + e^z) where the interval was survived, log(1 + e^−z) where the event is in it
        losses = survived * functional.softplus(outputs) + event * functional.softplus(-outputs)
        return losses.sum(1) / outputs.shape[1]

    def predict(self, outputs: Tensor) -> Tensor:
        """The interval by whose end half of such people are expected to have had the event, or
        none.
        """
        from torch.nn import functional

        half = (functional.softplus(outputs).cumsum(1) < math.log(2.0)).long().sum(1)
        last = outputs.shape[1]
        return (2 * half + 1).clamp(max=2 * last)

    def predictions(self, outputs: Tensor, labels: LabelFacts) -> dict[str, npt.NDArray[Any]]:
        """The chance that it happens by the last cut point, `risk`, and that it has not happened by
        each of them, `survival:<time>`.
        """
        from torch.nn import functional

        hazards = functional.softplus(outputs.double()).cumsum(1)  # −log of what survives
        survival = (-hazards).exp().numpy()
        curve = {f"survival:{cut:.12g}": survival[:, j] for j, cut in enumerate(self.intervals)}
        return {"risk": (-(-hazards[:, -1]).expm1()).numpy(), **curve}

    def curvature(
        self, model: str, *, feature_bound: float, residual_cap: float
    ) -> Curvature | None:
        """A mean of J logistic losses: C = t·R, β = R²/4."""
        if self.model_name(model) != "linear":
            return None
        return Curvature(residual_cap * feature_bound, feature_bound**2 / 4.0)

    def expand(self, x: npt.NDArray[np.float32], y: npt.NDArray[Any]) -> LinearRows:
        """A row for every interval at risk: the record with its bias feature in that interval's
        place.
        """
        intervals, slopes = len(self.intervals), x.shape[1] - 1
        self.check(y, intervals)
        at_risk = (y + 1) // 2
        records = np.repeat(np.arange(len(y)), at_risk)
        place = np.arange(len(records)) - np.repeat(np.cumsum(at_risk) - at_risk, at_risk)
        rows = np.zeros((len(records), slopes + intervals), dtype=np.float32)
        rows[:, :slopes] = x[records, :slopes]
        rows[np.arange(len(records)), slopes + place] = x[records, slopes]
        events = (2 * place + 1 == y[records]).astype(np.int64)
        weights = np.full(len(records), 1.0 / intervals)
        return LinearRows(rows, events, weights, records.astype(np.int64), Link.LOGISTIC)

    # -- measures

    def scores(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithm of the risk by the last cut point (the sum of the hazards' −log(1 − h)), and the
        code; NaN counts as the wrong end.
        """
        import torch
        from torch.nn import functional

        risk = functional.softplus(outputs).sum(1).log()
        wrong = torch.where(labels % 2 == 1, -torch.inf, torch.inf).to(risk.dtype)
        return torch.where(risk.isnan(), wrong, risk), labels

    def exact(
        self, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> dict[str, float]:
        """c-index, and how far the mean of the predicted survival at the last cut point is from
        Kaplan–Meier's.
        """
        risks, codes = scores[0].astype(np.float64), scores[1].astype(np.int64)
        observed = kaplan_meier(self._people(codes, weights), noise_variance=0.0)[-1].value
        predicted = float(np.average(_survival(risks), weights=weights))
        return {
            "c_index": concordance(risks, codes, weights),
            "calibration_error": abs(predicted - observed),
        }

    def pooled(self, parts: Sequence[Metrics]) -> Metrics | None:
        """Of all records together: people of different silos are compared too."""
        held = [part for part in parts if part.records]
        if not held:
            return None
        scores = (np.concatenate(column) for column in zip(*(p.scores for p in held), strict=True))
        weights = [part.weights for part in held if part.weights is not None]
        return self.metrics(*scores, weights=np.concatenate(weights) if weights else None)

    def count(self, *scores: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """12 in the cell of code and risk, 4 at the code, 3 for the record."""
        risks, codes = scores[0].astype(np.float64), scores[1].astype(np.int64)
        bins = np.searchsorted(self._edges[1:-1], np.nan_to_num(risks), side="right")
        people, rows = np.arange(len(codes)), np.zeros((len(codes), self.counts.length), np.int64)
        rows[people, codes * _BINS + bins] = _CELL * _GRID
        rows[people, self._codes * _BINS + codes] = _CODE * _GRID
        rows[:, -1] = _RECORD * _GRID
        return rows

    def measured(self, total_grid: npt.NDArray[np.float64], *, noise_std_grid: float) -> Metrics:
        """c-index and calibration, with what noise and the choice of records leave open."""
        cells, codes, records = np.split(
            total_grid / _GRID, [self._codes * _BINS, self._codes * (_BINS + 1)]
        )
        std = noise_std_grid / _GRID
        histogram = cells.reshape(self._codes, _BINS) / _CELL
        # two views of the same number of people, each as far as its noise lets it count
        precise = np.array([_CELL**2 / _BINS, _CODE**2])
        shares = precise / precise.sum()
        people = shares[0] * histogram.sum(axis=1) + shares[1] * codes / _CODE
        observed = kaplan_meier(people, noise_variance=std**2 / precise.sum())
        values = {
            "c_index": noisy_concordance(histogram, noise_std=std / _CELL),
            "calibration_error": self._calibration(histogram, std / _CELL, observed[-1]),
        }
        return Metrics(
            values,
            round(max(float(records[0]) / _RECORD, 0.0)),
            baseline={"c_index": 0.5},
            tables=self._curve(observed),
        )

    def metrics(
        self, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> Metrics:
        """The measures in the clear, and Kaplan–Meier's curve."""
        plain = super().metrics(*scores, weights=weights)
        observed = kaplan_meier(self._people(scores[1], weights), noise_variance=0.0)
        return replace(plain, baseline={"c_index": 0.5}, tables=self._curve(observed))

    def _people(
        self, codes: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None
    ) -> npt.NDArray[np.float64]:
        """How many have each code."""
        counted = np.bincount(codes.astype(np.int64), weights=weights, minlength=self._codes)
        return counted.astype(np.float64)

    def _curve(self, observed: Sequence[Measured]) -> dict[str, dict[str, tuple[float, ...]]]:
        """Kaplan–Meier's curve with its half-widths, from time 0 on."""
        return {
            "kaplan_meier": {
                "time": (0.0, *self.intervals),
                "survival": (1.0, *(point.value for point in observed)),
                "plus_minus": (0.0, *(point.plus_minus or 0.0 for point in observed)),
            }
        }

    def _calibration(
        self, histogram: npt.NDArray[np.float64], std: float, observed: Measured
    ) -> Measured:
        """The mean of the predicted survival, by the middles of the bins, against Kaplan–Meier's."""
        people, cells = float(histogram.sum()), histogram.size
        if people <= _Z * std * math.sqrt(cells):
            return Measured(0.5, 0.5)
        ends = _survival(self._edges)
        ends[0], ends[-1] = 1.0, 0.0  # bins at the ends are open
        middles = (ends[:-1] + ends[1:]) / 2.0
        in_bins = histogram.sum(axis=0)
        predicted = min(max(float(in_bins @ middles) / people, 0.0), 1.0)
        noise = std**2 * self._codes * float(np.square(middles - predicted).sum())
        half = _Z * math.sqrt(noise + max(people, 0.0) / 4.0) / people
        rounding = float(np.maximum(in_bins, 0.0) @ (ends[:-1] - middles)) / people
        width = half + rounding + (observed.plus_minus or 0.0)
        return Measured(min(abs(predicted - observed.value), 1.0), min(width, 1.0))

    def baseline(self, train: npt.NDArray[Any], test: npt.NDArray[Any]) -> float:
        """Half of all pairs: who is given the same risk as everybody else is in no order."""
        return 0.5


def _survival(log_risks: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """e^−risk, the chance of no event by the last cut point."""
    with np.errstate(over="ignore"):
        survival: npt.NDArray[np.float64] = np.exp(-np.exp(log_risks))
    return survival


@lru_cache(maxsize=64)
def _cut_at(intervals: tuple[float, ...], start_hazard: float) -> Survival:
    """One object for equal cut points: what is known about a model and a loss is kept by the loss's
    identity.
    """
    return Survival(intervals, start_hazard)
