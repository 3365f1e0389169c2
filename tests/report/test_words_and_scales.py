"""Words and axes: the stated detection rate is a bound that a known attack meets, and numbers are
shown in units people read.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings, strategies as st

from sumus.report.meaning import most_detected
from sumus.report.scales import (
    as_bytes,
    as_number,
    as_percent,
    as_seconds,
    linear_axis,
    on_axis,
    round_axis,
)
from sumus.report.words import in_the_clear


def spelled(text: str) -> str:
    return text.replace("\u00a0", " ")


@settings(max_examples=200, deadline=None)
@given(epsilon=st.floats(0.0, 8.0), delta=st.floats(0.0, 0.01), alarms=st.floats(0.0, 1.0))
def test_no_test_against_the_worst_mechanism_finds_more_than_stated(
    epsilon: float, delta: float, alarms: float
) -> None:
    """Oracle: randomised response that leaks outright with probability δ is the worst (ε, δ)
    mechanism; its best test is a threshold.
    """
    heads = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    worlds = [  # (probability if the record was used, probability if not), most telling first
        (delta, 0.0),
        ((1.0 - delta) * heads, (1.0 - delta) * (1.0 - heads)),
        ((1.0 - delta) * (1.0 - heads), (1.0 - delta) * heads),
        (0.0, delta),
    ]
    power, left = 0.0, alarms
    for used, unused in worlds:
        share = 1.0 if unused <= left else left / unused
        power, left = power + share * used, max(left - share * unused, 0.0)
    assert most_detected(epsilon, delta, false_alarms=alarms) >= power - 1e-9
    # and it is not idle talk
    assert most_detected(epsilon, delta, false_alarms=alarms) <= power + 2.0 * delta + 1e-9


def test_known_detection_rates() -> None:
    assert most_detected(0.0, 0.0) == pytest.approx(0.05)
    assert most_detected(1.0, 1e-5) == pytest.approx(0.13592, abs=1e-4)
    assert most_detected(math.inf, 1e-5) == 1.0
    assert most_detected(50.0, 1e-5) == pytest.approx(1.0)


@settings(max_examples=300, deadline=None)
@given(values=st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20), from_zero=st.booleans())
@example(values=[0.0, 5e-324], from_zero=False)
@example(values=[1e9, 1e9 + 1e-6], from_zero=False)
@example(values=[0.0], from_zero=True)
def test_an_axis_holds_its_values_and_few_round_ticks(values: list[float], from_zero: bool) -> None:
    if from_zero:
        values = [abs(value) for value in values]
    axis = linear_axis(values, from_zero=from_zero)
    assert axis.low <= min(values) <= max(values) <= axis.high
    assert axis.low < axis.high
    assert 2 <= len(axis.ticks) <= 9
    assert all(axis.low <= tick <= axis.high for tick in axis.ticks)


def test_a_share_never_leaves_its_interval() -> None:
    axis = linear_axis([0.3, 0.999], within=(0.0, 1.0))
    assert axis.low >= 0.0
    assert axis.high <= 1.0


@pytest.mark.parametrize("last", [1, 2, 7, 20, 160, 5000])
def test_rounds_have_whole_ticks(last: int) -> None:
    ticks = round_axis(last).ticks
    assert ticks[0] == 1
    assert all(tick == int(tick) and 1 <= tick <= max(last, 1) for tick in ticks)
    assert len(ticks) <= 12


def test_quantities_are_shown_in_units_people_read() -> None:
    assert spelled(as_bytes(0)) == "0 B"
    assert spelled(as_bytes(52_000)) == "52 kB"
    assert spelled(as_bytes(1.04e6)) == "1.04 MB"
    assert spelled(as_bytes(999_600)) == "1 MB"
    assert spelled(as_seconds(0.0005)) == "500 µs"
    assert spelled(as_seconds(0.449)) == "449 ms"
    assert spelled(as_seconds(8.98)) == "8.98 s"
    assert spelled(as_seconds(600)) == "10 min"
    assert spelled(as_seconds(7200)) == "2 h"
    assert spelled(as_percent(0.8991)) == "89.9 %"
    assert as_number(math.nan) == "NaN"
    assert as_number(math.inf) == "∞"
    assert as_number(0.43211) == "0.4321"
    assert as_number(123456.7) == "123,457"
    assert spelled(on_axis(0.4, as_percent)) == "40 %"
    assert spelled(on_axis(0.425, as_percent)) == "42.5 %"
    assert on_axis(0.0, as_seconds) == "0"


def test_what_silos_fit_to_training_records_is_said_beside_the_test_records() -> None:
    assert in_the_clear(fitted=False).startswith("Measured in the clear on test records: simul")
    assert "with what silos fitted to their training records" in in_the_clear(fitted=True)
