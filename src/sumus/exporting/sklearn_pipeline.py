"""A model as a fitted pipeline of scikit-learn's own classes: a frame of raw columns in, predictions
out, without Sumus.

    scaled      MinMaxScaler(−1 … 1, clipped), then 0 for what is missing; MissingIndicator
    knotted     SplineTransformer of degree 1 at the same knots, 0 for what is missing; MissingIndicator
    one-hot     OrdinalEncoder with a number of its own for everything else, then OneHotEncoder
    one length  Normalizer
    shares      CalibratedClassifierCV, for classes that were fitted by least squares
    layers      LogisticRegression, LinearRegression, MLPClassifier, MLPRegressor

Every step is fitted to made-up rows of public values, and what was learned is put in its place.
"""

from __future__ import annotations

import importlib
import io
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sumus.data import KNOTS, ColumnRule, Encoding
from sumus.errors import DataError, PlanError, dotted
from sumus.exporting.answer import Answer
from sumus.exporting.layers import Activation, Dense, Flat, layers_of
from sumus.exporting.scaling import Scaling
from sumus.predicting import Model
from sumus.tasks import KNOTS as SHARE_KNOTS

__all__ = ["expects_numbers", "sklearn_bytes", "sklearn_pipeline"]

Floats = NDArray[np.float64]
_FIELD = "--format"
_ROWS = 4  # made-up rows that steps are fitted to


def sklearn_bytes(model: Model) -> bytes:
    """The pipeline as a joblib file."""
    file = io.BytesIO()
    importlib.import_module("joblib").dump(sklearn_pipeline(model), file)
    return file.getvalue()


def sklearn_pipeline(model: Model) -> Any:
    """The fitted pipeline.

    Guarantee: what it predicts is what `Model.predict` says, up to the rounding of float32; a model
        that scikit-learn's classes cannot express is refused.
    """
    learn = _sklearn()
    answer, scaling = Answer.of(model), Scaling.of(model, "sklearn")
    if answer.kind in ("survival", "labels"):
        what = "times of events" if answer.kind == "survival" else "several labels of yes and no"
        raise PlanError(
            _FIELD, "sklearn", f"has no estimator for {what}", "Use --format onnx or torch."
        )
    layers = [part for part in layers_of(model.module, "sklearn") if not isinstance(part, Flat)]
    dense = tuple(part for part in layers if isinstance(part, Dense))
    between = [part.kind for part in layers if isinstance(part, Activation)]
    if len(dense) + len(between) < len(layers) or len(dense) != len(between) + 1:
        raise PlanError(
            _FIELD,
            "sklearn",
            "holds linear models and networks of dense layers",
            "Use --format onnx or torch.",
        )
    if len(set(between)) > 1:
        raise PlanError(
            _FIELD, "sklearn", "holds one kind of activation", "Use --format onnx or torch."
        )
    chain = _Chain.of(dense, scaling, between[0] if between else None)
    steps, frame = _front(learn, model, scaling)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that are thrown away
        shown = frame
        for _, step in steps:
            shown = step.fit_transform(shown)
        last = _estimator(learn, chain, answer, np.asarray(shown, np.float64))
    pipeline = learn.Pipeline([*steps, ("model", last)])
    pipeline.sumus_model_ = model.facts.to_bytes().decode()
    return pipeline


def expects_numbers(rule: ColumnRule) -> bool:
    """Whether a frame's column must hold numbers: always without categories, otherwise where every
    category is one.
    """
    return not rule.categories or _as_numbers(rule.categories) is not None


