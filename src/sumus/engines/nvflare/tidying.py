"""The engine's processes run for months: what they no longer need is looked for every minute.

The engine leaves cycles behind for every message. Python's collector counts what stands in memory
before it looks for old ones: beside a million imported objects that is once in thousands of rounds,
and a process grows meanwhile.
"""

from __future__ import annotations

import ctypes
import gc
import threading
import time

__all__ = ["tidy", "tidy_every"]


def tidy_every(seconds: float = 60.0) -> None:
    """Leave what is imported by now alone for good, and look through the rest for as long as the
    process lives.
    """
    gc.freeze()

    def look() -> None:
        while True:
            time.sleep(seconds)
            tidy()

    threading.Thread(target=look, name="tidying", daemon=True).start()


def tidy() -> None:
    """Free what is no longer reachable, and give free memory back to the system where the C library
    can.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
