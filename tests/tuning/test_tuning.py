"""The search: spaces are checked, test records are never touched, a search goes on where it
stopped; accounting draws its law.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from sumus.books import Ledger
from sumus.data import FederatedData, Records, load, write_patients
from sumus.data.synthetic import HOSPITALS
from sumus.errors import GuaranteeError, PlanError
from sumus.plan import RULES, TrainingPlan
from sumus.randomness import RandomSource
from sumus.tuning import SearchSpace, accounted as accounted, default_space, search as tuning

PLAN = TrainingPlan.from_toml(
    """
    [privacy]
    epsilon = 1.0
    delta = 1e-4
    [federation]
    silos = 5
    rounds = 2
    local_steps = 40
    [data]
    name = "digits"
    """
)
SPACE = SearchSpace.from_table(
    {"training": {"learning_rate": {"low": 0.1, "high": 1.0, "log": True}}}
)


def options(out: Path, **changes: object) -> tuning.TuneOptions:
    return replace(tuning.TuneOptions(out=out, runs=3), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", [name for name in RULES if RULES[name].steps != "none"])
def test_every_algorithm_has_a_default_space_of_plan_keys(algorithm: str) -> None:
    unit = "silo" if algorithm == "silo" else "record"
    plan = PLAN.replace("federation", local_steps=None).with_overrides(
        {"training.algorithm": algorithm, "privacy.unit": unit}
    )
    drawn = default_space(plan).draw(RandomSource.simulation(0))
    assert plan.with_overrides(drawn).training.learning_rate == drawn["training.learning_rate"]


@pytest.mark.parametrize("algorithm", [name for name in RULES if RULES[name].steps == "none"])
def test_what_takes_no_steps_has_nothing_to_search(algorithm: str) -> None:
    plan = TrainingPlan().with_overrides(
        {"training.algorithm": algorithm, "federation.rounds": 1, "data.test_fraction": 0.0}
    )
    with pytest.raises(PlanError, match=f"training.algorithm .*{algorithm}"):
        default_space(plan)


@pytest.mark.parametrize(
    ("table", "rule"),
    [
        ({"training": {"unknown": {"low": 0, "high": 1}}}, "is not a key of the plan"),
        ({"training": {"learning_rate": {"low": 1.0}}}, "must have numbers low and high"),
        ({"training": {"learning_rate": {"low": 2.0, "high": 1.0}}}, "low < high"),
        ({"training": {"learning_rate": {"low": 0.0, "high": 1.0, "log": True}}}, "low above 0"),
        ({"training": {"learning_rate": {"choices": []}}}, "list of choices"),
        ({"training": {"learning_rate": {"choices": [1.0], "low": 2.0}}}, "nothing else"),
        ({"training": 3}, "must be a table"),
        ({}, "at least one key"),
    ],
)
def test_a_wrong_space_is_one_line(table: dict[str, object], rule: str) -> None:
    with pytest.raises(PlanError, match=rule):
        SearchSpace.from_table(table)


def test_drawn_values_stay_within_their_bounds() -> None:
    space = SearchSpace.from_table(
        {
            "federation": {"rounds": {"low": 2, "high": 5}},
            "training": {"learning_rate": {"low": 0.1, "high": 1.0, "log": True}},
        }
    )
    source = RandomSource.simulation(1)
    drawn = [space.draw(source) for _ in range(200)]
    assert {each["federation.rounds"] for each in drawn} == {2, 3, 4, 5}
    assert all(0.1 <= each["training.learning_rate"] <= 1.0 for each in drawn)


def _poisoned(plan: TrainingPlan) -> FederatedData:
    """The same data with test records that crash or spoil whatever looks at them."""
    data = load(plan)
    silos = tuple(
        replace(
            silo, test=Records(np.full_like(silo.test.x, np.nan), np.full_like(silo.test.y, 10_000))
        )
        for silo in data.silos
    )
    return replace(data, silos=silos)


def test_the_search_wants_a_test_record_and_never_gets_one(tmp_path: Path) -> None:
    clean = tuning.tune(PLAN, SPACE, options(tmp_path / "clean"))
    with mock.patch.object(tuning, "load", _poisoned):
        poisoned = tuning.tune(PLAN, SPACE, options(tmp_path / "poisoned"))
    assert [each.value for each in clean.study.trials] == [
        each.value for each in poisoned.study.trials
    ]
    assert clean.values == poisoned.values


def test_runs_train_on_seventy_per_cent_of_the_training_records() -> None:
    plan = tuning.tuning_plan(PLAN)
    whole, split = load(PLAN), tuning.without_test_records(load(plan))
    for silo, part in zip(whole.silos, split.silos, strict=True):
        assert len(part.train) + len(part.validation) == len(silo.train)
        assert len(part.validation) == round(0.3 * len(silo.train))
        assert part.test is part.validation


def test_a_search_on_own_rows_keeps_the_test_rows_of_the_plan(tmp_path: Path) -> None:
    path = write_patients(tmp_path / "patients.csv", records=300)
    entries = {
        "path": str(path),
        "silo_column": "hospital",
        "label_column": "readmitted",
        "records_per_silo": [300] * len(HOSPITALS),
    }
    plan = TrainingPlan.from_table({"data": entries, "privacy": {"epsilon": 1.0}})
    for searched, final in zip(load(tuning.tuning_plan(plan)).silos, load(plan).silos, strict=True):
        assert np.array_equal(searched.test.x, final.test.x)
        assert len(searched.train) + len(searched.validation) == len(final.train)


def test_the_best_plan_is_for_all_training_records(tmp_path: Path) -> None:
    found = tuning.tune(PLAN, SPACE, options(tmp_path))
    assert found.plan.data.validation_fraction == 0.0
    assert found.plan.training.learning_rate == found.values["training.learning_rate"]
    assert found.plan.replace("training", learning_rate=PLAN.training.learning_rate) == PLAN


def test_an_interrupted_search_goes_on(tmp_path: Path) -> None:
    tuning.tune(PLAN, SPACE, options(tmp_path, runs=1))
    seen: list[int] = []
    found = tuning.tune(
        PLAN, SPACE, options(tmp_path, runs=3), progress=lambda number, score: seen.append(number)
    )
    assert seen == [2, 3]
    assert len(found.study.trials) == 3


def test_an_impossible_corner_of_the_space_is_a_bad_run_and_not_the_end(tmp_path: Path) -> None:
    space = SearchSpace.from_table({"aggregation": {"modulus_bits": {"choices": [16, 32]}}})
    found = tuning.tune(PLAN, space, options(tmp_path, runs=4, sampler="random", seed=1))
    assert found.values == {"aggregation.modulus_bits": 32}
    assert found.pruned + found.finished == 4


def test_the_gaussian_process_sampler_and_an_unknown_one(tmp_path: Path) -> None:
    assert (
        tuning.tune(PLAN, SPACE, options(tmp_path, runs=2, sampler="gp", objective="loss")).finished
        == 2
    )
    with pytest.raises(PlanError, match="must be one of tpe"):
        options(tmp_path, sampler="grid")


def test_the_number_of_runs_follows_its_law() -> None:
    """20,000 draws of a geometric law with mean 4: mean within 0.2 and P[K = 1] within 0.025 (both
    beyond 8 standard errors).
    """
    source = RandomSource()
    drawn = np.array([accounted.draw_run_count(4.0, source) for _ in range(20_000)])
    assert drawn.min() == 1
    assert abs(drawn.mean() - 4.0) < 0.2
    assert abs((drawn == 1).mean() - 0.25) < 0.025
    assert accounted.draw_run_count(1.0, source) == 1


def test_a_predictable_number_of_runs_is_refused() -> None:
    with pytest.raises(GuaranteeError, match="secret randomness"):
        accounted.draw_run_count(4.0, RandomSource.simulation(0))


def test_accounted_tuning_pays_for_the_search(tmp_path: Path) -> None:
    ledger = Ledger.of_dataset("digits", state=tmp_path)
    with mock.patch.object(accounted, "draw_run_count", return_value=2) as drawn:
        found = accounted.accounted_tuning(
            PLAN, SPACE, expected_runs=4.0, candidates=3, ledger=ledger
        )
    assert drawn.call_args.args[0] == 4.0
    assert drawn.call_args.args[1].secure
    assert found.account.tuning_epsilon is not None
    assert found.account.tuning_epsilon > found.account.epsilon
    assert found.epsilon >= max(found.account.tuning_epsilon, found.validation_epsilon)
    assert math.isfinite(found.epsilon)
    (entry,) = ledger.entries()  # one entry, whatever the number of runs, which is secret
    assert (entry.epsilon, entry.delta, entry.proved) == (found.epsilon, PLAN.privacy.delta, True)
    assert 0.0 <= found.score <= 1.0


def test_a_search_of_one_run_is_charged_as_one_run(tmp_path: Path) -> None:
    ledger = Ledger.of_dataset("digits", state=tmp_path)
    found = accounted.accounted_tuning(PLAN, SPACE, expected_runs=1.0, candidates=3, ledger=ledger)
    assert found.account.tuning_epsilon == found.account.epsilon <= (PLAN.privacy.epsilon or 0.0)
    assert found.validation_epsilon == found.account.metrics_epsilon
    (entry,) = ledger.entries()
    assert entry.epsilon == found.epsilon == max(found.account.epsilon, found.validation_epsilon)


def test_accounted_candidates_must_release_alike() -> None:
    space = SearchSpace.from_table({"federation": {"rounds": {"choices": [1, 2]}}})
    with pytest.raises(PlanError, match="must leave privacy, rounds"):
        accounted.accounted_tuning(PLAN, space, expected_runs=2.0, candidates=8)
