"""The numbers of the paper: table 1 to two decimals, and the noise multipliers of its
experiments.
"""

from __future__ import annotations

import pytest

import sumus

# steps: (parties, σ_total, ε of the average), paper.tex, table 1
TABLE_1 = {
    1: [(1, 0.69, 5.0), (2, 0.98, 2.78), (5, 1.54, 1.22), (10, 2.18, 0.64)],
    10: [(1, 0.90, 5.0), (2, 1.28, 2.61), (5, 2.02, 1.19), (10, 2.85, 0.72)],
    50: [(1, 1.18, 5.0), (2, 1.67, 2.85), (5, 2.64, 1.55), (10, 3.73, 1.03)],
}


@pytest.mark.parametrize("steps", TABLE_1)
def test_table_1(steps: int) -> None:
    rows = sumus.average(
        local_epsilon=5.0,
        delta=1e-5,
        sampling_rate=0.1,
        steps=steps,
        parties=[1, 2, 5, 10],
        accountant="renyi-mironov",
    )
    found = [(row.parties, round(row.noise_multiplier, 2), round(row.epsilon, 2)) for row in rows]
    assert found == TABLE_1[steps]
    assert [row.proved for row in rows] == [steps == 1 or row.parties == 1 for row in rows]
    assert all(row.proved_epsilon <= 5.0 for row in rows)


@pytest.mark.parametrize(
    ("sampling_rate", "steps", "multiplier"),
    [(512 / 5600, 220, 6.8221), (128 / 5600, 20, 1.3682), (0.05, 200, 3.6883), (0.05, 10, 1.6200)],
)
def test_noise_multipliers_of_the_experiments(
    sampling_rate: float, steps: int, multiplier: float
) -> None:
    found = sumus.calibrate(
        epsilon=1.0,
        delta=1e-5,
        steps=steps,
        sampling_rate=sampling_rate,
        accountant="renyi-mironov",
    )
    assert found == pytest.approx(multiplier, abs=1e-4)


def test_the_privacy_loss_accountant_needs_less_noise() -> None:
    fashion = {"delta": 1e-5, "steps": 220, "sampling_rate": 512 / 5600}
    assert sumus.calibrate(epsilon=1.0, **fashion) == pytest.approx(5.21, abs=0.01)  # type: ignore[arg-type]
    assert sumus.epsilon(noise_multiplier=6.8221, accountant="renyi", **fashion) == pytest.approx(
        0.81, abs=0.005
    )  # type: ignore[arg-type]
    assert sumus.epsilon(noise_multiplier=6.8221, **fashion) == pytest.approx(0.74, abs=0.005)  # type: ignore[arg-type]
    one_step = {"delta": 1e-5, "steps": 20, "sampling_rate": 128 / 5600}
    assert sumus.epsilon(noise_multiplier=1.3682, accountant="renyi", **one_step) == pytest.approx(
        0.72, abs=0.005
    )  # type: ignore[arg-type]
    assert sumus.epsilon(noise_multiplier=1.3682, **one_step) == pytest.approx(0.44, abs=0.005)  # type: ignore[arg-type]