def _sklearn() -> SimpleNamespace:
    """The classes of scikit-learn that are used, by name."""
    places = {
        "calibration": ("CalibratedClassifierCV",),
        "compose": ("ColumnTransformer", "TransformedTargetRegressor"),
        "impute": ("MissingIndicator", "SimpleImputer"),
        "isotonic": ("IsotonicRegression",),
        "linear_model": ("LinearRegression", "LogisticRegression"),
        "neural_network": ("MLPClassifier", "MLPRegressor"),
        "pipeline": ("FeatureUnion", "Pipeline"),
        "preprocessing": (
            "FunctionTransformer",
            "MinMaxScaler",
            "Normalizer",
            "OneHotEncoder",
            "OrdinalEncoder",
            "SplineTransformer",
        ),
    }
    try:
        return SimpleNamespace(
            **{
                name: getattr(importlib.import_module(f"sklearn.{module}"), name)
                for module, names in places.items()
                for name in names
            }
        )
    except ImportError:
        raise DataError(
            "--format sklearn needs scikit-learn. Run: pip install 'sumus[train]'"
        ) from None


# -- from columns to features


def _front(learn: Any, model: Model, scaling: Scaling | None) -> tuple[list[Any], Any]:
    """Steps in front of the estimator, and made-up rows that they are fitted to."""
    encoding = model.encoding
    if encoding is None:
        width = math.prod(model.facts.shape)
        steps: list[Any] = []
        frame: Any = np.linspace(0.0, 1.0, _ROWS)[:, None] * np.ones((1, width))
    else:
        table, frame = _columns(learn, encoding)
        steps = [("columns", table)]
    if scaling is not None and not _constant(scaling, encoding):
        steps.append(("length", learn.Normalizer()))
    return steps, frame


def _constant(scaling: Scaling, encoding: Encoding | None) -> bool:
    """Whether all records are scaled by one factor: none can be longer than L. Refuses records of
    which only some are shortened.
    """
    if not scaling.longest:
        return False
    most = math.inf if encoding is None else math.sqrt(len(encoding.columns))
    if most <= scaling.longest * (1.0 + 1e-9):
        return True
    rule = f"cannot shorten only records longer than training.feature_norm = {scaling.longest:.6g}"
    raise PlanError(_FIELD, "sklearn", rule, "Use --format onnx or torch.")


def _columns(learn: Any, encoding: Encoding) -> tuple[Any, Any]:
    pandas = _pandas()
    parts, held = [], {}
    for rule in encoding.columns:
        if rule.kind == "one-hot":
            part, values = _categories(learn, rule.categories)
        elif rule.kind == "scaled":
            part, values = _bounded(learn, float(rule.low or 0.0), float(rule.high or 0.0))
        elif rule.kind == "knotted":
            part, values = _knotted(learn), np.linspace(-1.0, 1.0, _ROWS)
        else:
            rule_text = f"has no map for column {rule.name!r}, which is {_made(rule.kind)}"
            fix = f"List {dotted('data.categories', rule.name)}."
            raise PlanError(_FIELD, "sklearn", rule_text, fix)
        parts.append((rule.name, part, [rule.name]))
        held[rule.name] = values
    return learn.ColumnTransformer(parts, sparse_threshold=0.0), pandas.DataFrame(held)


def _made(kind: str) -> str:
    return "hashed" if kind == "hashed" else f'a text by "{kind}"'


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise DataError(
            "--format sklearn makes a pipeline that reads frames, which needs pandas. Run: pip "
            "install pandas"
        ) from None


def _with_flag(learn: Any, numbers: Any) -> Any:
    """Numbers, and behind them whether the value is missing."""
    flag = learn.MissingIndicator(features="all")
    return learn.FeatureUnion([("number", numbers), ("missing", flag)])


def _bounded(learn: Any, low: float, high: float) -> tuple[Any, Any]:
    scaled = learn.MinMaxScaler((-1, 1), clip=True)
    filled = learn.SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True)
    numbers = learn.Pipeline([("scaled", scaled), ("filled", filled)])
    return _with_flag(learn, numbers), np.linspace(low, high, _ROWS)


def _knotted(learn: Any) -> Any:
    try:
        hats = learn.SplineTransformer(
            degree=1,
            knots=KNOTS[:, None],
            extrapolation="constant",
            handle_missing="zeros",
        )
    except TypeError:
        rule = "needs scikit-learn 1.8 for numbers without bounds"
        raise PlanError(_FIELD, "sklearn", rule, "Update it, or set data.bounds.") from None
    return _with_flag(learn, hats)


