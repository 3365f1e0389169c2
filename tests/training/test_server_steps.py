"""What the server does with sums: rates that fall, means that forget, squares without the noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from sumus.errors import PlanError
from sumus.guarantee import NoiseDesign
from sumus.plan import ResolvedPlan, TrainingPlan, rate_factor
from sumus.training import Server

PLAN = """
[privacy]
delta = 1e-5
[federation]
silos = 4
rounds = 6
local_steps = 1
colluding = 0
[training]
algorithm = "single-step"
sampling_rate = 1.0
divisor = 10.0
dimension = 4000
learning_rate = 0.5
[noise]
noise_multiplier = 3.0
rounding = "record"
[data]
name = "digits"
records_per_silo = [50, 50, 50, 50]
"""
SILOS = ("a", "b", "c", "d")


def design_of(**more: object) -> NoiseDesign:
    wanted = {key.replace("__", "."): value for key, value in more.items()}
    plan = TrainingPlan.from_toml(PLAN).with_overrides(wanted)
    return NoiseDesign.of(ResolvedPlan.of(plan, SILOS))


def server_of(**more: object) -> Server:
    return Server(design_of(**more), np.zeros(4000))


ONES = np.full(4000, 1 << 16, dtype=np.int64)  # one clip norm in every number of the sum
STEP = -0.5 / 10.0 / 4.0  # what it moves the model by


@pytest.mark.parametrize("key", ["training__server_rate_schedule", "training__rate_schedule"])
@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_rates_fall_with_the_rounds(key: str, schedule: str) -> None:
    server, moved = server_of(**{key: schedule}), []
    for number in range(6):
        before = server.parameters.copy()
        server.apply(ONES, 4, number)
        moved.append(float((server.parameters - before).mean()))
    wanted = [STEP * rate_factor(schedule, number, 6) for number in range(6)]
    assert moved == pytest.approx(wanted, rel=1e-4)
    assert moved[0] == pytest.approx(STEP, rel=1e-6)
    assert all(abs(later) < abs(earlier) for earlier, later in pairwise(moved))


def test_an_exponential_mean_forgets_and_a_running_one_does_not() -> None:
    iterates = [STEP * (number + 1) for number in range(6)]
    decay, exponential = 0.75, 0.0
    for number, iterate in enumerate(iterates, start=1):
        exponential += (iterate - exponential) * max(1.0 / number, 1.0 - decay)
    for weight, wanted in ((decay, exponential), (1.0, float(np.mean(iterates)))):
        server = server_of(training__iterate_average=1.0, training__average_decay=weight)
        for number in range(6):
            server.apply(ONES, 4, number)
        assert server.released.mean() == pytest.approx(wanted, rel=1e-5)


def noisy_sums(design: NoiseDesign, rounds: int) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [
        np.rint(
            rng.normal(
                scale=math.sqrt(4.0 * design.in_round(number).share.variance_grid), size=4000
            )
        ).astype(np.int64)
        for number in range(rounds)
    ]


@pytest.mark.parametrize("schedule", [None, [2.0, 1.5, 1.0, 1.0, 0.7, 0.5]])
def test_squares_of_pure_noise_are_none(schedule: list[float] | None) -> None:
    """The mean over 4,000 numbers of v̂, in variances of the noise, is 0 within six standard errors;
    plain squares would have 1.
    """
    design = design_of(training__server_optimizer="adam-bc", noise__schedule=schedule)
    server = Server(design, np.zeros(4000))
    for number, total in enumerate(noisy_sums(design, 6)):
        server.apply(total, 4, number)
    variance = 4.0 * design.in_round(0).share.variance_grid * design.grid.granularity**2
    second = server.state()["second"] / (1.0 - 0.9**6) / (variance * design.update_scale**2)
    assert abs(second.mean()) < 6.0 * math.sqrt(2.0 / 4000)


def test_noise_alone_moves_no_further_than_its_floor_lets_it() -> None:
    """|step| ≤ |m̂|/√(10Φ): about a third of a unit, where adam takes whole units."""
    design = design_of(training__server_optimizer="adam-bc")
    server = Server(design, np.zeros(4000))
    server.apply(noisy_sums(design, 1)[0], 4, 0)
    assert float(np.square(server.parameters).mean()) == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize(
    "more",
    [
        {"training__server_optimizer": "adam-bc", "training__server_momentum": 0.5},
        {"training__average_decay": 0.5, "training__iterate_average": 0.5},
    ],
)
def test_a_checkpoint_holds_all_that_goes_on(more: dict[str, object]) -> None:
    whole, resumed = server_of(**more), server_of(**more)
    sums = noisy_sums(design_of(), 6)
    move: Callable[[Server, int], np.ndarray] = lambda server, number: server.apply(  # noqa: E731
        sums[number], 4, number
    )
    for number in range(3):
        move(whole, number)
    resumed.restore({name: value.copy() for name, value in whole.state().items()})
    for number in range(3, 6):
        move(whole, number)
        move(resumed, number)
    assert np.array_equal(whole.released, resumed.released)


def test_adam_without_noise_is_refused_where_noise_is_unequal() -> None:
    with pytest.raises(PlanError, match="a preconditioner makes unequal"):
        TrainingPlan().with_overrides(
            {
                "training.algorithm": "single-step",
                "training.model": "mlp",
                "training.preconditioner": "kronecker",
                "training.server_optimizer": "adam-bc",
            }
        )
