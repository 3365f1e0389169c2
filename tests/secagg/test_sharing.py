from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings, strategies as st

from sumus.errors import LocalProtocolError, PeerProtocolError
from sumus.secagg.sharing import (
    ELEMENT_BYTES,
    FIELD_PRIME,
    _by_integers,
    _by_loops,
    corrections,
    recover,
)


def is_probable_prime(number: int, rounds: int = 64) -> bool:
    """Miller–Rabin; a composite passes with probability below 4^-64."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for _ in range(rounds):
        power = pow(random.randrange(2, number - 1), odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def lagrange(points: dict[int, int], at: int) -> int:
    """The oracle: the textbook formula with Python integers."""
    total = 0
    for i, value in points.items():
        for j in points:
            if j != i:
                value = value * (at - j) * pow(i - j, -1, FIELD_PRIME)
        total += value
    return total % FIELD_PRIME


def cut(stream: bytes, place: int) -> bytes:
    return stream[place * ELEMENT_BYTES : (place + 1) * ELEMENT_BYTES]


def as_int(data: bytes) -> int:
    return int.from_bytes(data, "little")


def test_the_field_is_prime_and_just_below_256_bits() -> None:
    assert is_probable_prime(FIELD_PRIME)
    assert 2**256 - 2**8 < FIELD_PRIME < 2**256


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_corrections_are_those_of_the_textbook_polynomial(data: st.DataObject) -> None:
    holders = data.draw(st.integers(1, 16) | st.just(33))
    threshold = data.draw(st.integers(1, holders))
    extreme = data.draw(st.sampled_from([None, b"\xff", b"\x00"]))
    generator = random.Random(data.draw(st.integers(0, 2**32)))
    secrets = [generator.randrange(FIELD_PRIME).to_bytes(32, "little") for _ in range(2)]
    pads = [generator.randbytes(64) if extreme is None else extreme * 64 for _ in range(holders)]
    found = corrections(secrets, pads, threshold=threshold)
    expected = []
    for place, secret in enumerate(secrets):
        points = {0: as_int(secret)} | {
            i: as_int(cut(pads[i - 1], place)) for i in range(1, threshold)
        }
        for i in range(threshold, holders + 1):
            expected.append((lagrange(points, i) - as_int(cut(pads[i - 1], place))) % FIELD_PRIME)
    assert [as_int(cut(found, place)) for place in range(len(found) // 32)] == expected
    # whichever way is taken for this many
    assert _by_loops(secrets, pads, threshold) == found
    assert _by_integers(secrets, pads, threshold) == found


@pytest.mark.parametrize(("holders", "threshold"), [(120, 61), (200, 3), (130, 127), (64, 40)])
def test_corrections_of_a_polynomial_chosen_by_its_coefficients(
    holders: int, threshold: int
) -> None:
    """Many holders, where differences pile up: secret and first pads are read off a known
    polynomial, evaluated by Horner's rule.
    """
    generator = random.Random(holders)
    coefficients = [generator.randrange(FIELD_PRIME) for _ in range(threshold)]

    def value(at: int) -> int:
        total = 0
        for coefficient in reversed(coefficients):
            total = (total * at + coefficient) % FIELD_PRIME
        return total

    pads = [
        value(i).to_bytes(32, "little") if i < threshold else generator.randbytes(32)
        for i in range(1, holders + 1)
    ]
    found = corrections([value(0).to_bytes(32, "little")], pads, threshold=threshold)
    expected = [
        (value(i) - as_int(pads[i - 1])) % FIELD_PRIME for i in range(threshold, holders + 1)
    ]
    assert [as_int(cut(found, place)) for place in range(len(expected))] == expected


@pytest.mark.parametrize(("holders", "threshold"), [(5, 3), (6, 4), (4, 4), (3, 1), (1, 1)])
def test_every_set_of_t_holders_opens_the_secret(holders: int, threshold: int) -> None:
    generator = random.Random(7)
    secret = generator.randrange(FIELD_PRIME).to_bytes(32, "little")
    pads = [generator.randbytes(32) for _ in range(holders)]
    public = corrections([secret], pads, threshold=threshold)
    for chosen in itertools.combinations(range(1, holders + 1), threshold):
        assert recover({i: pads[i - 1] for i in chosen}, public, threshold=threshold) == secret


@pytest.mark.parametrize("known", list(itertools.combinations(range(1, 6), 2)))
def test_t_minus_one_pads_and_all_corrections_fit_every_secret(known: tuple[int, ...]) -> None:
    """For any other secret there are pads of the other holders that give the same public
    corrections.
    """
    generator, threshold, holders = random.Random(3), 3, 5
    secret = generator.randrange(FIELD_PRIME).to_bytes(32, "little")
    pads = {i: generator.randbytes(32) for i in range(1, holders + 1)}
    public = corrections([secret], [pads[i] for i in range(1, 6)], threshold=threshold)

    def share(i: int, pad: bytes) -> int:
        return as_int(pad) + (as_int(cut(public, i - threshold)) if i >= threshold else 0)

    other = generator.randrange(FIELD_PRIME)
    points = {0: other} | {i: share(i, pads[i]) for i in known}
    forged = {i: (lagrange(points, i) - share(i, bytes(32))) % FIELD_PRIME for i in pads}
    rebuilt = [pads[i] if i in known else forged[i].to_bytes(32, "little") for i in range(1, 6)]
    assert corrections([other.to_bytes(32, "little")], rebuilt, threshold=threshold) == public


def test_too_few_holders_and_too_few_pads_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="threshold"):
        corrections([bytes(32)], [bytes(32)] * 2, threshold=3)
    with pytest.raises(PeerProtocolError, match="threshold"):
        recover({1: bytes(32)}, bytes(64), threshold=2)
