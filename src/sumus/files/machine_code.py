"""Compiles the inner loops that NumPy cannot express, and keeps the machine code on disk until
their source changes.

Older versions of numba tell a changed source file by its time and size, which an edit of equal
length in a reproducible wheel leaves as they were. So the version and a digest of the file and of
the options stand in the name under which machine code is kept.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from sumus import __version__

__all__ = ["compiled"]


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """Machine code for a function that runs without the interpreter lock; made once per process
    where nothing can be kept on disk.

    Guarantee: what is read from disk was made from a file with the same bytes and with the same
        options. A compiled loop therefore calls loops of its own file only.

    Args:
        function: a loop over arrays and numbers.
        options: of `numba.njit`.
    """
    name = function.__qualname__
    try:
        # names the files of numba's cache
        function.__qualname__ = f"{name}-{__version__}-{_digest(function, options)}"
        loop = numba.njit(function, cache=True, nogil=True, **options)
    except (OSError, RuntimeError):  # no readable source, or no writable place for the machine code
        loop = numba.njit(function, nogil=True, **options)
    finally:
        function.__qualname__ = name
    loop.__qualname__ = name
    return loop


def _digest(function: Callable[..., Any], options: dict[str, Any]) -> str:
    made_with = json.dumps(options, sort_keys=True, default=sorted)
    return hashlib.sha256(
        made_with.encode() + Path(inspect.getfile(function)).read_bytes()
    ).hexdigest()[:16]
