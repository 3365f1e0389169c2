"""Averages of models that were trained apart: what rounding party by party does to the noise of the
others.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from sumus.accounting import average

# δ; what one record moves a parameter by, γC/b; where the parameter stands
DELTA, STEP, PLACE = 1e-5, 4e-4, 8.0


def test_rounding_party_by_party_loses_the_noise_of_the_others() -> None:
    """Ten float16 files at 8: the gap between neighbouring numbers is 22 standard deviations of one
    party's noise.

    Nine parties stand in the middle of a gap and their files are the same whatever they draw. The
    victim's other records put it just below a border, so its file says whether its own noise
    carried it across: one bit, with the noise of one party.
    """
    (exact,) = average(local_epsilon=5.0, delta=DELTA, sampling_rate=1.0, steps=1, parties=[10])
    (files,) = average(
        local_epsilon=5.0, delta=DELTA, sampling_rate=1.0, steps=1, parties=[10], rounded=True
    )
    assert (exact.proved, exact.proved_epsilon) == (True, pytest.approx(1.36, abs=0.01))
    assert (files.proved, files.proved_epsilon) == (False, 5.0)

    std = STEP * exact.noise_multiplier / math.sqrt(10.0)
    gap = float(np.nextafter(np.float16(PLACE), np.float16(np.inf))) - PLACE
    border = PLACE + gap / 2.0
    assert gap > 20.0 * std
    assert np.float16(border - 1e-6) == PLACE < np.float16(border + 1e-6)  # the cast itself
    assert 2.0 * norm.sf(gap / 2.0 / std) < 1e-25  # nobody else's file ever changes

    def leak(epsilon: float) -> float:
        """The largest δ of "the victim's file is above the border" over how far below it the victim
        stands.
        """
        below = np.linspace(0.0, 8.0, 2001)
        return float((norm.sf(below - STEP / std) - math.exp(epsilon) * norm.sf(below)).max())

    # ten thousand times the declared δ
    assert leak(exact.epsilon) == pytest.approx(0.109, abs=0.002)
    assert leak(files.proved_epsilon) <= DELTA


@pytest.mark.parametrize(
    ("steps", "rounded", "proved"),
    [(1, False, True), (1, True, False), (5, False, False), (5, True, False)],
)
def test_only_an_exact_sum_of_one_step_is_proved_with_all_noise(
    steps: int, rounded: bool, proved: bool
) -> None:
    rows = average(
        local_epsilon=2.0,
        delta=DELTA,
        sampling_rate=0.1,
        steps=steps,
        parties=[1, 4],
        rounded=rounded,
    )
    assert [row.proved for row in rows] == [True, proved]
    assert rows[1].proved_epsilon == (rows[1].epsilon if proved else 2.0)
