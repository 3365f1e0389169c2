"""What the three estimators have in common: rows become one table of a consortium, `sumus.train`
trains on it, and what was promised is an attribute.
"""

from __future__ import annotations

import numbers
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from sumus.books import rounded_up
from sumus.data import Column, NumberColumn, TextColumn
from sumus.drafting import Size
from sumus.errors import DataError, PlanError
from sumus.estimators.choosing import bounds_of, encoded_width, plan_of
from sumus.estimators.manners import Estimating, InputError, UnfittedError
from sumus.estimators.rows import Rows, dealt, per_row
from sumus.plan import DataPlan

if TYPE_CHECKING:
    from sumus.books import DatasetTotal
    from sumus.guarantee import Account
    from sumus.plan import TrainingPlan
    from sumus.predicting import Model
    from sumus.runs import RunOptions, TrainedRun

__all__ = ["Estimator", "SpendingWarning"]


class SpendingWarning(UserWarning):
    """Records were trained on before, and every fit spends again."""


class Estimator(Estimating):
    """A private model across silos; see `Classifier` for the parameters.

    After `fit`:

        privacy_          the account of this fit; None where the noise came from a public seed
        spent_            what all fits on this data set have spent together, as its ledger says
        assumptions_      what was taken as public without being declared, a line each
        plan_             every public number that was used
        model_            the released model
        run_folder_       journal, plan and model of this fit
        n_features_in_, feature_names_in_ (of tables)
    """

    _task: str
    epsilon: float
    delta: float | None
    bounds: Any
    categories: Mapping[str, Sequence[str]] | None
    algorithm: str
    rounds: int | None
    plan: Mapping[str, Any] | None
    name: str | None
    random_state: Any
    options: RunOptions | None
    privacy_: Account | None
    spent_: DatasetTotal | None
    assumptions_: tuple[str, ...]
    plan_: TrainingPlan
    model_: Model
    n_features_in_: int

    @abstractmethod
    def _labels(self, y: Any, rows: int) -> dict[str, Column]:
        """The columns that hold what is learned, by the key of the plan that names them; sets what
        the kind of estimator knows of them.
        """

    @abstractmethod
    def _declared(self, columns: Mapping[str, str]) -> dict[str, Any]:
        """Keys of the plan that say what is public about labels.

        Args:
            columns: of labels, by the key of the plan that names them.
        """

    def fit(self, X: Any, y: Any = None, *, silos: Any = None, groups: Any = None) -> Self:
        """Train across silos with the real protocol and the real noise, all in this process.

        Guarantee: `privacy_`, for one row of one silo, or with `groups` for one person with all its
            rows in one silo (in as many as `privacy.silos_per_person` of `plan` says). The release is on the ledger of the data set before it happens, so fits add up.

        Args:
            X: a table (a frame, or a mapping of names to columns) or an array of numbers.
            y: what is learned, one entry a row.
            silos: whose row it is: one label a row, the name of a column of X, or a number of
                simulated silos that rows are dealt to; omitted: all rows are one silo's.
            groups: which person's row it is: one identifier a row, or the name of a column of X.
        """
        asked = [name for name in (silos, groups) if isinstance(name, str)]
        rows = Rows.of(X, without=asked)
        with _in_their_words():
            labels = self._labels(y, len(rows))
            whose = _column(X, groups, len(rows), "groups")
            owner = self._silo_of(X, silos, rows, {**rows.columns, **labels}, whose)
            self._train(rows, labels, owner, whose)
        self._apart = tuple(asked)
        self.n_features_in_ = len(rows.columns)
        if rows.named:
            self.feature_names_in_ = np.array(rows.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    def _silo_of(
        self,
        x: Any,
        silos: Any,
        rows: Rows,
        columns: Mapping[str, Column],
        whose: TextColumn | None,
    ) -> TextColumn:
        if silos is None:
            return TextColumn("silo", ("all",), np.zeros(len(rows), np.int32), declared=True)
        if isinstance(silos, numbers.Integral) and not isinstance(silos, bool):
            return dealt(columns, silos, whose)
        found = _column(x, silos, len(rows), "silos")
        if found is None:
            raise InputError("silos must name silos. Pass labels, a column or a number.")
        return found

    def _train(
        self,
        rows: Rows,
        labels: Mapping[str, Column],
        owner: TextColumn,
        whose: TextColumn | None,
    ) -> None:
        """Build plan and table, and train."""
        taken = set(rows.names)
        silo, person = _free("silo", taken), _free("person", taken)
        named = {key: _free(key.removesuffix("_column"), taken) for key in labels}
        table: dict[str, Column] = {**rows.columns, silo: owner}
        table |= {named[key]: column for key, column in labels.items()}
        if whose is not None:
            table[person] = whose
        categories = {
            str(key): tuple(map(str, each)) for key, each in (self.categories or {}).items()
        }
        for key in categories:
            if key not in rows.names:
                raise InputError(
                    f"categories names {key!r}, which is no column of X. There are "
                    f"{', '.join(rows.names[:8])}."
                )
        bounds = {
            key: pair
            for key, pair in bounds_of(self.bounds, rows.names).items()
            if key not in categories
        }
        sizes = _sizes(owner, whose)
        encoded = encoded_width(
            rows.columns, DataPlan(bounds=bounds or None, categories=categories or None)
        )
        if owner.declared:
            categories[silo] = tuple(owner.values)
        declared = self._declared(named)
        bounds |= declared.pop("data.bounds", {})
        categories |= declared.pop("data.categories", {})
        plan = plan_of(
            self._task,
            Size(sum(sizes), min(sizes), len(sizes), encoded, self._classes()),
            epsilon=self.epsilon,
            delta=self.delta,
            unit="record" if whose is None else "person",
            algorithm=self.algorithm,
            rounds=self.rounds,
            fixed={
                "training.task": self._task,
                "data.objects": self.name or "?",
                "data.silo_column": silo,
                **{f"data.{key}": column for key, column in named.items()},
                **({} if whose is None else {"data.person_column": person}),
                **({"data.bounds": bounds} if bounds else {}),
                **({"data.categories": categories} if categories else {}),
                "data.test_fraction": 0.0,
                "evaluation.metrics": "none",
                **declared,
            },
            overrides=self.plan,
        )
        if self.name is None:
            plan = plan.replace("data", objects=None)
        self._remember(self._run(plan, table))

    def _run(self, plan: TrainingPlan, table: Mapping[str, Column]) -> TrainedRun:
        from sumus.runs import RunOptions, Simulation, train

        options = self.options or RunOptions()
        seed = _seed(self.random_state)
        return train(
            plan,
            silos=dict(table),
            options=options,
            simulation=None if seed is None else Simulation(seed),
            progress=False,
        )

    def _remember(self, run: TrainedRun) -> None:
        # a public seed voids the guarantee, and so there is none to show
        self.privacy_ = run.account if run.void is None else None
        self.spent_, self.assumptions_ = run.spent, run.assumptions
        self.plan_, self.model_, self.run_folder_ = run.plan, run.model, run.path
        spent = run.spent
        if spent is not None and spent.runs > 1:
            warnings.warn(
                f"{spent.runs} fits on the data set {spent.dataset} have spent ε ≤ "
                f"{rounded_up(spent.epsilon)} at δ = {spent.delta:.3g} together (one "
                f"{spent.unit}). Every fit spends again, those of a cross-validation or a grid "
                "search too.",
                SpendingWarning,
                stacklevel=4,
            )

    def _classes(self) -> int:
        return 0

    def _rows(self, X: Any) -> dict[str, Column]:
        """New rows as the model's columns."""
        if not hasattr(self, "model_"):
            raise UnfittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with "
                "appropriate arguments before using this estimator."
            )
        names = self.model_.encoding.names if self.model_.encoding is not None else ()
        rows = Rows.of(X, without=self._apart if _has_columns(X) else ())
        named = hasattr(self, "feature_names_in_")
        return rows.like(names, named=named, owner=type(self).__name__).columns

    @contextmanager
    def _predicting(self) -> Iterator[None]:
        with _in_their_words():
            yield

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True  # a missing value is a feature of its own
        tags.input_tags.categorical = True
        tags.non_deterministic = self.random_state is None
        return tags


