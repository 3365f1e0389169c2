"""Membership inference: the ROC against a slow count, the score where the answer is known, and an
overfitted model found out.
"""

from __future__ import annotations

import numpy as np
import pytest

from sumus.audit import audit_membership, released_of
from sumus.audit.membership import _scores, roc
from sumus.data import from_arrays
from sumus.errors import DataError
from sumus.guarantee import calibrated
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource


def test_the_roc_counts_every_threshold() -> None:
    scores = np.array([3.0, 1.0, 2.0, 2.0, 0.0])
    member = np.array([True, False, True, False, False])
    false_rates, true_rates = roc(scores, member)
    for threshold in (3.0, 2.0, 1.0, 0.0):
        said = scores >= threshold
        point = ((said & ~member).sum() / 3, (said & member).sum() / 2)
        assert any(np.allclose(point, found) for found in zip(false_rates, true_rates, strict=True))
    assert (false_rates[0], true_rates[0], false_rates[-1], true_rates[-1]) == (0.0, 0.0, 1.0, 1.0)


def test_the_score_is_the_log_likelihood_ratio_of_two_normals() -> None:
    held = np.array([[True], [True], [False], [False]])
    shadows = np.array([[2.0], [4.0], [-1.0], [1.0]])  # means 3 and 0, common variance 1
    assert _scores(np.array([3.0]), shadows, held)[0] == pytest.approx((3.0**2 - 0.0) / 2.0)
    assert _scores(np.array([3.0]), shadows, np.ones((4, 1), dtype=np.bool_))[0] == 0.0


def _memorising() -> tuple[TrainingPlan, object]:
    """More features than records: without privacy a linear model learns the random labels by
    heart.
    """
    generator = np.random.default_rng(0)
    silos = [(generator.normal(size=(40, 60)), generator.integers(0, 2, 40)) for _ in range(2)]
    plan = TrainingPlan.from_toml(
        "[privacy]\nepsilon=1.0\ndelta=1e-3\n[federation]\nsilos=2\nrounds=20\nlocal_steps=16\n[training]\nlearning_rate=1.0\n"
    )
    halves = [[(x[half], y[half]) for x, y in silos] for half in (slice(0, 20), slice(20, 40))]
    return plan, from_arrays(halves[0], tests=halves[1])


def test_a_model_that_learned_by_heart_is_found_out_and_a_private_one_is_not() -> None:
    plan, data = _memorising()
    built = calibrated(plan, data.facts())
    audit = audit_membership(built, data, None, shadows=6, source=RandomSource.simulation(2))
    private, plain = audit.curves
    assert plain.area > 0.8
    assert abs(private.area - 0.5) < 0.3  # 40 members and 40 others: five standard errors
    assert private.area < plain.area
    assert (audit.members, audit.others) == (40, 40)
    assert set(audit.as_json()["attacks"][0]["true_rate_at_false_rate"]) == {"0.001", "0.01", "0.1"}


def test_one_shadow_is_refused() -> None:
    plan, data = _memorising()
    built = calibrated(plan, data.facts())
    with pytest.raises(DataError, match="at least 2"):
        audit_membership(built, data, None, shadows=1)


def test_the_released_model_of_a_checkpoint() -> None:
    arrays = {"iterate": np.array([1.0, 3.0]), "mean": np.array([2.0, 2.0])}
    assert released_of(arrays, 0.5).tolist() == [1.5, 2.5]
    with pytest.raises(DataError, match="mean"):
        released_of({"iterate": np.zeros(2)}, 0.5)
    # a plan that does not ask for the mean keeps none
    assert released_of({"iterate": np.ones(2, np.float32)}, 0.0).tolist() == [1.0, 1.0]
