"""Measures of a classifier: in the clear from every record, or from noisy sums, in the same words.

Of a record is known whether it is classified rightly, its loss, its class, and what the model says:
the log-odds of class 1 where there are two, else the probability of every class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from sumus.tasks import noisy_scores
from sumus.tasks.class_counts import MOST_CONFUSED, NoisyClasses, class_counts
from sumus.tasks.measures import Metrics
from sumus.tasks.rankings import auroc, average_precision, gaps
from sumus.tasks.score_bins import (
    CONFIDENCE_BINS,
    GROUPS,
    PER_SIDE,
    SCORE_BINS,
    confidence_bin,
    group_of,
    magnitude_bin,
    probability,
)
from sumus.tasks.score_tree import BRIER, LOSS, RECORD, NoisyCells, score_tree
from sumus.tasks.task import CountShape
from sumus.tasks.uncertainty import Measured, noisy_share

__all__ = ["LOSS_CAP", "count_shape", "counted", "details_of", "exact_measures", "told"]

Floats = npt.NDArray[np.float64]
Scores = tuple[npt.NDArray[Any], ...]
Tables = dict[str, dict[str, tuple[float, ...]]]

LOSS_CAP = 4.0
"""A record's loss is counted up to this many nats."""
_MOST_RANKED = 100  # classes up to which each is ranked against the rest


def exact_measures(scores: Scores, weights: Floats | None) -> dict[str, float]:
    """Accuracy, mean loss, Brier score, calibration error; AUROC and average precision where there
    are cases and controls, of three classes and more the mean of each against the rest.
    """
    correct, losses, labels, said = scores
    each = np.ones(len(labels)) if weights is None else weights
    found = (
        {"accuracy": float(correct.mean()), "loss": float(losses.astype(np.float64).mean())}
        if weights is None
        else {
            "accuracy": float(np.average(correct, weights=weights)),
            "loss": float(np.average(losses.astype(np.float64), weights=weights)),
        }
    )
    found |= _ranked(labels, said, each)
    found["brier"] = float(np.average(_squares(labels, said), weights=each))
    if said.ndim == 1:
        known = _or_worst(labels, said)
        sums = gaps(group_of(known), labels - probability(known), each, count=GROUPS)
    else:
        sure = _confidence(said)
        sums = gaps(confidence_bin(sure), correct - sure, each, count=CONFIDENCE_BINS)
    return found | {"calibration_error": sums}


def count_shape(classes: int) -> CountShape:
    """Of the sums of so many classes."""
    return score_tree().shape if classes == 2 else class_counts(classes).shape


def counted(classes: int, scores: Scores) -> npt.NDArray[np.int64]:
    """What each record adds; a loss that is not a number counts as wrong and as the cap."""
    correct, losses, labels, said = scores
    known = ~np.isnan(losses)
    right = correct.astype(np.bool_) & known
    capped = np.clip(np.where(known, losses.astype(np.float64), LOSS_CAP), 0.0, LOSS_CAP)
    rows = np.zeros((len(losses), count_shape(classes).length), dtype=np.int64)
    rows[:, 0] = RECORD
    rows[:, 1] = np.where(right, RECORD, -RECORD)
    rows[:, 2] = np.rint(LOSS * (capped * (2.0 / LOSS_CAP) - 1.0)).astype(np.int64)
    worst = _worst_square(classes)
    squares = np.clip(_squares(labels, said), 0.0, worst) * (2.0 / worst) - 1.0
    rows[:, 3] = np.rint(BRIER * squares).astype(np.int64)
    if classes == 2:
        score_tree().add_paths(rows, right, labels, magnitude_bin(said))
    else:
        places = class_counts(classes)
        places.add_entries(rows, right, labels, _answers(said), _confidence(said))
    return rows


def told(classes: int, total_grid: Floats, *, noise_std_grid: float) -> Metrics:
    """Every measure that the sums tell, with what noise, bins and the choice of records leave
    open.
    """
    records = float(total_grid[0]) / RECORD

    def share(place: int, weight: int, most: float, rounding: float) -> Measured:
        found = noisy_share(
            float(total_grid[place]) / (2.0 * weight),
            records,
            numerator_std=noise_std_grid / (2.0 * weight),
            denominator_std=noise_std_grid / RECORD,
        )
        width = min((found.plus_minus or 0.0) + rounding / weight, 1.0)
        return Measured(most * found.value, most * width)

    values = {"accuracy": share(1, RECORD, 1.0, 0.0), "loss": share(2, LOSS, LOSS_CAP, 0.25)}
    brier = share(3, BRIER, _worst_square(classes), 0.25)
    if classes == 2:
        tree = score_tree()
        cells = tree.cells(total_grid, noise_std_grid=noise_std_grid)
        kept = tree.plausible(cells)
        values["auroc"] = noisy_scores.noisy_auroc(cells, kept)
        values["average_precision"] = noisy_scores.noisy_average_precision(cells, kept)
        values["brier"] = brier
        values["calibration_error"] = noisy_scores.noisy_calibration(cells, kept)
        baseline, tables = _details_of_two(cells, kept)
    else:
        many = class_counts(classes).read(total_grid, noise_std_grid=noise_std_grid)
        values["brier"] = brier
        values["calibration_error"] = many.calibration(records)
        baseline, tables = _details_of_many(many)
    return Metrics(values, round(max(records, 0.0)), baseline=baseline, tables=tables)