def _categories(learn: Any, categories: Sequence[str]) -> tuple[Any, Any]:
    numbers, count = _as_numbers(categories), len(categories)
    # in rising order, as scikit-learn wants numbers; places says which of ours each one is
    values: Any = np.array(categories, dtype=object) if numbers is None else np.sort(numbers)
    order = np.arange(count) if numbers is None else np.argsort(numbers)
    place = learn.OrdinalEncoder(
        categories=[values], handle_unknown="use_encoded_value", unknown_value=count
    )
    every = np.append(np.argsort(order), count).astype(np.float64)
    one = learn.OneHotEncoder(
        categories=[np.arange(count + 1, dtype=np.float64)], sparse_output=False
    )
    parts = [("place", place), ("one", one)]
    if not np.array_equal(order, np.arange(count)):
        pick = learn.ColumnTransformer(
            [(str(k), "passthrough", [int(c)]) for k, c in enumerate(every)]
        )
        parts.append(("order", pick))
    return learn.Pipeline(parts), np.resize(values, _ROWS)


def _as_numbers(categories: Sequence[str]) -> Floats | None:
    """Categories as a frame holds them where all are numbers or flags; None: as text."""
    flags = {"False": 0.0, "True": 1.0}
    try:
        return np.array([flags[each] if each in flags else float(each) for each in categories])
    except ValueError:
        return None


# -- the estimator


@final
@dataclass(frozen=True, eq=False)
class _Chain:
    """Dense layers behind the steps: the scaling's factor and bias feature are in the first."""

    weights: tuple[Floats, ...]  # (inputs, outputs) each, as scikit-learn keeps them
    biases: tuple[Floats, ...]
    activation: str | None

    @classmethod
    def of(cls, dense: Sequence[Dense], scaling: Scaling | None, activation: str | None) -> _Chain:
        weights = [layer.weight.T.astype(np.float64) for layer in dense]
        biases = [layer.bias.astype(np.float64) for layer in dense]
        if scaling is not None:
            biases[0] = biases[0] + scaling.bias * weights[0][-1]
            weights[0] = weights[0][:-1] * (scaling.room / (scaling.longest or 1.0))
        return cls(tuple(weights), tuple(biases), activation)

    def last(self, change: Any) -> _Chain:
        """The chain with another last layer: change(weight, bias)."""
        weight, bias = change(self.weights[-1], self.biases[-1])
        return _Chain((*self.weights[:-1], weight), (*self.biases[:-1], bias), self.activation)


def _estimator(learn: Any, chain: _Chain, answer: Answer, shown: Floats) -> Any:
    if answer.kind in ("classes", "squares"):
        return _classifier(learn, chain, answer, shown)
    if answer.kind == "count":
        (most,) = answer.halves
        raised = chain.last(lambda w, b: (w, b + math.log(most)))
        inverse = learn.Pipeline(
            [
                ("exp", learn.FunctionTransformer(inverse_func=np.exp, check_inverse=False)),
                ("most", _clip(learn, None, math.log(most))),
            ]
        )
        return _regressor(learn, raised, inverse, shown)
    middles, halves = np.array(answer.middles), np.array(answer.halves)
    chain = chain.last(lambda w, b: (w * halves, middles + b * halves))
    single = len(halves) == 1
    low, high = middles - halves, middles + halves
    inverse = _clip(learn, *((low[0], high[0]) if single else (low, high)))
    return _regressor(learn, chain, inverse, shown)


def _clip(learn: Any, low: Any, high: Any) -> Any:
    """A step whose inverse cuts numbers off at these ends."""
    return learn.FunctionTransformer(
        inverse_func=np.clip, inv_kw_args={"a_min": low, "a_max": high}, check_inverse=False
    )


