"""Compiles the inner loops that NumPy cannot express, and keeps the machine code on disk until
their source changes.

Older versions of numba tell a changed source file by its time and size, which an edit of equal
length in a reproducible wheel leaves as they were. So the version and a digest of the file and of
the options stand in the name under which machine code is kept.

Processes that start together need the same loops at the same time: the first one compiles, and the
others wait for what it keeps.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import inspect
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba.core.compiler_lock import global_compiler_lock

from sumus import __version__

__all__ = ["compiled"]

_PATIENCE = 60.0  # seconds; whoever compiles may have been stopped


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
        _compile_once(loop, Path(loop.stats.cache_path) / f"{function.__qualname__}.lock")
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


def _compile_once(loop: Any, lock: Path) -> None:
    """Let one process at a time compile a loop; it looks on the disk before it does."""
    compile_or_read = loop.compile

    def compile_alone(signature: Any) -> Any:
        # in this order: another thread may hold the compiler while it waits for this loop
        with global_compiler_lock, _held(lock):
            return compile_or_read(signature)

    loop.compile = compile_alone


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    """A lock among processes; without it where it cannot be had, because compiling twice is only
    slow.
    """
    with contextlib.ExitStack() as closing:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = closing.enter_context(open(path, "ab"))
            deadline = time.monotonic() + _PATIENCE
            while not _taken(file.fileno()) and time.monotonic() < deadline:
                time.sleep(0.02)
        yield


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
