"""Which messages the engine's cells take in: the rules, and the engine's own cell with and without
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("nvflare")

from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessageType
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.stats_pool import StatsPoolManager

from sumus.engines.nvflare import start
from sumus.engines.nvflare.gate import GatedCell, Route, takes
from sumus.errors import EngineError

JOB, OTHER = "99bcdc83-f763-40d3-89f2-801e7f0ea752", "23e0904c-94c9-4c23-a537-05c31d5c17bc"
SILO, SILO_JOB, SERVER_JOB = "silo-0", f"silo-0.{JOB}", f"server.{JOB}"
CONTROL, COMMAND, STREAM, AUX, NETWORK, BYE = (
    ("admin", "admin"),
    ("client_command", "abort"),
    ("sm__STREAM", "sm__DATA"),
    ("aux_communication", "sumus"),
    ("_net_manager", "change_root"),
    ("cellnet.channel", "bye"),
)
BULK = ("cellnet.channel", "bulk")

# cell, neighbour, origin, destination, (channel, topic): everything that an honest job of five
# rounds was seen to send
NEEDED = [
    (SILO, "server", "server", SILO, CONTROL),
    (SILO, SILO_JOB, SILO_JOB, SILO, ("admin", "train.notify_job_status")),
    (SILO, SILO_JOB, SILO_JOB, SILO, BYE),
    (SILO, "server", "server", SILO, BYE),
    (SILO_JOB, "server", SERVER_JOB, SILO_JOB, STREAM),
    (SILO_JOB, "server", SERVER_JOB, SILO_JOB, ("sm__STREAM", "sm__ACK")),
    (SILO_JOB, "server", SERVER_JOB, SILO_JOB, AUX),
    (SILO_JOB, SILO, SILO, SILO_JOB, COMMAND),
    (SILO_JOB, SILO, SILO, SILO_JOB, BYE),
    ("server", SILO, SILO, "server", ("task", "heart_beat")),
    ("server", SILO_JOB, SILO_JOB, SERVER_JOB, STREAM),
    ("server", SILO_JOB, SILO_JOB, "server", BYE),
    ("server", SERVER_JOB, SERVER_JOB, SILO_JOB, STREAM),
    ("server", SERVER_JOB, SERVER_JOB, "server", ("server_parent_listener", "heartbeat")),
    ("server", "_admin_1", "_admin_1", "server", STREAM),
]
REFUSED = [
    (SILO, "server", "silo-1", SILO, CONTROL),  # another silo, through the server
    (SILO, "server", f"silo-1.{JOB}", SILO, CONTROL),
    # another silo, connected directly, in the server's name
    (SILO, "silo-1", "server", SILO, CONTROL),
    (SILO, "silo-1", "silo-1", SILO, BYE),
    (SILO, SILO_JOB, "server", SILO, CONTROL),
    (SILO, "silo-01", "silo-01", SILO, CONTROL),  # a name that begins like ours
    (SILO, "server", "server", SILO, NETWORK),
    # a parcel of messages that are not looked at one by one
    (SILO, "server", "server", SILO, BULK),
    (SILO, "server", "server", SILO, STREAM),
    (SILO, "server", "server", SILO, AUX),
    (SILO, "server", "server", "silo-1", CONTROL),  # not for us, nor for a job of ours
    (SILO_JOB, "server", "silo-1", SILO_JOB, AUX),
    (SILO_JOB, "server", f"silo-1.{JOB}", SILO_JOB, STREAM),
    # the server's process of another job
    (SILO_JOB, "server", f"server.{OTHER}", SILO_JOB, STREAM),
    (SILO_JOB, "silo-1", SERVER_JOB, SILO_JOB, STREAM),
    (SILO_JOB, "server", "server", SILO_JOB, COMMAND),
    (SILO_JOB, "server", SERVER_JOB, SILO_JOB, COMMAND),
    (SILO_JOB, "server", SILO, SILO_JOB, COMMAND),
    (SILO_JOB, "server", SERVER_JOB, SILO_JOB, NETWORK),
    (SILO_JOB, "server", SERVER_JOB, SILO, STREAM),
    ("server", "silo-1", "silo-1", SILO, CONTROL),
    ("server", "silo-1", "silo-1", SILO_JOB, AUX),
    ("server", f"silo-1.{JOB}", f"silo-1.{JOB}", SILO_JOB, STREAM),
    ("server", "silo-1", "server", SILO, CONTROL),  # with a token that the server has forgotten
    ("server", "silo-1", SERVER_JOB, SILO_JOB, STREAM),
    ("server", "silo-1", SILO, "server", ("task", "quit")),
    ("server", "_admin_1", "_admin_1", SILO, CONTROL),
]


def route(row: tuple[Any, ...]) -> tuple[str, Route]:
    me, neighbour, origin, destination, (channel, topic) = row
    return me, Route(
        neighbour=neighbour, origin=origin, destination=destination, channel=channel, topic=topic
    )


@pytest.mark.parametrize("row", NEEDED, ids=str)
def test_what_an_honest_job_sends_is_taken_in(row: tuple[Any, ...]) -> None:
    assert takes(*route(row))


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_what_no_job_of_ours_sends_is_refused(row: tuple[Any, ...]) -> None:
    assert not takes(*route(row))


# -- in the engine's cells


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The engine's own cell and ours, of a silo; they are never started."""
    made = {}
    for kind in (Cell, GatedCell):
        CoreCell.ALL_CELLS.pop(SILO, None)
        monkeypatch.setattr(StatsPoolManager, "pools", {})  # kept by name in the whole process
        made[kind.__name__] = kind(
            fqcn=SILO, root_url="tcp://localhost:1", secure=False, credentials={}
        )
    yield made
    CoreCell.ALL_CELLS.pop(SILO, None)


