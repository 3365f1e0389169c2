"""Batches, bins and coins of a plan: silent on ours, loud on samplers that are wrong in one way
each.

A correct sampler fails one of its some twenty checks with probability 2e-8; a planted error is
missed with probability below 1e-10.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sumus.audit import audit_samplers, described, plan_samplers
from sumus.errors import GuaranteeError
from sumus.guarantee import NoiseDesign, calibrated
from sumus.noise import PoissonBinomial
from sumus.plan import PublicFacts, TrainingPlan
from sumus.randomness import RandomSource
from sumus.tasks import LabelFacts

DRAWS = 200_000


def _design(algorithm: str, **changes: dict[str, object]) -> NoiseDesign:
    table: dict[str, dict[str, object]] = {
        "privacy": {"epsilon": 2.0, "delta": 1e-5},
        "federation": {
            "silos": 3,
            "rounds": 2,
            "local_steps": 40 if algorithm == "convex-pass" else 2,
        },
        "training": {"algorithm": algorithm, "model": "logistic", "dimension": 8},
    }
    if algorithm != "convex-pass":
        table["training"] |= {"sampling_rate": 0.1}
    for section, values in changes.items():
        table[section] = table.get(section, {}) | values
    facts = PublicFacts("samplers", ("a", "b", "c"), (100,) * 3, (8,), LabelFacts(("0", "1")))
    return calibrated(TrainingPlan.from_table(table), facts)


def _coins() -> NoiseDesign:
    return _design(
        "silo",
        privacy={"unit": "silo", "accountant": "renyi"},
        noise={"mechanism": "poisson-binomial"},
    )


def _failing(built: NoiseDesign) -> set[str]:
    return {check.check for check in audit_samplers(built, draws=DRAWS).checks if not check.passed}


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: _design("convex-pass"), {"variance", "sum", "bins"}),
        (lambda: _design("split-noise"), {"variance", "sum", "rate", "runs"}),
        (_coins, {"coins", "rate", "runs"}),
    ],
)
def test_every_sampler_of_a_plan_is_checked_and_passes(
    make: Callable[[], NoiseDesign], expected: set[str]
) -> None:
    audit = audit_samplers(make(), draws=DRAWS)
    assert audit.passed, [check for check in audit.checks if not check.passed]
    assert expected <= {check.check for check in audit.checks}


def test_finds_records_that_join_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    real = plan_samplers.poisson_batch
    monkeypatch.setattr(
        plan_samplers,
        "poisson_batch",
        lambda records, rate, source: real(records, 1.1 * rate, source),
    )
    assert _failing(_design("split-noise")) == {"rate"}


def test_finds_records_that_join_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    def pairs(records: int, rate: float, source: RandomSource) -> np.ndarray:
        return np.flatnonzero(np.repeat(source.coins(rate, records // 2), 2))

    monkeypatch.setattr(plan_samplers, "poisson_batch", pairs)
    assert "runs" in _failing(_design("split-noise"))


def test_finds_a_bin_that_is_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    real = RandomSource.below
    monkeypatch.setattr(
        RandomSource, "below", lambda self, bound, count: real(self, bound - 1, count)
    )
    assert _failing(_design("convex-pass")) == {"bins"}


def test_finds_coins_that_lean_too_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """By half of the largest lean, 0.018: χ² of 16 degrees of freedom, off centre by 490, where 76
    are noticed.
    """
    real = PoissonBinomial.encode
    monkeypatch.setattr(
        PoissonBinomial,
        "encode",
        lambda self, update, source: real(self, update + 0.5 * self.coordinate_clip, source),
    )
    assert _failing(_coins()) == {"coins"}


def test_the_laws_are_named() -> None:
    share, state = described(_design("split-noise"))
    assert share.startswith("noise share: Skellam, standard deviation")
    assert state.startswith("state noise: Skellam")
    assert described(_coins())[0].startswith("coins: 32 per coordinate")


def test_a_plan_without_noise_is_refused() -> None:
    with pytest.raises(GuaranteeError, match="no noise"):
        audit_samplers(_design("fedavg"))
