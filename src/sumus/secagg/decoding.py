"""Shares of a polynomial of which some are wrong: Reed–Solomon decoding over the sharing field.

A polynomial of degree below t is determined by t of its values. Of m values, up to (m − t)/2 may be
wrong and it is still the only one that fits all the others; Gao's algorithm finds it in O(m²) field
operations, without trying sets of t.

Reference: Gao 2003, "A new algorithm for decoding Reed–Solomon codes"; Cascudo, David 2017 (eprint
    2017/216), section 2.1, for the random parity check.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from operator import mul

from sumus.secagg.sharing import FIELD_PRIME

__all__ = ["Polynomial", "decode_shares", "interpolate", "parity_weights", "value_at", "weighted"]

Polynomial = tuple[int, ...]
"""Coefficients from the constant term up, the last one not zero; the zero polynomial has none."""

_P = FIELD_PRIME


def value_at(polynomial: Polynomial, point: int) -> int:
    """f(point)."""
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * point + coefficient) % _P
    return value


def weighted(weights: Sequence[int], values: Sequence[int]) -> int:
    """Σ w_i·y_i in the field."""
    total: int = sum(map(mul, weights, values)) % _P
    return total


def interpolate(points: Sequence[int], values: Sequence[int]) -> Polynomial:
    """The polynomial of degree below the number of points with these values (Newton)."""
    differences = list(values)
    for level in range(1, len(points)):
        for place in range(len(points) - 1, level - 1, -1):
            run = points[place] - points[place - level]
            rise = differences[place] - differences[place - 1]
            differences[place] = rise * _inverse(run) % _P
    polynomial: list[int] = []
    for point, difference in zip(reversed(points), reversed(differences), strict=True):
        polynomial = _times_root(polynomial, point)  # f ← (x − point)·f + difference
        polynomial[0] = (polynomial[0] + difference) % _P
    return _trimmed(polynomial)


def decode_shares(
    points: Sequence[int], values: Sequence[int], *, threshold: int
) -> Polynomial | None:
    """The polynomial of degree below t that all but at most (m − t)/2 of the m values fit, or None.

    Args:
        points: m distinct small numbers.
        values: one field element per point.
        threshold: t.
    """
    modulus: list[int] = [1]
    for point in points:
        modulus = _times_root(modulus, point)
    earlier, later = _trimmed(modulus), interpolate(points, values)
    cofactors: tuple[Polynomial, Polynomial] = ((), (1,))
    while 2 * (len(later) - 1) >= len(points) + threshold:
        quotient, rest = _divided(earlier, later)
        earlier, later = later, rest
        cofactors = cofactors[1], _less_product(cofactors[0], quotient, cofactors[1])
    decoded, rest = _divided(later, cofactors[1])
    return decoded if not rest and len(decoded) <= threshold else None


def parity_weights(points: Sequence[int], coefficients: Sequence[int]) -> tuple[int, ...]:
    """Weights w with Σ w_i·f(points_i) = 0 for every polynomial f of degree below t, where m − t
    random coefficients are given; values of no such f pass with probability 1/p.
    """
    return tuple(
        scale * value_at(tuple(coefficients), point) % _P
        for point, scale in zip(points, _node_weights(tuple(points)), strict=True)
    )


@lru_cache(maxsize=1024)
def _node_weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """1/∏_{j≠i}(points_i − points_j)."""
    return tuple(pow(prod(i - j for j in points if j != i), -1, _P) for i in points)


@lru_cache(maxsize=4096)
def _inverse(number: int) -> int:
    return pow(number, -1, _P)


def _trimmed(polynomial: Sequence[int]) -> Polynomial:
    size = len(polynomial)
    while size and polynomial[size - 1] == 0:
        size -= 1
    return tuple(polynomial[:size])


def _times_root(polynomial: list[int], root: int) -> list[int]:
    """(x − root)·f."""
    shifted = [0, *polynomial]
    for place, coefficient in enumerate(polynomial):
        shifted[place] = (shifted[place] - root * coefficient) % _P
    return shifted


def _divided(polynomial: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Quotient and rest."""
    rest, size = list(polynomial), len(divisor)
    quotient = [0] * max(0, len(rest) - size + 1)
    lead = pow(divisor[-1], -1, _P)
    for place in range(len(quotient) - 1, -1, -1):
        factor = quotient[place] = rest[place + size - 1] * lead % _P
        if factor:
            for offset, coefficient in enumerate(divisor):
                rest[place + offset] = (rest[place + offset] - factor * coefficient) % _P
    return _trimmed(quotient), _trimmed(rest)


def _less_product(minuend: Polynomial, left: Polynomial, right: Polynomial) -> Polynomial:
    """minuend − left·right."""
    result = [*minuend, *[0] * max(0, len(left) + len(right) - 1 - len(minuend))]
    for place, factor in enumerate(left):
        for offset, coefficient in enumerate(right):
            result[place + offset] = (result[place + offset] - factor * coefficient) % _P
    return _trimmed(result)