def _free(name: str, taken: set[str]) -> str:
    """A name that no column of the table has."""
    while name in taken:
        name = f"_{name}"
    taken.add(name)
    return name


def _has_columns(x: Any) -> bool:
    return not isinstance(x, np.ndarray)


def _column(x: Any, given: Any, rows: int, what: str) -> TextColumn | None:
    """Labels of rows: given as such, or in a column of the table."""
    if given is None:
        return None
    if isinstance(given, str):
        table = Rows.of(x)
        if given not in table.columns or not table.named:
            raise InputError(
                f"{what} names the column {given!r}, which X does not have. There are "
                f"{', '.join(table.names[:8])}."
            )
        column = table.columns[given]
        given = (
            column.values
            if isinstance(column, NumberColumn)
            else [column.values[code] if code >= 0 else None for code in column.codes]
        )
    return per_row(given, rows, what)


def _sizes(owner: TextColumn, whose: TextColumn | None) -> list[int]:
    """Rows of every silo, or persons."""
    codes: NDArray[Any] = np.asarray(owner.codes)
    if whose is not None:
        pairs = np.unique(np.stack([codes, np.asarray(whose.codes)], axis=1), axis=0)
        codes = pairs[:, 0]
    return [int(count) for count in np.bincount(codes, minlength=len(owner.values))]


def _seed(random_state: Any) -> int | None:
    """A public seed, where one is given."""
    if random_state is None:
        return None
    if isinstance(random_state, numbers.Integral) and int(random_state) >= 0:
        return int(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    raise InputError(
        f"random_state must be a whole number from 0 or None, got {random_state!r:.40}. A number "
        "makes the noise public and voids the guarantee."
    )


@contextmanager
def _in_their_words() -> Iterator[None]:
    """What is wrong with data or a parameter is a ValueError, too."""
    try:
        yield
    except InputError:
        raise
    except (DataError, PlanError) as error:
        raise InputError(str(error)) from error
