"""`sumus.Classifier`: classes, with scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from sumus.data import Column, TextColumn
from sumus.estimators.estimator import Estimator
from sumus.estimators.manners import InputError
from sumus.estimators.rows import labels_of

if TYPE_CHECKING:
    from sumus.runs import RunOptions

__all__ = ["Classifier"]


@final
class Classifier(Estimator):
    """One class of several, learned across silos with differential privacy.

        model = sumus.Classifier(epsilon=1.0, bounds={"age": (18, 99)}).fit(frame, y, silos="clinic")
        model.predict_proba(new_rows), model.privacy_

    Args:
        epsilon: of one fit; every fit spends again.
        delta: omitted: a power of ten, at most a tenth of one over the number of rows.
        bounds: public (low, high) by column, or one pair for all columns; a column without bounds
            is cut at fixed public knots, and said so in `assumptions_`. Nothing is read off X.
        categories: public values by column; text without them is hashed.
        classes: public list of classes; omitted: read off y and said so, and refused where one of
            them is rare or they look like a quantity.
        algorithm: of `training.algorithm`; "auto": by task, sizes and ε.
        rounds: of `federation.rounds`; omitted: by the algorithm.
        plan: any other key of a plan, such as {"federation.dropouts": 1}.
        name: of the data set, for its ledger; omitted: that of everything
            unnamed on this machine, which may count too much.
        random_state: a public seed. It voids the guarantee: `privacy_` is None.
        options: paths, ledger and policy (`sumus.RunOptions`).
    """

    _task = "classification"
    _estimator_type = "classifier"
    classes_: NDArray[Any]

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        delta: float | None = None,
        bounds: Any = None,
        categories: Mapping[str, Sequence[str]] | None = None,
        classes: Sequence[Any] | None = None,
        algorithm: str = "auto",
        rounds: int | None = None,
        plan: Mapping[str, Any] | None = None,
        name: str | None = None,
        random_state: Any = None,
        options: RunOptions | None = None,
    ) -> None:
        self.epsilon, self.delta, self.bounds, self.categories = epsilon, delta, bounds, categories
        self.classes, self.algorithm, self.rounds, self.plan = classes, algorithm, rounds, plan
        self.name, self.random_state, self.options = name, random_state, options

    def _labels(self, y: Any, rows: int) -> dict[str, Column]:
        values = labels_of(y, rows, "Classifier")
        if values.dtype.kind == "f" and not np.array_equal(values, np.floor(values)):
            raise InputError(
                "Unknown label type: continuous. Use sumus.Regressor for numbers, or turn them "
                "into classes."
            )
        known = values if self.classes is None else np.asarray(self.classes)
        try:
            self.classes_ = np.unique(known)
        except TypeError:
            raise InputError("y mixes kinds of labels. Use text alone, or numbers alone.") from None
        if len(self.classes_) < 2:
            raise InputError(
                f"y holds {len(self.classes_)} class, and there must be two or more. Declare "
                "classes, or pass other rows."
            )
        places = np.searchsorted(self.classes_, values)
        found = self.classes_[np.minimum(places, len(self.classes_) - 1)] == values
        if not np.all(found):
            raise InputError("y holds a class that classes does not list. Add it to the list.")
        # the table's own rules say what may be taken for classes
        names = tuple(_spelt(each) for each in self.classes_)
        listed = self.classes is not None
        column = TextColumn("label", names, places.astype(np.int32), declared=listed)
        return {"label_column": column}

    def _declared(self, columns: Mapping[str, str]) -> dict[str, Any]:
        if self.classes is None:
            return {}
        return {
            "data.categories": {
                columns["label_column"]: tuple(_spelt(each) for each in self.classes_)
            }
        }

    def _classes(self) -> int:
        return len(self.classes_)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of every row."""
        chances = self.predict_proba(X)
        likeliest: NDArray[Any] = self.classes_[chances.argmax(axis=1)]
        return likeliest

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of every class, a column each in the order of `classes_`."""
        rows = self._rows(X)
        with self._predicting():
            chances = self.model_.predict_proba(rows, warn=False)
        places = {name: place for place, name in enumerate(self.model_.labels.names)}
        order = [places[_spelt(each)] for each in self.classes_]
        return np.asarray(chances[:, order], dtype=np.float64)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows whose class is right, in the clear: no guarantee covers it."""
        right = self.predict(X) == np.asarray(y)
        return float(np.average(right, weights=sample_weight))

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags

        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier"
        tags.classifier_tags = ClassifierTags(poor_score=True)  # noise, at any number of rows
        return tags


def _spelt(each: Any) -> str:
    """A class as the table calls it: whole numbers without a point."""
    value = each.item() if isinstance(each, np.generic) else each
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)
