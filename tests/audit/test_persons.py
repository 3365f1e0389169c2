"""The audit of a plan that protects persons: its canaries are persons, with all their rows.

A correct pipeline fails with probability about 2e-9, as in `test_run`.
"""

from __future__ import annotations

import numpy as np
import pytest

from sumus.audit import RunAudit, audit_membership, audit_run
from sumus.audit.canaries import CanaryRounds
from sumus.audit.real_records import audit_real_records
from sumus.data import Records
from sumus.gradients import Units
from sumus.guarantee import NoiseDesign, calibrated
from sumus.plan import PublicFacts, TrainingPlan
from sumus.randomness import RandomSource
from sumus.tasks import LabelFacts
from sumus.training.local import convex_pass, noisy_steps
from support.repeatable_sources import repeatable_sources
from support.small_data import persons_data

pytestmark = pytest.mark.long


def _design(algorithm: str, weighting: str = "mean", most: int = 5) -> NoiseDesign:
    table: dict[str, object] = {"algorithm": algorithm, "model": "logistic", "dimension": 128}
    if algorithm != "convex-pass":
        table |= {"sampling_rate": 1.0, "divisor": 50.0}
    plan = TrainingPlan.from_table(
        {
            "privacy": {"epsilon": 4.0, "delta": 1e-5, "unit": "person"},
            "federation": {
                "silos": 2,
                "rounds": 2,
                "local_steps": 4 if algorithm == "convex-pass" else 1,
            },
            "training": table,
            "aggregation": {"protocol": "trusted", "modulus_bits": 56},
            "data": {"person_weighting": weighting, "records_per_person": most},
        }
    )
    facts = PublicFacts("audit", ("silo-0", "silo-1"), (200,) * 2, (128,), LabelFacts(("0", "1")))
    return calibrated(plan, facts)


def _audit(built: NoiseDesign) -> RunAudit:
    return audit_run(
        built, None, canaries=48, runs=24, confidence=1.0 - 1e-6, new_source=repeatable_sources()
    )


@pytest.mark.parametrize(
    ("algorithm", "weighting"),
    [("single-step", "mean"), ("split-noise", "sum"), ("convex-pass", "mean")],
)
def test_the_real_pipeline_is_not_contradicted(algorithm: str, weighting: str) -> None:
    audit = _audit(_design(algorithm, weighting))
    assert audit.passed, audit.findings
    assert audit.lower_bound <= audit.epsilon


@pytest.mark.parametrize("weighting", ["mean", "sum"])
@pytest.mark.parametrize("algorithm", ["single-step", "convex-pass"])
def test_canaries_move_the_sum_by_what_is_accounted_for_a_person(
    algorithm: str, weighting: str
) -> None:
    rounds = CanaryRounds(
        _design(algorithm, weighting), 48, view="sum", new_source=repeatable_sources()
    )
    found = [rounds.run() for _ in range(64)]
    scores, included = (
        np.concatenate([each.scores for each in found]),
        np.concatenate([each.included for each in found]),
    )
    assert float(scores[included].mean()) == pytest.approx(rounds.separation, abs=0.18)
    assert float(scores[~included].mean()) == pytest.approx(0.0, abs=0.18)


@pytest.mark.parametrize("algorithm", ["single-step", "convex-pass"])
def test_finds_rows_that_count_as_if_each_was_a_person(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = _design(algorithm)

    def by_row(plan: TrainingPlan, records: Records) -> Units:
        return Units.single(len(records))

    for module in (convex_pass, noisy_steps):
        monkeypatch.setattr(module, "units_of", by_row)
    assert not _audit(built).passed


def test_real_persons_are_canaries_with_all_their_rows() -> None:
    data = persons_data(persons=60)
    plan = TrainingPlan().with_overrides(
        {
            "privacy.unit": "person",
            "data.records_per_person": 4,
            "training.algorithm": "single-step",
            "training.sampling_rate": 1.0,
            "federation.rounds": 2,
            "aggregation.protocol": "trusted",
        }
    )
    design = calibrated(plan, data.facts())
    views = audit_real_records(
        design, data, canaries=1000, confidence=0.99, source=RandomSource.simulation(1)
    )
    for view in views:
        assert view.canaries == data.silos[0].train.units // 2
        assert view.lower_bound <= 1.0


def test_membership_is_that_of_persons() -> None:
    data = persons_data(persons=30)
    plan = TrainingPlan().with_overrides(
        {
            "privacy.unit": "person",
            "data.records_per_person": 4,
            "training.algorithm": "single-step",
            "training.sampling_rate": 1.0,
            "federation.rounds": 1,
            "aggregation.protocol": "trusted",
        }
    )
    design = calibrated(plan, data.facts())
    found = audit_membership(design, data, None, shadows=2, source=RandomSource.simulation(2))
    assert found.members == sum(silo.train.units for silo in data.silos)
    assert found.others == sum(silo.test.units for silo in data.silos)
    assert len(found.curves) == 2
