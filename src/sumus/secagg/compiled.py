"""Compiles the two inner loops that NumPy cannot express."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

__all__ = ["compiled"]

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Machine code for a function, kept on disk where the installation is writable."""
    try:
        return cast(F, numba.njit(function, cache=True, nogil=True))
    except RuntimeError:  # no writable place for the cache: compile once per process instead
        return cast(F, numba.njit(function, nogil=True))
