"""A room is entered through its door: the names in its `__init__`, each loaded on first use.

So `import sumus.guarantee` costs nothing until a name is asked for, and a plan, an account or the
protocol loads no torch.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["door"]

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
        value = getattr(importlib.import_module(f"{room}.{module}"), inside)
        setattr(sys.modules[room], name, value)
        return value

    public = sorted(homes)
    return load, lambda: list(sys.modules[room].__all__), public
