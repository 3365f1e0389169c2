"""Intervals of noisy shares: they hold as often as they say, and nothing is shown with more digits
than it has.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sumus.tasks import Measured, noisy_share, number_text, percent_text


@pytest.mark.parametrize("records", [8, 60, 360, 5000])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0, 30.0])
def test_the_interval_holds_the_truth_in_95_of_100_measurements(
    records: int, share: float, noise: float
) -> None:
    """2,000 measurements with a fixed seed; the share of all such records, and that of the records
    that were measured.
    """
    draw = np.random.default_rng((records, round(100 * share), round(noise)))
    right = draw.binomial(records, share, 2000)
    found = [
        noisy_share(x, y, numerator_std=0.75 * noise, denominator_std=1.5 * noise)
        for x, y in zip(
            right - records / 2 + 0.75 * noise * draw.normal(size=2000),
            records + 1.5 * noise * draw.normal(size=2000),
            strict=True,
        )
    ]
    value, width = np.array([[each.value, each.plus_minus] for each in found]).T
    for truth in (share, right / records):
        # 0.95 less three standard errors of 2,000 trials
        assert np.mean(np.abs(value - truth) <= width + 1e-12) >= 0.935


def test_without_noise_it_is_wilsons_interval() -> None:
    n, k, z = 50, 45, 1.96
    centre = (k + z * z / 2) / (n + z * z)
    half = z * math.sqrt(k * (n - k) / n + z * z / 4) / (n + z * z)
    found = noisy_share(k - n / 2, n, numerator_std=0.0, denominator_std=0.0)
    assert found.value == pytest.approx(0.9)
    assert found.plus_minus == pytest.approx(max(centre + half - 0.9, 0.9 - (centre - half)))


@pytest.mark.parametrize(
    ("numerator", "denominator"), [(3.0, 0.0), (3.0, -5.0), (0.0, 9.0), (-2.0, 19.0), (1e6, 1.0)]
)
def test_what_noise_hides_is_all_of_zero_to_one(numerator: float, denominator: float) -> None:
    assert noisy_share(numerator, denominator, numerator_std=5.0, denominator_std=10.0) == Measured(
        0.5, 0.5
    )


numbers = st.floats(-1e9, 1e9)


@given(numbers, numbers, st.floats(0.0, 1e6), st.floats(0.0, 1e6))
@settings(max_examples=300, deadline=None)
def test_a_share_is_never_outside_of_zero_to_one(
    x: float, y: float, x_std: float, y_std: float
) -> None:
    found = noisy_share(x, y, numerator_std=x_std, denominator_std=y_std)
    assert 0.0 <= found.value <= 1.0
    assert 0.0 <= found.plus_minus <= 1.0


@pytest.mark.parametrize(
    ("value", "plus_minus", "text"),
    [
        (0.97649, None, "97.6%"),
        (0.97649, 0.0291, "97.6% ± 3.0%"),
        (0.97649, 0.123, "98% ± 13%"),
        (0.5, 0.5, "50% ± 50%"),
        (1.0, 0.0004, "100.0% ± 0.1%"),
    ],
)
def test_a_share_is_shown_with_the_digits_that_it_has(
    value: float, plus_minus: float | None, text: str
) -> None:
    assert percent_text(value, plus_minus) == text


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.sampled_from([percent_text, number_text]))
@settings(max_examples=300, deadline=None)
def test_what_is_shown_covers_the_interval(value: float, plus_minus: float, text: object) -> None:
    shown, width = map(float, re.findall(r"[0-9.]+", text(value, plus_minus)))  # type: ignore[operator]
    scale = 100.0 if text is percent_text else 1.0
    assert shown - width <= scale * (value - plus_minus) + 1e-6
    assert shown + width >= scale * (value + plus_minus) - 1e-6
