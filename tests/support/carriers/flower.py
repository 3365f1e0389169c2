"""Flower's driver over a grid in this process: every message starts a silo from its disk, as a
SuperNode does.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from sumus.engines.flower.client_app import app
from sumus.engines.flower.driver import FlowerDriver
from support.local_federation import LocalFederation

# what a task's process of the engine knows of itself
TaskIdentity._task_id = TaskIdentity._run_id = TaskIdentity._node_id = 1


class LocalGrid:
    """What the driver uses of Flower's grid, with the silos' apps called on the spot."""

    def __init__(self, folders: dict[int, Path]) -> None:
        self._folders, self._numbers = folders, itertools.count()
        self._replies: dict[str, Message] = {}
        self.errors: set[int] = set()
        self.instead: dict[int, dict[str, ConfigRecord]] = {}

    def get_node_ids(self) -> list[int]:
        return list(self._folders)

    def push_messages(self, messages: list[Message]) -> list[str]:
        identifiers = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = identifier = f"message-{next(self._numbers)}"
            identifiers.append(identifier)
            node = message.metadata.dst_node_id
            if node in self.errors:
                continue
            config = {"state": str(self._folders[node])}
            context = Context(
                run_id=1,
                node_id=node,
                node_config=config,
                state=RecordDict(),
                run_config={"state": "/chosen/by/the/server"},
            )
            self._replies[identifier] = app(message, context)
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


def grid_of(federation: LocalFederation) -> LocalGrid:
    """A grid whose nodes are numbered in another order than the silos."""
    names = reversed(federation.roster.names)
    return LocalGrid({1000 + number: federation.folder(name) for number, name in enumerate(names)})


def driver(federation: LocalFederation) -> FlowerDriver:
    """The driver to silos that are opened from their folders."""
    return FlowerDriver(grid_of(federation), federation.roster.names)
