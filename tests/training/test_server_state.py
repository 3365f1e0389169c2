"""What the server remembers of its rounds: all that later ones depend on, and no more."""

from __future__ import annotations

import numpy as np
import pytest

from sumus.errors import StorageError
from sumus.guarantee import NoiseDesign, calibrated
from sumus.plan import TrainingPlan
from sumus.training import Server

PLAN = """
[privacy]
# ε follows from the noise
delta = 1e-4
[federation]
silos = 3
rounds = 4
[training]
algorithm = "single-step"
model = "softmax"
sampling_rate = 0.1
server_momentum = {momentum}
server_optimizer = "{optimizer}"
iterate_average = {average}
[noise]
noise_multiplier = 1.0
[data]
name = "digits"
[evaluation]
metrics = "none"
"""
KINDS = {
    "plain": ((0.0, "sgd", 0.0), set()),
    "momentum": ((0.5, "sgd", 0.0), {"first"}),
    "averaged": ((0.0, "sgd", 0.5), {"mean"}),
    "adam": ((0.0, "adam", 0.0), {"second"}),
    "everything": ((0.5, "yogi", 0.5), {"first", "second", "mean"}),
}


def design(momentum: float, optimizer: str, average: float) -> NoiseDesign:
    text = PLAN.format(momentum=momentum, optimizer=optimizer, average=average)
    return calibrated(TrainingPlan.from_toml(text))


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_goes_on_from_its_state_bit_for_bit(kind) -> None:
    (momentum, optimizer, average), kept = KINDS[kind]
    made = design(momentum, optimizer, average)
    rng = np.random.default_rng(5)
    first = rng.normal(size=made.resolved.dimension)
    sums = rng.integers(-9999, 9999, size=(4, made.resolved.coordinates))
    through, interrupted = Server(made, first), Server(made, first)
    for total in sums[:2]:
        through.apply(total, survivors=3)
        interrupted.apply(total, survivors=3)
    state = interrupted.state()
    assert set(state) == {"iterate", "rounds"} | kept
    assert state["iterate"].dtype == np.float32  # what silos receive: four bytes a parameter
    resumed = Server(made, np.zeros_like(first))
    resumed.restore({name: values.copy() for name, values in state.items()})
    for total in sums[2:]:
        assert np.array_equal(through.apply(total, survivors=3), resumed.apply(total, survivors=3))
    assert np.array_equal(through.parameters, resumed.parameters)
    assert np.array_equal(through.released, resumed.released)


def test_a_state_that_lacks_what_the_plan_depends_on_is_refused() -> None:
    made = design(0.5, "sgd", 0.0)
    server = Server(made, np.zeros(made.resolved.dimension))
    state = {name: values for name, values in server.state().items() if name != "first"}
    with pytest.raises(StorageError, match="first"):
        server.restore(state)
