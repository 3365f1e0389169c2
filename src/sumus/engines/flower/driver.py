"""The server's end of the engine: pushes one message per node and pulls replies until all are there
or the deadline passes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, final

from flwr.app import Message

from sumus.engines.flower.records import body_of, record_of

__all__ = ["FlowerDriver"]

_PAUSE_SECONDS = 0.2


@final
class FlowerDriver:
    """Carries messages to the SuperNodes.

    Guarantee: a silo is the node whose key the server's kit has under the silo's name; no node
        takes another's place by what it says.

    Args:
        grid: the run's grid.
        names: name of every silo number.
        nodes: name of every node, as the server registered their keys.
        locate_seconds: how long to wait for nodes to be online.
    """

    def __init__(
        self,
        grid: Any,
        names: tuple[str, ...],
        nodes: Mapping[int, str],
        *,
        locate_seconds: float = 90.0,
    ) -> None:
        self._grid, self._names, self._locate_seconds = grid, names, locate_seconds
        self._node_of = {name: node for node, name in nodes.items()}

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_seconds: float
    ) -> Mapping[int, bytes]:
        """See `Driver.exchange`."""
        until = time.monotonic() + deadline_seconds
        online = self._online(
            {self._node_of[self._names[silo]] for silo in messages if self._knows(silo)},
            until=min(until, time.monotonic() + self._locate_seconds),
        )
        there = {
            self._node_of[self._names[silo]]: silo
            for silo in messages
            if self._knows(silo) and self._node_of[self._names[silo]] in online
        }
        answers = self._ask({node: messages[silo] for node, silo in there.items()}, until=until)
        return {there[node]: answer for node, answer in answers.items()}

    def _knows(self, silo: int) -> bool:
        return self._names[silo] in self._node_of

    def _online(self, wanted: set[int], *, until: float) -> set[int]:
        """Which nodes are there; waits for those that are wanted."""
        while not wanted <= (online := set(self._grid.get_node_ids())):
            if time.monotonic() >= until:
                break
            time.sleep(_PAUSE_SECONDS)
        return online

    def _ask(self, bodies: Mapping[int, bytes], *, until: float) -> dict[int, bytes]:
        left = max(until - time.monotonic(), 1.0)
        asked = [
            Message(
                record_of(body),
                dst_node_id=node,
                message_type="query",
                ttl=left + 60.0,
            )
            for node, body in bodies.items()
        ]
        waiting = {
            identifier: message.metadata.dst_node_id
            for identifier, message in zip(self._push(asked), asked, strict=True)
        }
        answers: dict[int, bytes] = {}
        while waiting and time.monotonic() < until:
            for reply in self._grid.pull_messages(list(waiting)):
                # error replies come from node 1: match by message
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is not None and not reply.has_error():
                    answers[node] = body_of(reply.content)
            if waiting:
                time.sleep(_PAUSE_SECONDS)
        return answers

    def _push(self, messages: list[Message]) -> list[str]:
        return list(self._grid.push_messages(messages)) if messages else []

    def close(self) -> None:
        """See `Driver.close`; the grid belongs to the run."""