def arrive(
    cell: Any,
    neighbour: str,
    *,
    origin: str,
    channel: str = "admin",
    topic: str = "admin",
    **headers: Any,
) -> list[Any]:
    """Let a message arrive at a cell that does whatever it is told; returns what it was told."""
    told: list[Any] = []
    cell.register_request_cb(
        channel=channel, topic="*", cb=lambda message: told.append(message.payload)
    )
    fields = {
        MessageHeaderKey.MSG_TYPE: MessageType.REQ,
        MessageHeaderKey.ORIGIN: origin,
        MessageHeaderKey.FROM_CELL: neighbour,
        MessageHeaderKey.DESTINATION: SILO,
        MessageHeaderKey.CHANNEL: channel,
        MessageHeaderKey.TOPIC: topic,
        MessageHeaderKey.REQ_ID: "1",
    }
    cell.core_cell.process_message(Endpoint(neighbour), None, 1, Message(fields | headers, None))
    return told


def test_a_silo_hears_the_server_and_no_other_silo(cells: dict[str, Any]) -> None:
    assert arrive(cells["GatedCell"], "server", origin="server")
    assert not arrive(cells["GatedCell"], "server", origin="silo-1")
    assert not arrive(cells["GatedCell"], "silo-1", origin="server")
    assert not arrive(
        cells["GatedCell"], "server", origin="server", channel="_net_manager", topic="change_root"
    )


def test_the_engines_own_cell_hears_everybody(cells: dict[str, Any]) -> None:
    """The control of the test above."""
    assert arrive(cells["Cell"], "server", origin="silo-1")
    assert arrive(cells["Cell"], "silo-1", origin="server")
    assert arrive(
        cells["Cell"], "server", origin="server", channel="_net_manager", topic="change_root"
    )


@pytest.mark.parametrize(("kind", "connects"), [("Cell", True), ("GatedCell", False)])
@pytest.mark.parametrize("message", [MessageType.REQ, MessageType.REPLY])
def test_a_silo_connects_to_no_address_that_a_message_offers(
    cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch, kind: str, connects: bool, message: str
) -> None:
    offered: list[str] = []
    monkeypatch.setattr(
        cells[kind].core_cell, "_add_adhoc_connector", lambda cell, url: offered.append(url)
    )
    headers = {
        MessageHeaderKey.CONN_URL: "tcp://attacker:1",
        MessageHeaderKey.MSG_TYPE: message,
        MessageHeaderKey.FROM_CELL: "relay",
    }
    arrive(cells[kind], "server", origin="server", **headers)
    assert offered == (["tcp://attacker:1"] if connects else [])


# -- before the engine starts


def test_our_classes_stand_where_the_engine_looks_for_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from nvflare.private.fed.client import admin, fed_client_base
    from nvflare.private.fed.server import fed_server

    for module, name in ((admin, "FedAdminAgent"), (fed_client_base, "Cell"), (fed_server, "Cell")):
        monkeypatch.setattr(module, name, getattr(module, name))  # put back afterwards
    assert start.stand_before(start.SILO).endswith("client_train")
    assert admin.FedAdminAgent is start.SiloAgent
    assert fed_client_base.Cell is GatedCell
    fed_client_base.Cell = Cell
    assert start.stand_before(start.SILO_JOB).endswith("worker_process")
    assert fed_client_base.Cell is GatedCell
    assert fed_server.Cell is Cell
    assert start.stand_before(start.SERVER).endswith("server_train")
    assert fed_server.Cell is GatedCell


def test_another_release_of_the_engine_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start.nvflare, "__version__", "2.9.1")
    with pytest.raises(EngineError, match=r"nvflare must be 2\.9\.0, got 2\.9\.1"):
        start.stand_before(start.SILO)
