"""Random bits for audits and canaries that are the same in every run, so that no such test fails by
chance.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from sumus.randomness import RandomSource

__all__ = ["repeatable_sources"]


def repeatable_sources(*path: int | str) -> Callable[[], RandomSource]:
    """A function that gives another public source at every call, in every run the same ones."""
    numbers = itertools.count()
    return lambda: RandomSource.simulation(2026, *path, next(numbers))
