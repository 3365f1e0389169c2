"""Secure metrics: one test record moves the counts by at most what is accounted, whatever the others are."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sumus.data.silos import Records
from sumus.errors import PlanError
from sumus.mechanism.noise import Skellam
from sumus.randomness import RandomSource
from sumus.secure_counts import METRIC_COORDINATES
from sumus.training.evaluation import SecureMetrics, _per_record, evaluate
from sumus.training.federation import Federation
from sumus.training.models import build_model

FEATURES, CLASSES = 6, 3


def _records(count: int, seed: int, scale: float) -> Records:
    generator = np.random.default_rng(seed)
    return Records((scale * generator.normal(size=(count, FEATURES))).astype(np.float32), generator.integers(0, CLASSES, count))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 150), st.integers(0, 1000), st.sampled_from([1e-3, 1.0, 1e4]), st.data())
def test_a_removed_record_changes_no_other_records_result(count: int, seed: int, scale: float, data: st.DataObject) -> None:
    model = build_model("mlp", shape=(FEATURES,), classes=CLASSES, hidden=(5,))
    records, gone = _records(count, seed, scale), data.draw(st.integers(0, count - 1))
    parameters = np.random.default_rng(seed).normal(size=sum(p.numel() for p in model.parameters()))
    kept = np.delete(np.arange(count), gone)
    correct, losses = _per_record(model, parameters, records)
    if len(kept):
        again = _per_record(model, parameters, Records(records.x[kept], records.y[kept]))
        assert np.array_equal(correct[kept], again[0])
        assert np.array_equal(losses[kept], again[1])
    plain = evaluate(model, parameters, records)
    assert plain.accuracy == pytest.approx(correct.mean(), abs=2.0 / count)
    assert plain.loss == pytest.approx(losses.mean(), rel=1e-4)


def test_one_record_moves_the_counts_by_at_most_the_accounted_length(federation: Callable[..., Federation], monkeypatch) -> None:
    monkeypatch.setattr(Skellam, "sample", lambda self, size, source: np.zeros(size, dtype=np.int64))
    run = federation({"evaluation.metrics": "secure"})
    metrics, parameters = SecureMetrics(run.design), run.server.parameters + 0.3
    records = _records(40, 1, 3.0)
    whole = metrics.encode(run.bench.model, parameters, records, RandomSource())
    assert whole[1] == 40 * 256
    for gone in range(40):
        kept = np.delete(np.arange(40), gone)
        part = metrics.encode(run.bench.model, parameters, Records(records.x[kept], records.y[kept]), RandomSource())
        assert np.linalg.norm(whole - part) <= math.sqrt(METRIC_COORDINATES) * 256


def test_counts_of_single_records_are_no_guarantee_for_a_silo(federation: Callable[..., Federation]) -> None:
    with pytest.raises(PlanError, match=r"evaluation\.metrics"):
        federation({"evaluation.metrics": "secure", "training.algorithm": "silo", "privacy.unit": "silo"})
