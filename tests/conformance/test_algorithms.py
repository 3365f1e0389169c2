"""Every registered algorithm, tested by being there: rules, design, account, noise, local update."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest
import torch

from sumus.data import Records, load
from sumus.errors import PlanError
from sumus.guarantee import (
    ALGORITHMS,
    STATEMENTS,
    NoiseDesign,
    account_of,
    calibrated,
    certify,
    compare,
)
from sumus.guarantee.algorithms import algorithm_of
from sumus.plan import RULES, TrainingPlan
from sumus.plan.sections import SECTIONS, SiloPlan
from sumus.randomness import RandomSource
from sumus.training import local_updater, prepare
from sumus.training.local import UPDATERS

PUBLIC = {
    "data.name": "digits",
    "federation.rounds": 2,
    "privacy.epsilon": 4.0,
    "evaluation.metrics": "none",
}


def plan_of(algorithm: str) -> TrainingPlan:
    """A small plan of any algorithm, from nothing but its rules."""
    rules = RULES[algorithm]
    values = PUBLIC | {"training.algorithm": algorithm}
    if rules.steps in ("one", "several"):
        values["training.sampling_rate"] = 0.2
    if rules.steps == "none":
        values["federation.rounds"] = 1
    if rules.sums == "cells":
        values |= {"data.test_fraction": 0.0, "aggregation.modulus_bits": 48}
    if rules.steps == "several":
        values["federation.local_steps"] = 2
    if rules.protects == "silo":
        values |= {"privacy.unit": "silo", "privacy.delta": 1e-3}
    return TrainingPlan().with_overrides(values)


def test_the_three_lists_have_the_same_names() -> None:
    assert list(RULES) == list(ALGORITHMS)
    assert set(RULES) == set(UPDATERS)
    for name, algorithm in ALGORITHMS.items():
        assert algorithm.rules is RULES[name]


def test_registries_are_read_only() -> None:
    for registry in (RULES, ALGORITHMS, UPDATERS, STATEMENTS):
        with pytest.raises(TypeError):
            registry["dp-sgd"] = None  # type: ignore[index]


def test_an_unknown_name_is_answered_with_the_closest_one() -> None:
    with pytest.raises(PlanError, match=r"Did you mean split-noise\?"):
        algorithm_of("split-nose")


@pytest.mark.parametrize("name", RULES)
def test_rules_name_keys_of_the_plan(name: str) -> None:
    tables = {**SECTIONS, "silo": SiloPlan}
    keys = {f"{title}.{item.name}" for title, table in tables.items() for item in fields(table)}
    assert RULES[name].keys <= keys
    assert set(RULES[name].refuses) <= keys


@pytest.mark.parametrize("name", RULES)
def test_a_refused_key_is_refused(name: str) -> None:
    given = {
        "training.l2_penalty": 0.1,
        "training.local_momentum": 0.5,
        "training.learning_rates": (0.1, 0.2),
        "noise.rounding": "record",
        "federation.local_steps": 3,
        "silo.local_steps": 3,
        "silo.std_factor": 2.0,
        "silo.learning_rate": 0.3,
        "federation.rounds": 3,
        "training.sampling_rate": 0.5,
        "training.batch_size": 8.0,
        "training.divisor": 3.0,
        "training.learning_rate": 0.3,
        "training.server_learning_rate": 0.3,
        "training.server_rate_schedule": "cosine",
        "training.server_momentum": 0.3,
        "training.server_optimizer": "adam",
        "training.iterate_average": 0.3,
        "training.average_decay": 0.9,
        "training.start_from": f"sha256:{'0' * 64}",
    }
    if RULES[name].sums == "cells":
        given["evaluation.metrics"] = "secure"
    # the other way round for what must be rounded record by record
    given["noise.rounding"] = "sum" if RULES[name].rounding == "record" else "record"
    for key in RULES[name].refuses:
        section, _, short = key.partition(".")
        dotted = f"silo.silo-0.{short}" if section == "silo" else key
        with pytest.raises(PlanError, match=dotted):
            plan_of(name).with_overrides({dotted: given[key]})


@pytest.mark.parametrize("name", RULES)
def test_a_plan_becomes_a_design(name: str) -> None:
    design = calibrated(plan_of(name))
    assert design.algorithm is ALGORITHMS[name]
    assert len(design.silos) == len(design.resolved.silos) == design.resolved.invited
    assert math.isfinite(design.update_scale)
    assert design.update_scale != 0.0
    assert len(design.step_weights) >= design.queries_per_round
    assert all(silo.l2_grid > 0.0 for silo in design.silos)
    assert TrainingPlan.from_toml(design.plan.to_toml()).hash == design.plan.hash


@pytest.mark.parametrize("name", [name for name, rules in RULES.items() if rules.private])
def test_what_protects_something_has_a_finite_proved_account(name: str) -> None:
    design = calibrated(plan_of(name))
    account = certify(design)
    assert account.proved
    assert 0.99 * 4.0 < account.epsilon <= 4.0
    names = [claim.name for claim in design.algorithm.claims(design.setting(design.silos[0]))]
    assert [analysis.name for analysis in account.analyses] == names
    assert set(names) <= {statement.name for statement in design.algorithm.statements}
    assert account.analysis in STATEMENTS


@pytest.mark.parametrize("name", [name for name, rules in RULES.items() if not rules.private])
def test_what_protects_nothing_claims_nothing(name: str) -> None:
    design = calibrated(plan_of(name))
    assert design.algorithm.statements == ()
    with pytest.raises(Exception, match="adds no noise"):
        account_of(design)


@pytest.mark.parametrize("name", [name for name, rules in RULES.items() if rules.private])
def test_the_noise_that_is_drawn_is_the_noise_that_is_accounted(name: str) -> None:
    design = calibrated(plan_of(name))
    for silo in design.silos:
        setting = design.setting(silo)
        assert setting.own == design.drawn_by(silo)
        assert setting.share == design.share
        assert setting.total == design.share.sum_of(design.resolved.contributors)


@pytest.mark.parametrize("name", RULES)
def test_a_local_update_fits_the_sum(name: str) -> None:
    plan = plan_of(name)
    design, data = calibrated(plan), load(plan)
    bench = prepare(design.plan, data)
    update = _update(name, design, bench)
    assert update.shape == (design.resolved.coordinates,)
    assert update.dtype == np.int64
    assert np.any(update != 0)


@pytest.mark.parametrize("name", [name for name, rules in RULES.items() if rules.private])
def test_a_silo_without_records_sends_noise_all_the_same(name: str) -> None:
    plan = plan_of(name)
    design, data = calibrated(plan), load(plan)
    bench = prepare(design.plan, data)
    noise = _update(name, design, bench, records=0)
    weights = design.step_weights[: design.queries_per_round]
    declared = math.sqrt(design.share.variance_grid * sum(weight**2 for weight in weights))
    # of so many draws the standard deviation errs by 1/√(2d), so this fails below once in 10^9
    assert abs(float(noise.std()) / declared - 1.0) < 6.5 / math.sqrt(2.0 * len(noise))


def _update(
    name: str, design: NoiseDesign, bench: object, *, records: int | None = None
) -> np.ndarray:
    torch.manual_seed(0)
    train = bench.data.silos[0].train  # type: ignore[attr-defined]
    kept = Records(train.x[:records], train.y[:records])
    updater = local_updater(design, design.silos[0], kept, bench.model)  # type: ignore[attr-defined]
    assert isinstance(updater, UPDATERS[name])
    source = RandomSource.simulation(1, name)
    return updater(bench.first_parameters, source).vector  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", RULES)
def test_algorithms_are_compared_where_there_is_something_to_compare(name: str) -> None:
    """`sumus plan` has a word for every plan, also for one that does its work without steps."""
    if not RULES[name].private:
        return
    comparison = compare(calibrated(plan_of(name)))
    if RULES[name].protects != "records" or RULES[name].steps == "none":
        assert comparison is None
    else:  # one of the algorithms that are compared, or a new one
        assert comparison is None or comparison.own in comparison.settings
