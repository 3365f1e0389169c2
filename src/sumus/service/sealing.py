"""Closes a process to others of the same user."""

from __future__ import annotations

import ctypes
import resource
import sys

from sumus.errors import StorageError

__all__ = ["seal_process"]

_DUMPABLE = 4  # PR_SET_DUMPABLE


def seal_process() -> None:
    """Keep this process's memory from others of the same user: no dump, no debugger, no /proc/…/mem
    (Linux; elsewhere no dump).
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(_DUMPABLE, 0, 0, 0, 0):
        raise StorageError("this process cannot be closed to others. Check the kernel's settings.")