def details_of(scores: Scores, weights: Floats | None) -> tuple[dict[str, float], Tables]:
    """What the best constant answer would reach, and curves, from records in the clear."""
    correct, _, labels, said = scores
    each = np.ones(len(labels)) if weights is None else weights
    if said.ndim == 1:
        known = _or_worst(labels, said)
        near = magnitude_bin(known)
        bins = np.where(known > 0, PER_SIDE + near, PER_SIDE - 1 - near)
        cells = _tally(labels * SCORE_BINS + bins, 2 * SCORE_BINS, each).reshape(2, SCORE_BINS)
        return _details_of_two(NoisyCells(cells, np.zeros((2 * SCORE_BINS, 1))), cells)
    classes, answers = said.shape[1], _answers(said)
    right = correct.astype(np.int64)
    sure = 2 * confidence_bin(_confidence(said)) + right
    pairs = _tally(labels * classes + answers, classes**2, each).reshape(classes, classes)
    many = NoisyClasses(
        true=_tally(labels, classes, each),
        predicted=_tally(answers, classes, each),
        confusion=pairs if classes <= MOST_CONFUSED else None,
        right=_tally(labels, classes, each * right),
        sure=_tally(sure, 2 * CONFIDENCE_BINS, each).reshape(-1, 2),
        noise_std_grid=0.0,
    )
    return _details_of_many(many)


def _tally(places: npt.NDArray[Any], size: int, weights: Floats) -> Floats:
    """Weight in every place."""
    return np.bincount(places, weights=weights, minlength=size).astype(np.float64)


def _details_of_two(cells: NoisyCells, kept: Floats) -> tuple[dict[str, float], Tables]:
    side = np.arange(SCORE_BINS) >= PER_SIDE
    answer = np.stack([~side, side]).astype(np.float64)  # cells by predicted class
    table: dict[str, tuple[float, ...]] = {
        "share": _six_digits(kept.sum(axis=1) / max(kept.sum(), 1e-300))
    }
    for name in ("recall", "precision"):
        parts = []
        for label in (0, 1):
            part, whole = np.zeros_like(kept), np.zeros_like(kept)
            part[label] = answer[label]
            if name == "recall":
                whole[label] = 1.0
            else:
                whole[:] = answer[label]
            parts.append(noisy_scores.noisy_part(cells, part, whole))
        table[name] = _six_digits(part.value for part in parts)
        table[f"{name}_plus_minus"] = _six_digits(part.plus_minus or 0.0 for part in parts)
    confusion = tuple(float(round(float(row @ column))) for row in kept for column in answer)
    tables: Tables = {
        "classes": table,
        "confusion": {"true_by_predicted": confusion},
        "roc": noisy_scores.curve(kept),
        "reliability": noisy_scores.reliability(cells, kept),
    }
    return _constant(np.array(table["share"]), precision=table["share"][1]), tables


def _details_of_many(many: NoisyClasses) -> tuple[dict[str, float], Tables]:
    shares = many.shares()
    tables: Tables = {
        "classes": {"share": _six_digits(shares), **many.per_class()},
        "reliability": many.reliability(),
    }
    if many.confusion is not None:
        kept = np.maximum(np.rint(many.confusion), 0.0)
        tables["confusion"] = {"true_by_predicted": tuple(kept.ravel().tolist())}
    return _constant(shares, precision=1.0 / len(shares)), tables


def _constant(shares: Floats, *, precision: float) -> dict[str, float]:
    """What answering every record with the shares of the classes reaches."""
    there = shares[shares > 0.0]
    squares = float(1.0 - shares @ shares)
    return {
        "accuracy": float(shares.max()),
        "loss": float(-(there @ np.log(there))),
        "auroc": 0.5,
        "average_precision": precision,
        "brier": squares / 2.0 if len(shares) == 2 else squares,
    }


def _ranked(labels: npt.NDArray[Any], said: npt.NDArray[Any], weights: Floats) -> dict[str, float]:
    classes = 2 if said.ndim == 1 else said.shape[1]
    if classes > _MOST_RANKED:
        return {}
    one_by_one = (
        [(labels > 0, _or_worst(labels, said))]
        if classes == 2
        else [
            (labels == each, np.where(np.isnan(said[:, each]), labels != each, said[:, each]))
            for each in range(classes)
        ]
    )
    found = {}
    for name, measure in (("auroc", auroc), ("average_precision", average_precision)):
        known = [measure(cases, scores, weights) for cases, scores in one_by_one]
        values = [value for value in known if value is not None]
        if values:
            found[name] = math.fsum(values) / len(values)
    return found


def _squares(labels: npt.NDArray[Any], said: npt.NDArray[Any]) -> Floats:
    """Squared errors of the probabilities; what is not a number is as wrong as can be."""
    if said.ndim == 1:
        errors: Floats = probability(_or_worst(labels, said)) - labels
        return errors**2
    wide = np.clip(said.astype(np.float64), 0.0, 1.0)
    own = wide[np.arange(len(labels)), np.clip(labels, 0, wide.shape[1] - 1)]
    squares = (wide**2).sum(axis=1) - 2.0 * own + 1.0
    return np.where(np.isnan(squares), 2.0, squares)


def _or_worst(labels: npt.NDArray[Any], said: npt.NDArray[Any]) -> Floats:
    """Log-odds; what is not a number is as wrong as can be."""
    wrong = np.where(labels > 0, -np.inf, np.inf)
    return np.where(np.isnan(said), wrong, said.astype(np.float64))


def _answers(said: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    answers: npt.NDArray[np.int64] = said.argmax(axis=1)
    return answers


def _confidence(said: npt.NDArray[Any]) -> Floats:
    """The probability of the answer; of what is not a number, 1."""
    most = said.max(axis=1).astype(np.float64)
    return np.where(np.isnan(most), 1.0, most)


def _worst_square(classes: int) -> float:
    return 1.0 if classes == 2 else 2.0


def _six_digits(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in values)
