"""For every shipped plan: the noise in the released sum, through the whole pipeline, has the
variance that the account rests on.

All silos are given no records, so what the server decodes is noise and nothing else (an empty batch
adds its noise as always). Measured: the ratio of its variance to the plan's (σ·r)²·Σ w² · N/k.
False alarm below 1e-9 per plan: seven standard errors, since a variance of some thousand draws has
the heavier upper tail of χ².
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from sumus.data import Records, public_facts
from sumus.errors import DataError
from sumus.guarantee import NoiseDesign, calibrated
from sumus.parties import Invited
from sumus.plan import TrainingPlan, feature_shape
from sumus.training import local_updater
from sumus.training.models import build_model
from support.small_federation import sums_in_process

PLANS = sorted((Path(__file__).parents[2] / "plans").glob("*.toml"))
STANDARD_ERRORS = 7.0


def _resolved(path: Path) -> tuple[NoiseDesign, tuple[int, ...], int]:
    plan = TrainingPlan.load(path)
    try:
        facts = public_facts(plan)
    except DataError as error:
        pytest.skip(f"{path.name}: {error}")
    return calibrated(plan, facts), facts.shape, len(facts.labels.names)


def _noise(built: NoiseDesign, shape: tuple[int, ...], classes: int, rounds: int) -> np.ndarray:
    """Released sums over silos that hold no record, through real secure aggregation."""
    training = built.plan.training
    behind = feature_shape(training.features, shape)
    length, width = built.resolved.coordinates, math.prod(behind)
    if built.resolved.rules.sums == "curvature":  # components of the features, bias included
        width = built.resolved.moments.features - 1
    if built.resolved.rules.bounded_records:  # a bias feature comes with them
        nothing = Records(np.zeros((0, width + 1), dtype=np.float32), np.zeros(0, dtype=np.int64))
        model = build_model("softmax", shape=(2,), outputs=2)
        if built.resolved.rules.sums == "curvature":
            model = build_model("softmax", shape=(width + 1,), outputs=classes, bias=False)
    else:
        nothing = Records(np.zeros((0, *behind), dtype=np.float32), np.zeros(0, dtype=np.int64))
        model = build_model(training.model, shape=behind, outputs=classes, hidden=training.hidden)
        trained = tuple((training.tangent_layers or "").split(","))
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith(trained))
    updaters = [local_updater(built, silo, nothing, model) for silo in built.silos]
    sums = sums_in_process(built, updaters, rounds=rounds)
    everybody, zeros = Invited(frozenset(range(len(updaters)))), np.zeros(built.resolved.dimension)
    return np.concatenate(
        [sums.sum(number, everybody, zeros).total_grid[:length] for number in range(rounds)]
    ).astype(np.float64)


@pytest.mark.parametrize("path", PLANS, ids=[path.stem for path in PLANS])
def test_the_released_noise_has_the_accounted_variance(path: Path) -> None:
    built, shape, classes = _resolved(path)
    if built.plan.noise.mechanism == "gaussian" or built.plan.training.algorithm == "fedavg":
        pytest.skip(f"{path.name} draws no integer noise")
    weights2 = sum(weight**2 for weight in built.step_weights[: built.queries_per_round])
    sigma_grid = (built.plan.noise.noise_multiplier or 0.0) * built.grid.resolution
    present = (
        1.0 if built.plan.noise.removable else len(built.silos) / built.plan.noise_contributors
    )
    accounted = sigma_grid**2 * weights2 * present
    noise = _noise(built, shape, classes, max(1, 2000 // built.resolved.coordinates))
    ratio = float(np.square(noise).mean()) / accounted
    assert abs(ratio - 1.0) < STANDARD_ERRORS * math.sqrt(2.0 / len(noise)), ratio
    assert abs(float(noise.mean())) < STANDARD_ERRORS * math.sqrt(accounted / len(noise))


def test_the_shipped_plans_are_found() -> None:
    assert PLANS
