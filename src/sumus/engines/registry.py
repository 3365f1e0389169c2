"""Engines by name: every folder beside this file is one, and is imported when it is asked for."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast, final

from sumus.engines.engine import Engine
from sumus.errors import EngineError, PlanError
from sumus.files import closest

__all__ = ["DEFAULT_ENGINE", "ENGINES", "engine_named"]

DEFAULT_ENGINE = "nvflare"


@final
class _Engines(Mapping[str, Engine]):
    """The folders beside this file."""

    def _names(self) -> list[str]:
        folders = pkgutil.iter_modules([str(Path(__file__).parent)])
        return sorted(module.name for module in folders if module.ispkg)

    def __getitem__(self, name: str) -> Engine:
        if name not in self._names():
            raise KeyError(name)
        return cast(Engine, importlib.import_module(f"sumus.engines.{name}"))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())


ENGINES: Mapping[str, Engine] = _Engines()


def engine_named(name: str, *, where: str = "--engine") -> Engine:
    """An engine that is installed.

    Args:
        where: what names it, for messages.
    """
    if name not in ENGINES:
        raise PlanError(where, name, "must be an engine", closest(name, list(ENGINES)))
    engine = ENGINES[name]
    if importlib.util.find_spec(engine.PACKAGE) is None:
        raise EngineError(
            f"engine {name} needs {engine.PACKAGE}, which is not installed. Run: pip install "
            f"'sumus[{name}]'"
        )
    return engine
