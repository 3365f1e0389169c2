"""`sumus.Survival`: who has an event when, with scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from sumus.data import Column, NumberColumn
from sumus.estimators.estimator import Estimator
from sumus.estimators.manners import InputError
from sumus.estimators.rows import labels_of

if TYPE_CHECKING:
    from sumus.runs import RunOptions

__all__ = ["Survival"]


@final
class Survival(Estimator):
    """Hazards of public intervals of time, learned across silos with differential privacy.

        model = sumus.Survival(intervals=(6, 12, 24)).fit(frame, times_and_events, silos="centre")
        model.predict(new_rows), model.predict_survival(new_rows), model.privacy_

    y has a column of times and one of events (0 or 1), as an array (n, 2) or a structured array with
    the fields time and event; times alone mean that everybody had the event.

    Args:
        intervals: public cut points of time, rising; required. Whoever is followed beyond the last
            counts as followed up to it.
        epsilon: likewise all others, as for `Classifier`.
    """

    _task = "survival"

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        intervals: Sequence[float] | None = None,
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
        self.intervals, self.algorithm, self.rounds, self.plan = intervals, algorithm, rounds, plan
        self.name, self.random_state, self.options = name, random_state, options

    def _labels(self, y: Any, rows: int) -> dict[str, Column]:
        times, events = times_and_events(y, rows)
        if self.intervals is None:
            raise InputError(
                "intervals must be declared: cut points read off y would tell of its rows. Pass "
                "intervals=(6, 12, 24) or so, public numbers."
            )
        return {
            "time_column": NumberColumn("time", times),
            "event_column": NumberColumn("event", events),
        }

    def _declared(self, columns: Mapping[str, str]) -> dict[str, Any]:
        return {"data.intervals": tuple(float(cut) for cut in self.intervals or ())}

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The chance of every row that the event happens by the last cut point."""
        rows = self._rows(X)
        with self._predicting():
            return np.asarray(self.model_.predict(rows, warn=False), dtype=np.float64)

    def predict_survival(self, X: Any) -> NDArray[np.float64]:
        """The chance that it has not happened by each cut point, a column each."""
        rows = self._rows(X)
        with self._predicting():
            columns = self.model_.predictions(rows).columns
        curve = [values for name, values in columns.items() if name.startswith("survival:")]
        return np.stack(curve, axis=1)

    def score(self, X: Any, y: Any) -> float:
        """Harrell's c-index on these rows, in the clear: no guarantee covers it."""
        rows = self._rows(X)
        times, events = times_and_events(y, len(next(iter(rows.values()))))
        import torch

        task = self.plan_.task
        with self._predicting():
            codes = task.store(np.stack([times, events], axis=1), "y")
            scores = task.scores(self.model_.outputs(rows), torch.from_numpy(codes))
        exact = task.exact(*(each.numpy() for each in scores))
        return float(exact[task.headline.name])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        tags.target_tags.two_d_labels = False
        return tags


def times_and_events(y: Any, rows: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of an array (n, 2), a structured array, or times alone."""
    fields = getattr(getattr(y, "dtype", None), "names", None)
    if fields:
        by_name = {name.casefold(): name for name in fields}
        if not {"time", "event"} <= set(by_name):
            raise InputError(
                f"y must have the fields time and event, got {', '.join(fields[:5])}. Rename them."
            )
        y = np.stack([np.asarray(y[by_name[name]], float) for name in ("time", "event")], axis=1)
    values = None if y is None else np.asarray(y)
    if values is not None and values.ndim == 2 and values.shape[1] == 2:
        events = labels_of(values[:, 1], rows, "Survival")
        times = labels_of(values[:, 0], rows, "Survival")
    else:
        times = labels_of(y, rows, "Survival")
        events = np.ones(rows)
    try:
        return times.astype(np.float64), events.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError("y must hold numbers: times, and events of 0 or 1.") from None
