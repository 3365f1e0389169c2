"""NVIDIA FLARE's driver over an engine that hands requests to the silos' executors on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvflare.apis.shareable import Shareable

from sumus.engines.nvflare.driver import NvflareDriver
from sumus.engines.nvflare.executor import SiloExecutor
from support.local_federation import LocalFederation


class LocalEngine:
    """What the driver uses of the server's engine."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self._executors = {name: SiloExecutor() for name in folders}
        for name, folder in folders.items():
            self._executors[name]._folder = folder

    def new_context(self) -> None:
        return None

    def send_aux_request(
        self, *, targets: list[str], topic: str, request: Shareable, **_: Any
    ) -> dict[str, Shareable]:
        return {name: self._executors[name]._handle(topic, request, None) for name in targets}


def driver(federation: LocalFederation) -> NvflareDriver:
    """The driver to silos that are opened from their folders."""
    names = federation.roster.names
    engine = LocalEngine({name: federation.folder(name) for name in names})
    return NvflareDriver(engine, names, stopped=lambda: False)
