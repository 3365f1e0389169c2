"""Galois rings GR(2^64, r): where Shamir's sharing works on machine words.

Z_(2^b) has no two points whose difference is invertible beyond 0 and 1, so nothing can be
interpolated over it. Its extension by a polynomial of degree r that is irreducible mod 2 has 2^r
such points, the elements with coordinates 0 and 1. A vector of d words read as d/r blocks of r
coordinates is a vector over that ring without growing by a bit. Arithmetic is mod 2^64 and reduces
exactly to any smaller power of two.

Reference: Abspoel, Cramer, Damgård, Escudero, Yuan 2019 (eprint 2019/872), section 2.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["Matrix", "degree_for", "evaluation_weights", "multiply_blocks", "power_rows"]

Matrix = npt.NDArray[np.uint64]
Element = tuple[int, ...]

_WORD = (1 << 64) - 1
# coefficients of x^0 … x^(r−1) of a monic polynomial that is irreducible over GF(2)
_IRREDUCIBLE: dict[int, Element] = {
    1: (1,),
    2: (1, 1),
    3: (1, 1, 0),
    4: (1, 1, 0, 0),
    5: (1, 0, 1, 0, 0),
    6: (1, 1, 0, 0, 0, 0),
    7: (1, 1, 0, 0, 0, 0, 0),
    8: (1, 1, 0, 1, 1, 0, 0, 0),
}


def degree_for(points: int) -> int:
    """The least r with 2^r > `points`, so that there are so many nonzero points."""
    return max(1, points.bit_length())


def _point(number: int, degree: int) -> Element:
    """The point whose coordinates are the bits of the number."""
    return tuple(number >> bit & 1 for bit in range(degree))


def _multiply(left: Element, right: Element) -> Element:
    """Product of two ring elements."""
    degree = len(left)
    product = [0] * (2 * degree - 1)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            product[i + j] += a * b
    for top in range(2 * degree - 2, degree - 1, -1):
        for place, coefficient in enumerate(_IRREDUCIBLE[degree]):
            product[top - degree + place] -= product[top] * coefficient
    return tuple(value & _WORD for value in product[:degree])


def _invert(element: Element) -> Element:
    """Inverse of a unit: first in the residue field by Fermat, then lifted bit by bit by Newton's
    iteration.
    """
    degree = len(element)
    one = _point(1, degree)
    inverse, square = one, tuple(value & 1 for value in element)
    for _ in range(degree - 1):
        square = tuple(value & 1 for value in _multiply(square, square))
        inverse = tuple(value & 1 for value in _multiply(inverse, square))
    for _ in range(6):
        error = tuple(
            ((2 if place == 0 else 0) - value) & _WORD
            for place, value in enumerate(_multiply(element, inverse))
        )
        inverse = _multiply(inverse, error)
    return inverse


def _subtract(left: Element, right: Element) -> Element:
    return tuple((a - b) & _WORD for a, b in zip(left, right, strict=True))


def _as_matrix(element: Element) -> Matrix:
    """Row j holds x^j times the element: a block times this matrix is the block times the
    element.
    """
    degree = len(element)
    rows = [_multiply(_point(1 << place, degree), element) for place in range(degree)]
    return np.array(rows, dtype=np.uint64)


@lru_cache(maxsize=256)
def _weight_elements(points: tuple[int, ...], degree: int) -> tuple[Element, ...]:
    """Lagrange weights at zero."""
    weights = []
    for i in points:
        weight = _point(1, degree)
        for j in points:
            if j != i:
                difference = _subtract(_point(j, degree), _point(i, degree))
                weight = _multiply(weight, _multiply(_point(j, degree), _invert(difference)))
        weights.append(weight)
    return tuple(weights)


def evaluation_weights(points: tuple[int, ...], degree: int) -> list[Matrix]:
    """Matrices w with f(0) = Σ f(points_i) w_i for every polynomial of degree below len(points)."""
    return [_as_matrix(weight) for weight in _weight_elements(points, degree)]


@lru_cache(maxsize=256)
def power_rows(point: int, *, powers: int, degree: int) -> tuple[Matrix, ...]:
    """Matrices of point^1 … point^powers."""
    element, rows = _point(1, degree), []
    for _ in range(powers):
        element = _multiply(element, _point(point, degree))
        rows.append(_as_matrix(element))
    return tuple(rows)


def multiply_blocks(blocks: Matrix, matrix: Matrix) -> Matrix:
    """Every block times a ring element, mod 2^64 (written out: NumPy has no fast integer matrix
    product).
    """
    out = np.zeros_like(blocks)
    for row in range(matrix.shape[0]):
        for column in range(matrix.shape[1]):
            if matrix[row, column] == 1:
                out[:, column] += blocks[:, row]
            elif matrix[row, column]:
                out[:, column] += blocks[:, row] * matrix[row, column]
    return out
