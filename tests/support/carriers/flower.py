"""Flower's driver over a grid in this process: every message starts a relay to the silo's vault, as a
SuperNode does.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from sumus.engines.flower.client_app import app
from sumus.engines.flower.driver import FlowerDriver
from sumus.engines.relay import VARIABLE
from support.local_federation import LocalFederation
from support.vaults import VaultInThread

# what a task's process of the engine knows of itself
TaskIdentity._task_id = TaskIdentity._run_id = TaskIdentity._node_id = 1


def call(path: Path | str, message: Message, node: int = 1) -> Message:
    """A silo's app in the environment of its node."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(path)
    context = Context(
        run_id=1,
        node_id=node,
        node_config={},
        state=RecordDict(),
        run_config={"vault": "/chosen/by/the/server"},
    )
    try:
        return app(message, context)
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


class LocalGrid:
    """What the driver uses of Flower's grid, with the silos' apps called on the spot."""

    def __init__(self, sockets: dict[int, Path]) -> None:
        self._sockets, self._numbers = sockets, itertools.count()
        self._replies: dict[str, Message] = {}
        self.errors: set[int] = set()
        self.instead: dict[int, dict[str, Any]] = {}

    def get_node_ids(self) -> list[int]:
        return list(self._sockets)

    def push_messages(self, messages: list[Message]) -> list[str]:
        identifiers = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = identifier = f"message-{next(self._numbers)}"
            identifiers.append(identifier)
            node = message.metadata.dst_node_id
            if node in self.errors:
                continue
            self._replies[identifier] = call(self._sockets[node], message, node)
            if node in self.instead:
                self._replies[identifier] = Message(
                    RecordDict(self.instead[node]), reply_to=message
                )
        return identifiers

    def pull_messages(self, identifiers: list[str]) -> list[Message]:
        return [
            self._replies.pop(identifier)
            for identifier in identifiers
            if identifier in self._replies
        ]


class DriverWithVaults:
    """The driver over a grid whose nodes are numbered in another order than the silos; closing it
    ends the vaults too.
    """

    def __init__(self, federation: LocalFederation) -> None:
        names = federation.roster.names
        self.nodes = {1000 + number: name for number, name in enumerate(reversed(names))}
        self._vaults = {
            node: VaultInThread(federation.folder(name)) for node, name in self.nodes.items()
        }
        self.grid = LocalGrid({node: vault.path for node, vault in self._vaults.items()})
        self._driver = FlowerDriver(self.grid, names, self.nodes)
        self.exchange = self._driver.exchange

    def close(self) -> None:
        self._driver.close()
        for vault in self._vaults.values():
            vault.close()


def driver(federation: LocalFederation) -> DriverWithVaults:
    """The driver to silos that are opened from their folders."""
    return DriverWithVaults(federation)
