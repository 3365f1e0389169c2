"""A room is entered through its door: the names in its `__init__`, each loaded on first use.

So `import sumus.guarantee` costs nothing until a name is asked for, and a plan, an account or the
protocol loads no torch. While modules are loaded no garbage is looked for: they make objects that
stay, a million of them with torch, and looking through them again and again takes a sixth of the
time to a first round.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["door", "keep_what_is_loaded"]

Door = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def door(room: str, **names: str) -> Door:
    """`__getattr__`, `__dir__` and `__all__` of a package.

    Args:
        room: the package, "sumus.noise".
        names: by module, what is public in it: `grid="Grid Rounding"`, or under another name:
            `data="load:load_data"`.
    """
    homes: dict[str, tuple[str, str]] = {}
    for module, listed in names.items():
        for entry in listed.split():
            inside, _, outside = entry.partition(":")
            homes[outside or inside] = (module.replace("__", "."), inside)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        module, inside = homes[name]
        with _no_collection():
            value = getattr(importlib.import_module(f"{room}.{module}"), inside)
        setattr(sys.modules[room], name, value)
        return value

    public = sorted(homes)
    return load, lambda: list(sys.modules[room].__all__), public


def keep_what_is_loaded() -> None:
    """From here on, what is alive after loading is never looked through for garbage again.

    For a process that is this package's own: objects of others would be kept with it.
    """
    _Loading.kept = True


class _Loading:
    """How many loads are going on, and what was asked of garbage collection."""

    lock = threading.Lock()
    depth = 0
    collecting = False
    kept = False


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage is collected inside, in whichever thread; behind the last load it is as before."""
    with _Loading.lock:
        if _Loading.depth == 0:
            _Loading.collecting = gc.isenabled()
            gc.disable()
        _Loading.depth += 1
    try:
        yield
    finally:
        with _Loading.lock:
            _Loading.depth -= 1
            if _Loading.depth == 0:
                if _Loading.kept:
                    gc.freeze()
                if _Loading.collecting:
                    gc.enable()
