"""`sumus.Regressor`: a number within public bounds, with scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from sumus.data import Column, NumberColumn
from sumus.estimators.choosing import bounds_of
from sumus.estimators.estimator import Estimator
from sumus.estimators.manners import InputError
from sumus.estimators.rows import labels_of

if TYPE_CHECKING:
    from sumus.runs import RunOptions

__all__ = ["Regressor"]


@final
class Regressor(Estimator):
    """A number, learned across silos with differential privacy.

        model = sumus.Regressor(target_bounds=(0, 5000)).fit(frame, cost, silos="clinic")
        model.predict(new_rows), model.privacy_

    Args:
        target_bounds: public (low, high) of y; required: its range is a fact about the extreme
            rows. Targets beyond count as the nearest bound.
        epsilon: likewise all others, as for `Classifier`.
    """

    _task = "regression"
    _estimator_type = "regressor"

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        target_bounds: tuple[float, float] | None = None,
        delta: float | None = None,
        bounds: Any = None,
        categories: Mapping[str, Sequence[str]] | None = None,
        algorithm: str = "auto",
        rounds: int | None = None,
        plan: Mapping[str, Any] | None = None,
        name: str | None = None,
        random_state: Any = None,
        options: RunOptions | None = None,
    ) -> None:
        self.epsilon, self.delta, self.bounds, self.categories = epsilon, delta, bounds, categories
        self.target_bounds, self.algorithm, self.rounds = target_bounds, algorithm, rounds
        self.plan, self.name, self.random_state = plan, name, random_state
        self.options = options

    def _labels(self, y: Any, rows: int) -> dict[str, Column]:
        values = labels_of(y, rows, "Regressor")
        if self.target_bounds is None:
            raise InputError(
                "target_bounds must be declared: the range of y would tell of its extreme rows. "
                "Pass target_bounds=(low, high), public numbers."
            )
        try:
            numbers = values.astype(np.float64)
        except (TypeError, ValueError):
            raise InputError("y must hold numbers. Use sumus.Classifier for classes.") from None
        return {"label_column": NumberColumn("label", numbers)}

    def _declared(self, columns: Mapping[str, str]) -> dict[str, Any]:
        return {"data.bounds": bounds_of(self.target_bounds, (columns["label_column"],))}

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The expected number of every row, within the bounds."""
        rows = self._rows(X)
        with self._predicting():
            return np.asarray(self.model_.predict(rows, warn=False), dtype=np.float64)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² on these rows, in the clear: no guarantee covers it."""
        y = np.asarray(y, dtype=np.float64)
        mean = np.average(y, weights=sample_weight)
        left = np.average((y - self.predict(X)) ** 2, weights=sample_weight)
        whole = np.average((y - mean) ** 2, weights=sample_weight)
        return float(1.0 - left / whole) if whole > 0.0 else 0.0

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import RegressorTags

        tags = super().__sklearn_tags__()
        tags.estimator_type = "regressor"
        tags.regressor_tags = RegressorTags(poor_score=True)  # noise, at any number of rows
        return tags
