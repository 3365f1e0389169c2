"""A consortium in three lines: estimators on tables and arrays, what they promise and what they
spend.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sumus
from sumus.books import Ledger
from sumus.estimators import SpendingWarning
from sumus.estimators.rows import Rows, dealt
from sumus.guarantee import Account

BOUNDS = (-3.0, 3.0)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def rows(count: int = 2000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 3))
    return x, np.where(x[:, 0] + 0.2 * rng.normal(size=count) > 0.0, "yes", "no")


def frame(count: int = 2000) -> tuple[Any, Any]:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    x = pandas.DataFrame(
        {
            "age": rng.uniform(20.0, 80.0, count),
            "smokes": rng.choice(["yes", "no"], count),
            "clinic": np.array(["Bergen", "Oslo", "Tromsø"])[np.arange(count) // 2 % 3],
            "patient": np.arange(count) // 2,
        }
    )
    return x, (x["age"] > 50.0).to_numpy()


# -- three kinds


def test_a_consortium_in_three_lines() -> None:
    x, y = rows()
    model = sumus.Classifier(epsilon=1.0, bounds=BOUNDS).fit(x, y, silos=5)
    assert model.score(x, y) > 0.85
    assert isinstance(model.privacy_, Account)
    assert model.privacy_.proved
    assert model.privacy_.epsilon <= 1.0
    assert model.plan_.federation.silos == 5
    assert list(model.classes_) == ["no", "yes"]
    assert set(model.predict(x)) == {"no", "yes"}
    assert np.allclose(model.predict_proba(x).sum(axis=1), 1.0)
    assert model.n_features_in_ == 3
    assert not hasattr(model, "feature_names_in_")


def test_a_frame_with_columns_of_silos_and_persons() -> None:
    x, y = frame()
    model = sumus.Classifier(bounds={"age": (18, 99)}, categories={"smokes": ["no", "yes"]})
    model.fit(x, y, silos="clinic", groups="patient")
    assert model.privacy_ is not None
    assert model.plan_.privacy.unit == "person"
    assert model.plan_.federation.silos == 3
    assert list(model.feature_names_in_) == ["age", "smokes"]
    assert model.predict(x).dtype == bool  # as it was given
    assert model.score(x, y) > 0.8
    assert np.array_equal(model.predict(x[["age", "smokes"]]), model.predict(x))
    assert any("3 silos were read off column" in line for line in model.assumptions_)


def test_numbers_within_public_bounds() -> None:
    x, _ = rows()
    y = np.clip(20.0 * x[:, 0] + 50.0, 0.0, 100.0)
    model = sumus.Regressor(target_bounds=(0.0, 100.0), bounds=BOUNDS).fit(x, y, silos=4)
    assert model.score(x, y) > 0.7
    assert model.predict(x).min() >= 0.0
    with pytest.raises(ValueError, match="target_bounds must be declared"):
        sumus.Regressor(bounds=BOUNDS).fit(x, y)


def test_times_until_an_event() -> None:
    x, _ = rows()
    rng = np.random.default_rng(1)
    times = rng.exponential(np.exp(-1.5 * x[:, 0]) * 5.0)
    events = times < 10.0
    y = np.stack([np.minimum(times, 10.0), events], axis=1)
    model = sumus.Survival(epsilon=2.0, intervals=(2, 5, 10), bounds=BOUNDS).fit(x, y, silos=3)
    assert model.score(x, y) > 0.65
    curve = model.predict_survival(x[:5])
    assert curve.shape == (5, 3)
    assert (np.diff(curve, axis=1) <= 0.0).all()
    named = np.array(
        list(zip(y[:, 1].astype(bool), y[:, 0], strict=True)),
        dtype=[("event", bool), ("time", float)],
    )
    assert model.score(x, named) == pytest.approx(model.score(x, y))
    with pytest.raises(ValueError, match="intervals must be declared"):
        sumus.Survival().fit(x, y)


# -- what is promised


def test_a_seed_voids_the_guarantee_and_nothing_is_shown_or_entered() -> None:
    x, y = rows(400)
    model = sumus.Classifier(bounds=BOUNDS, random_state=0).fit(x, y, silos=3)
    assert model.privacy_ is None
    assert model.spent_ is None
    again = sumus.Classifier(bounds=BOUNDS, random_state=0).fit(x, y, silos=3)
    assert np.array_equal(model.predict_proba(x), again.predict_proba(x))


def test_without_a_seed_no_two_fits_have_the_same_noise() -> None:
    x, y = rows(400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpendingWarning)
        one, other = (sumus.Classifier(bounds=BOUNDS).fit(x, y, silos=3) for _ in range(2))
    assert not np.array_equal(one.predict_proba(x), other.predict_proba(x))


def test_every_fit_spends_again_and_says_so() -> None:
    x, y = rows(400)
    first = sumus.Classifier(epsilon=0.5, bounds=BOUNDS, name="visits").fit(x, y, silos=3)
    assert first.spent_ is not None
    assert (first.spent_.dataset, first.spent_.runs) == ("visits", 1)
    with pytest.warns(SpendingWarning, match=r"2 fits on the data set visits have spent ε ≤ 1 "):
        second = sumus.Classifier(epsilon=0.5, bounds=BOUNDS, name="visits").fit(x, y, silos=3)
    assert second.spent_ is not None
    assert second.spent_.epsilon == pytest.approx(1.0, abs=1e-3)
    runs = {entry.run for entry in Ledger.of_dataset("visits").entries()}
    assert runs == {first.run_folder_.name, second.run_folder_.name}


@pytest.mark.deep
def test_folds_of_a_cross_validation_add_up_on_one_ledger() -> None:
    from sklearn.model_selection import GridSearchCV, cross_val_score
    from sklearn.pipeline import make_pipeline

    x, y = rows(600)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", SpendingWarning)
        scores = cross_val_score(sumus.Classifier(bounds=BOUNDS), x, y, cv=3)
    assert len(scores) == 3
    assert [str(each.message)[:6] for each in told] == ["2 fits", "3 fits"]
    silos = np.arange(600) % 4
    search = GridSearchCV(
        make_pipeline(sumus.Classifier(bounds=BOUNDS)), {"classifier__epsilon": [0.5, 2.0]}, cv=2
    )
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always", SpendingWarning)
        search.fit(x, y, classifier__silos=silos)  # 2 × 2 folds and a last one, after 3
    best = search.best_estimator_[-1]
    assert best.spent_.runs == 8
    assert best.spent_.epsilon > 7.0
    assert best.plan_.federation.silos == 4


def test_nothing_is_read_off_columns_without_bounds() -> None:
    x, y = rows(400)
    model = sumus.Classifier(random_state=0).fit(x, y)
    assert any("no public bounds" in line for line in model.assumptions_)
    louder = x.copy()
    louder[0] = [1e5, -1e5, 9e4]  # one extreme row
    other = sumus.Classifier(random_state=0).fit(louder, y)
    assert model.model_.encoding == other.model_.encoding


def test_dealing_moves_no_other_row() -> None:
    x, _ = rows(200)
    whole = dealt(Rows.of(x).columns, 5, None).codes
    without = dealt(Rows.of(np.delete(x, 17, axis=0)).columns, 5, None).codes
    assert np.array_equal(np.delete(whole, 17), without)
    assert len(set(whole.tolist())) == 5


def test_the_choice_follows_from_sizes_alone() -> None:
    x, y = rows(4000)
    many = sumus.Classifier(bounds=BOUNDS, random_state=0).fit(x, y)
    assert many.plan_.training.algorithm == "normal-equations"
    few = sumus.Classifier(bounds=BOUNDS, random_state=0).fit(x[:60], y[:60])
    assert few.plan_.training.algorithm == "convex-pass"
    other = sumus.Classifier(
        bounds=BOUNDS,
        random_state=0,
        algorithm="dp-sgd",
        rounds=2,
        plan={"training.batch_size": 20, "federation.local_steps": 2},
    ).fit(x[:300], y[:300])
    assert (other.plan_.training.algorithm, other.plan_.federation.rounds) == ("dp-sgd", 2)


@pytest.mark.parametrize(
    ("changes", "asked", "words"),
    [
        ({"bounds": {"height": (0, 1)}}, {}, "no column of X"),
        ({"bounds": (1,)}, {}, "must be a pair"),
        ({"bounds": (3.0, -3.0)}, {}, "bounds"),
        ({"epsilon": -1.0}, {}, "epsilon"),
        ({"plan": {"rounds": 3}}, {}, "Name the section, too"),
        ({"plan": {"training.nonsense": 3}}, {}, "nonsense"),
        ({"algorithm": "magic"}, {}, "algorithm"),
        ({"random_state": -3}, {}, "random_state"),
        ({"classes": ["no"]}, {}, "class"),
        ({"classes": ["no", "perhaps"]}, {}, "classes does not list"),
        ({}, {"silos": 0}, "at least 1"),
        ({}, {"silos": "clinic"}, "which X does not have"),
        ({}, {"silos": [1, 2]}, "one label a row"),
        ({}, {"groups": [1, 2]}, "one label a row"),
    ],
)
def test_bad_input_is_one_line_and_a_value_error(
    changes: dict[str, Any], asked: dict[str, Any], words: str
) -> None:
    x, y = rows(60)
    with pytest.raises(ValueError, match=words) as caught:
        sumus.Classifier(**({"bounds": BOUNDS, "random_state": 0} | changes)).fit(x, y, **asked)
    assert isinstance(caught.value, sumus.SumusError)
    assert "\n" not in str(caught.value)
    assert not Path("runs").exists()


def test_fewer_labels_than_rows_are_refused_also_where_a_frame_is_in_chunks() -> None:
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    x, y = rows(60)
    frame = pandas.DataFrame(x).astype(pandas.ArrowDtype(arrow.float64()))
    pieces = pandas.concat([frame.iloc[:20], frame.iloc[20:]])
    with pytest.raises(ValueError, match="60"):
        sumus.Classifier(random_state=0).fit(pieces, y[:20])


@pytest.mark.deep
def test_scikit_learn_is_optional() -> None:
    script = """
import sys
sys.modules["sklearn"] = None
import numpy as np, sumus
x = np.random.default_rng(0).normal(size=(300, 2))
model = sumus.Classifier(bounds=(-3, 3), random_state=1)
assert repr(model) == "Classifier(bounds=(-3, 3), random_state=1)", repr(model)
try:
    model.predict(x)
except AttributeError as error:
    assert "not fitted" in str(error)
model.set_params(epsilon=2.0).fit(x, x[:, 0] > 0, silos=3)
assert model.get_params()["epsilon"] == 2.0
print(model.score(x, x[:, 0] > 0))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0.6