def _classifier(learn: Any, chain: _Chain, answer: Answer, shown: Floats) -> Any:
    classes = np.arange(len(answer.names)) if answer.numbered else np.array(answer.names)
    squares = answer.kind == "squares"
    if squares:  # p = z − mean(z) + 1/K; that of one class is half a difference and a half
        chain = chain.last(_centred)
        if len(classes) == 2:
            chain = chain.last(lambda w, b: (w[:, 1:], b[1:]))
    elif len(classes) == 2 and chain.weights[-1].shape[1] == 2:  # one log-odds is enough
        chain = chain.last(lambda w, b: (w[:, 1:] - w[:, :1], b[1:] - b[:1]))
    rows = np.resize(shown, (max(_ROWS, len(classes)), shown.shape[1]))
    order = np.argsort(classes, kind="stable")  # scikit-learn keeps classes sorted
    if chain.weights[-1].shape[1] > 1:
        chain = chain.last(lambda w, b: (w[:, order], b[order]))
    elif not np.array_equal(order, np.arange(len(classes))):
        chain = chain.last(lambda w, b: (-w, (1.0 if squares else 0.0) - b))
    labels = np.resize(classes, len(rows))
    if squares:
        return _shares_of_squares(learn, chain, rows, classes)
    if chain.activation is None:
        linear = learn.LogisticRegression(max_iter=1).fit(rows, labels)
        linear.coef_, linear.intercept_ = chain.weights[0].T.copy(), chain.biases[0].copy()
        return linear
    network = _network(learn.MLPClassifier, chain).fit(rows, labels)
    _put(network, chain)
    return network


def _centred(weight: Floats, bias: Floats) -> tuple[Floats, Floats]:
    return weight - weight.mean(1, keepdims=True), bias - bias.mean() + 1.0 / len(bias)


def _shares_of_squares(learn: Any, chain: _Chain, rows: Floats, classes: Any) -> Any:
    """Outputs bent by straight lines and divided by their sum, as `sumus.tasks.least_squares` has
    it: a calibrated classifier does the same.
    """
    made_up = np.resize(rows, (2 * len(classes), rows.shape[1]))
    whole = learn.CalibratedClassifierCV(
        learn.LogisticRegression(max_iter=1), method="isotonic", cv=2
    ).fit(made_up, np.resize(classes, len(made_up)))
    (kept, _) = whole.calibrated_classifiers_
    linear = kept.estimator
    linear.coef_, linear.intercept_ = chain.weights[0].T.copy(), chain.biases[0].copy()
    bent = learn.IsotonicRegression(out_of_bounds="clip").fit(*np.transpose(SHARE_KNOTS))
    kept.calibrators = [bent] * len(linear.coef_)
    whole.calibrated_classifiers_ = [kept]
    return whole


def _regressor(learn: Any, chain: _Chain, inverse: Any, shown: Floats) -> Any:
    outputs = chain.weights[-1].shape[1]
    targets = np.resize(np.linspace(0.0, 1.0, _ROWS), (_ROWS, outputs))
    targets = targets[:, 0] if outputs == 1 else targets
    base = (
        learn.LinearRegression()
        if chain.activation is None
        else _network(learn.MLPRegressor, chain)
    )
    whole = learn.TransformedTargetRegressor(base, transformer=inverse, check_inverse=False)
    whole.fit(shown[:_ROWS], targets)
    if chain.activation is None:
        weight, bias = chain.weights[0].T.copy(), chain.biases[0].copy()
        single = outputs == 1
        whole.regressor_.coef_ = weight[0] if single else weight
        whole.regressor_.intercept_ = float(bias[0]) if single else bias
    else:
        _put(whole.regressor_, chain)
    return whole


def _network(kind: Any, chain: _Chain) -> Any:
    named = {"sigmoid": "logistic"}.get(chain.activation or "", chain.activation)
    widths = tuple(weight.shape[1] for weight in chain.weights[:-1])
    return kind(hidden_layer_sizes=widths, activation=named, max_iter=1)


def _put(network: Any, chain: _Chain) -> None:
    network.coefs_ = [weight.copy() for weight in chain.weights]
    network.intercepts_ = [bias.copy() for bias in chain.biases]
