"""Decoding of wrong shares against trying all sets, and the random parity check."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings, strategies as st

from sumus.secagg.decoding import (
    decode_shares,
    interpolate,
    parity_weights,
    value_at,
    weighted,
)
from sumus.secagg.sharing import FIELD_PRIME

elements = st.integers(0, FIELD_PRIME - 1)


@st.composite
def spoiled(draw: st.DrawFn) -> tuple[tuple[int, ...], list[int], list[int], set[int]]:
    """(coefficients, points, values, places of the wrong ones), as many wrong as can be decoded."""
    threshold = draw(st.integers(1, 6))
    count = draw(st.integers(threshold, threshold + 6))
    points = draw(st.lists(st.integers(0, 40), min_size=count, max_size=count, unique=True))
    coefficients = tuple(draw(st.lists(elements, min_size=threshold, max_size=threshold)))
    most = (count - threshold) // 2
    wrong = draw(st.sets(st.integers(0, count - 1), max_size=most))
    values = [value_at(coefficients, point) for point in points]
    for place in wrong:
        values[place] = (values[place] + draw(st.integers(1, FIELD_PRIME - 1))) % FIELD_PRIME
    return coefficients, points, values, wrong


@settings(max_examples=150, deadline=None)
@given(spoiled())
def test_up_to_half_of_the_spare_values_may_be_wrong(case) -> None:
    coefficients, points, values, _ = case
    decoded = decode_shares(points, values, threshold=len(coefficients))
    assert decoded is not None
    padded = decoded + (0,) * (len(coefficients) - len(decoded))
    assert padded == coefficients


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_decoded_is_what_trying_all_sets_finds(data: st.DataObject) -> None:
    """Any values: the only polynomial that all but (m − t)/2 of them fit, or nothing."""
    threshold = data.draw(st.integers(1, 3))
    points = list(range(1, data.draw(st.integers(threshold, 7)) + 1))
    values = data.draw(st.lists(st.integers(0, 2), min_size=len(points), max_size=len(points)))
    least = len(points) - (len(points) - threshold) // 2
    fitting = set()
    for chosen in combinations(range(len(points)), threshold):
        through = interpolate([points[i] for i in chosen], [values[i] for i in chosen])
        if sum(value_at(through, p) == v for p, v in zip(points, values, strict=True)) >= least:
            fitting.add(through)
    decoded = decode_shares(points, values, threshold=threshold)
    assert fitting == (set() if decoded is None else {decoded})


@settings(max_examples=100, deadline=None)
@given(spoiled(), st.integers(0, 2**64))
def test_a_parity_check_tells_values_of_a_polynomial_from_others(case, seed: int) -> None:
    coefficients, points, values, wrong = case
    spare = len(points) - len(coefficients)
    if spare == 0:
        return
    random = [pow(seed + 3, place + 2, FIELD_PRIME) * 7 + place for place in range(spare)]
    passed = weighted(parity_weights(points, random), values) == 0
    assert passed == (not wrong)
