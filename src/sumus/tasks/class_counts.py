"""Three classes or more: which class, which answer, how sure, one entry of each a record.

    records, right ones    9, ±9
    loss, Brier            3·(2·loss/LOSS_CAP − 1), 2·(Σ_k (p_k − y_k)² − 1)
    spread                 at most 2: what the silo's share of right answers adds (`silo_spread`)
    true class             4 in one of K places
    predicted class        3 in one of K
    true and predicted     4 in one of K² (above 32 classes: in one of K if right, else nowhere)
    how sure, and right?   3 in one of 16·2

Together √(9² + 9² + 3² + 2² + 2² + 4² + 3² + 4² + 3²) = √229.
From them the confusion matrix, recall and precision of every class, and the calibration of the
answer that is given. One-against-rest AUROC of K classes would need a histogram for each.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
import numpy.typing as npt

from sumus.tasks.score_bins import CONFIDENCE_BINS, CONFIDENCE_EDGES, confidence_bin
from sumus.tasks.score_tree import BRIER, GRID, HEAD, LOSS, RECORD, SPREAD
from sumus.tasks.task import CountShape
from sumus.tasks.uncertainty import (
    FOLDED_MEAN,
    FOLDED_STD,
    NORMAL_95,
    Measured,
    Moments,
    noisy_quotient,
    share_within,
)

__all__ = ["MOST_CONFUSED", "ClassCounts", "NoisyClasses", "class_counts"]

Floats = npt.NDArray[np.float64]

MOST_CONFUSED = 32
"""Classes up to which every pair of true and predicted class is counted."""
_TRUE, _PREDICTED, _PAIR, _SURE = 4 * GRID, 3 * GRID, 4 * GRID, 3 * GRID


@final
@dataclass(frozen=True)
class ClassCounts:
    """The places of K classes.

    Args:
        classes: K.
    """

    classes: int

    @property
    def pairs(self) -> int:
        """Places of true and predicted class together."""
        return self.classes**2 if self.classes <= MOST_CONFUSED else self.classes

    @property
    def shape(self) -> CountShape:
        """Δ₂: one entry of each kind."""
        head = 2 * RECORD**2 + LOSS**2 + BRIER**2 + SPREAD**2
        square = head + _TRUE**2 + _PREDICTED**2 + _PAIR**2 + _SURE**2
        return CountShape(
            length=HEAD + 2 * self.classes + self.pairs + 2 * CONFIDENCE_BINS,
            l2_grid=math.isqrt(square - 1) + 1,
            largest_grid=RECORD,
            record_place=0,
            record_grid=RECORD,
        )

    def add_entries(
        self,
        rows: npt.NDArray[np.int64],
        right: npt.NDArray[np.bool_],
        labels: npt.NDArray[Any],
        predicted: npt.NDArray[Any],
        confidence: npt.NDArray[Any],
    ) -> None:
        """What each record adds behind the head.

        Args:
            rows: of counts, changed in place.
            confidence: probability of the predicted class.
        """
        records, last = np.arange(len(rows)), self.classes - 1
        true, told = np.clip(labels, 0, last), np.clip(predicted, 0, last)
        place = HEAD
        rows[records, place + true] = _TRUE
        place += self.classes
        rows[records, place + told] = _PREDICTED
        place += self.classes
        if self.classes <= MOST_CONFUSED:
            rows[records, place + self.classes * true + told] = _PAIR
        else:
            rows[records[right], place + true[right]] = _PAIR
        place += self.pairs
        rows[records, place + 2 * confidence_bin(confidence) + right] = _SURE

    def read(self, total_grid: Floats, *, noise_std_grid: float) -> NoisyClasses:
        """The numbers of records in every place."""
        ends = np.cumsum([HEAD, self.classes, self.classes, self.pairs, 2 * CONFIDENCE_BINS])
        true, predicted, pairs, sure = (
            total_grid[start:end] for start, end in itertools.pairwise(ends)
        )
        square = self.classes <= MOST_CONFUSED
        return NoisyClasses(
            true / _TRUE,
            predicted / _PREDICTED,
            pairs.reshape(self.classes, self.classes) / _PAIR if square else None,
            np.diag(pairs.reshape(self.classes, self.classes)) / _PAIR if square else pairs / _PAIR,
            sure.reshape(CONFIDENCE_BINS, 2) / _SURE,
            noise_std_grid,
        )


@final
@dataclass(frozen=True, eq=False)
class NoisyClasses:
    """Records by class, answer and sureness, as far as noise tells.

    Args:
        true: of each class; `predicted`: of each answer.
        confusion: true by predicted; None where it is not counted.
        right: of each class, those with the right answer.
        sure: by bin of the probability that was given to the answer, wrong and right.
        noise_std_grid: of the noise of each sum.
    """

    true: Floats
    predicted: Floats
    confusion: Floats | None
    right: Floats
    sure: Floats
    noise_std_grid: float

    def shares(self) -> Floats:
        """Of the classes, none negative, that add up to 1."""
        kept = np.maximum(self.true, 0.0)
        return kept / kept.sum() if kept.sum() > 0.0 else np.full(len(kept), 1.0 / len(kept))

    def per_class(self) -> dict[str, tuple[float, ...]]:
        """Recall and precision of every class, each with its ±."""
        table: dict[str, tuple[float, ...]] = {}
        for name, whole, weight in (
            ("recall", self.true, _TRUE),
            ("precision", self.predicted, _PREDICTED),
        ):
            told = [
                self._part(float(part), float(all_of), whole_std=self.noise_std_grid / weight)
                for part, all_of in zip(self.right, whole, strict=True)
            ]
            table[name] = tuple(round(each.value, 6) for each in told)
            table[f"{name}_plus_minus"] = tuple(round(each.plus_minus or 0.0, 6) for each in told)
        return table

    def calibration(self, records: float) -> Measured:
        """Distance of the answers' shares of right ones from their probabilities."""
        if records < max(3.0 * self.noise_std_grid / RECORD, 1.0):
            return Measured(0.5, 0.5)
        low, high = CONFIDENCE_EDGES[:-1], CONFIDENCE_EDGES[1:]
        middle, kept = (low + high) / 2.0, np.maximum(self.sure, 0.0)
        gaps = self.sure[:, 1] * (1.0 - middle) - self.sure[:, 0] * middle
        noise = (self.noise_std_grid / _SURE) ** 2 * ((1.0 - middle) ** 2 + middle**2)
        chosen = kept[:, 1] * (1.0 - middle) ** 2 + kept[:, 0] * middle**2
        stds = np.sqrt(noise + chosen) / records
        hidden = float((self.sure.sum(axis=1) * (high - low)).sum()) / (2.0 * records)
        spread = math.sqrt(stds @ stds)
        raw = float(np.abs(gaps).sum()) / records
        least = raw - FOLDED_MEAN * stds.sum() - NORMAL_95 * FOLDED_STD * spread
        most = raw + NORMAL_95 * spread
        room = max(hidden, 0.0) + NORMAL_95 * self._hidden_std(high - low) / records
        return share_within(least - room, most + room)

    def reliability(self) -> dict[str, tuple[float, ...]]:
        """By bin of the answer's probability: its middle, the share of right answers with its ±,
        and the share of all records; bins of which nothing can be told are left out.
        """
        table: dict[str, list[float]] = {
            name: [] for name in ("predicted", "observed", "plus_minus", "share")
        }
        everything = max(float(np.maximum(self.sure, 0.0).sum()), 1.0)
        std = self.noise_std_grid / _SURE
        for place, (wrong, right) in enumerate(self.sure):
            records, noise = float(right + wrong), Moments(std**2, std**2, 2.0 * std**2)
            told = noisy_quotient(float(right), records, noise + Moments.of_choice(records))
            if wrong + right <= 0.0 or (told.plus_minus or 0.0) >= 0.5:
                continue
            middle = (CONFIDENCE_EDGES[place] + CONFIDENCE_EDGES[place + 1]) / 2.0
            table["predicted"].append(round(float(middle), 6))
            table["observed"].append(round(told.value, 6))
            table["plus_minus"].append(round(told.plus_minus or 0.0, 6))
            table["share"].append(round(float(max(wrong, 0.0) + max(right, 0.0)) / everything, 6))
        return {name: tuple(column) for name, column in table.items()}

    def _part(self, part: float, whole: float, *, whole_std: float) -> Measured:
        noise = Moments((self.noise_std_grid / _PAIR) ** 2, 0.0, whole_std**2)
        return noisy_quotient(part, whole, noise + Moments.of_choice(whole))

    def _hidden_std(self, widths: Floats) -> float:
        return float(np.linalg.norm(widths)) * self.noise_std_grid / (_SURE * math.sqrt(2.0))


@lru_cache(maxsize=64)
def class_counts(classes: int) -> ClassCounts:
    """Of so many classes."""
    return ClassCounts(classes)
