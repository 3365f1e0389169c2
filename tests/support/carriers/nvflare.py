"""NVIDIA FLARE's driver over an engine that hands requests to the silos' executors on the spot, each
with the socket of its vault.
"""

from __future__ import annotations

from typing import Any

from nvflare.apis.shareable import Shareable

from sumus.engines.nvflare.driver import NvflareDriver
from sumus.engines.nvflare.executor import SiloExecutor
from sumus.engines.relay import Relay
from support.local_federation import LocalFederation
from support.vaults import VaultInThread


class LocalEngine:
    """What the driver uses of the server's engine."""

    def __init__(self, relays: dict[str, Relay]) -> None:
        self._executors = {}
        for name, relay in relays.items():
            executor = SiloExecutor.__new__(SiloExecutor)
            executor._relay = relay
            self._executors[name] = executor

    def new_context(self) -> None:
        return None

    def send_aux_request(
        self, *, targets: list[str], topic: str, request: Shareable, **_: Any
    ) -> dict[str, Shareable]:
        return {name: self._executors[name]._handle(topic, request, None) for name in targets}


class DriverWithVaults:
    """The driver; closing it ends the vaults too."""

    def __init__(self, federation: LocalFederation) -> None:
        names = federation.roster.names
        self._vaults = {name: VaultInThread(federation.folder(name)) for name in names}
        engine = LocalEngine({name: Relay(str(each.path)) for name, each in self._vaults.items()})
        self._driver = NvflareDriver(engine, names, stopped=lambda: False)
        self.exchange = self._driver.exchange

    def close(self) -> None:
        self._driver.close()
        for vault in self._vaults.values():
            vault.close()


def driver(federation: LocalFederation) -> DriverWithVaults:
    """The driver to silos that are opened from their folders."""
    return DriverWithVaults(federation)
