"""Which messages the engine's cells take in: the rules, and the engine's own cell with and without
them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
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
from sumus.engines.nvflare.gate import GatedCell, Route, on_interface, takes
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
ACK, PIECE = ("sm__STREAM", "sm__ACK"), ("sm__STREAM", "sm__DATA")


def piece(channel: str, topic: str) -> tuple[str, str, str, str]:
    """A piece of a streamed message."""
    return (*PIECE, channel, topic)


SYNC, BEAT = (
    piece("aux_communication", "__sync_runner__"),
    piece("aux_communication", "__job_heartbeat__"),
)
OURS, END = piece("aux_communication", "sumus"), piece("aux_communication", "__end_run__")
ANSWER, WORK = piece("return_only", "aux_communication:sumus"), piece("server_command", "get_task")
ABORT, LISTENER = ("server_command", "abort"), ("server_parent_listener", "update_run_status")

# cell, neighbour, origin, destination, (channel, topic): everything that an honest job of five
# rounds was seen to send
NEEDED = [
    (SILO, "server", "server", SILO, CONTROL),
    (SILO, SILO_JOB, SILO_JOB, SILO, ("admin", "train.notify_job_status")),
    (SILO, SILO_JOB, SILO_JOB, SILO, BYE),
    (SILO, "server", "server", SILO, BYE),
    (SILO_JOB, "server", SERVER_JOB, SILO_JOB, OURS),
    (SILO_JOB, "server", SERVER_JOB, SILO_JOB, END),
    (SILO_JOB, "server", SERVER_JOB, SILO_JOB, piece("return_only", "server_command:get_task")),
    (SILO_JOB, "server", SERVER_JOB, SILO_JOB, ACK),
    (SILO_JOB, "server", SERVER_JOB, SILO_JOB, AUX),
    (SILO_JOB, SILO, SILO, SILO_JOB, COMMAND),
    (SILO_JOB, SILO, SILO, SILO_JOB, BYE),
    ("server", SILO, SILO, "server", ("task", "heart_beat")),
    ("server", SILO, SILO, "server", ("task", "challenge")),
    ("server", SILO, SILO, "server", ("task", "report_job_failure")),
    ("server", SILO, SILO, "server", BYE),
    ("server", SILO_JOB, SILO_JOB, SERVER_JOB, WORK),
    ("server", SILO_JOB, SILO_JOB, "server", BYE),
    ("server", SERVER_JOB, SERVER_JOB, SILO_JOB, OURS),
    ("server", SERVER_JOB, SERVER_JOB, "server", ("server_parent_listener", "heartbeat")),
    (
        "server",
        SERVER_JOB,
        SERVER_JOB,
        "server",
        piece("return_only", "server_command:app_command"),
    ),
    ("server", SERVER_JOB, SERVER_JOB, "server", ACK),
    ("server", "_admin_1", "_admin_1", "server", piece("hci_channel", "command")),
    (
        "server",
        "_admin_1",
        "_admin_1",
        "server",
        piece("aux_communication", "ObjectStreamer.Request"),
    ),
    (
        "server",
        "_admin_1",
        "_admin_1",
        "server",
        piece("download_service__", "download_service__download"),
    ),
    ("server", "_admin_1", "_admin_1", "server", ("task", "register")),
    ("server", "_admin_1", "_admin_1", "server", ACK),
    (SERVER_JOB, "server", "server", SERVER_JOB, piece("server_command", "app_command")),
    (SERVER_JOB, "server", "server", SERVER_JOB, ABORT),
    (SERVER_JOB, "server", "server", SERVER_JOB, ACK),
    (SERVER_JOB, "server", SILO_JOB, SERVER_JOB, SYNC),
    (SERVER_JOB, "server", SILO_JOB, SERVER_JOB, BEAT),
    (SERVER_JOB, "server", SILO_JOB, SERVER_JOB, WORK),
    (SERVER_JOB, "server", SILO_JOB, SERVER_JOB, ANSWER),
    (SERVER_JOB, "server", SILO_JOB, SERVER_JOB, ACK),
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
    # the server's process of the job, over a stream
    (SILO_JOB, "server", SERVER_JOB, SILO_JOB, piece(*NETWORK)),
    (SILO_JOB, "server", SERVER_JOB, SILO_JOB, piece("aux_communication", "fed.event")),
    (SILO_JOB, "server", SERVER_JOB, SILO_JOB, piece(*COMMAND)),
    (SILO_JOB, "server", SERVER_JOB, SILO_JOB, PIECE),  # of nothing that could be looked at
    (SILO, "server", "server", SILO, piece(*CONTROL)),
    # silos that command the server, or speak as its job process
    ("server", SILO, SILO, "server", LISTENER),
    ("server", SILO_JOB, SILO_JOB, "server", LISTENER),
    ("server", SILO, SILO, "server", ("_net_manager", "stop")),
    ("server", SILO, SILO, "server", piece("_net_manager", "stop_cell")),
    ("server", SILO, SILO, "server", piece("hci_channel", "command")),
    ("server", SILO_JOB, SILO_JOB, "server", ("task", "quit")),
    ("server", SILO, SILO, "server", AUX),
    ("server", SILO, SILO, "server", BULK),
    ("server", "_admin_1", "_admin_1", "server", LISTENER),
    ("server", "_admin_1", "_admin_1", "server", NETWORK),
    # silos that command the server's process of a job
    (SERVER_JOB, "server", SILO, SERVER_JOB, ABORT),
    (SERVER_JOB, "server", SILO_JOB, SERVER_JOB, ABORT),
    (SERVER_JOB, "server", SILO_JOB, SERVER_JOB, piece(*ABORT)),
    (SERVER_JOB, "server", SILO_JOB, SERVER_JOB, piece("server_command", "shutdown")),
    (SERVER_JOB, "server", SILO_JOB, SERVER_JOB, piece("server_command", "configure_job_log")),
    # what cannot be decoded would end the job's process
    (SERVER_JOB, "server", SILO_JOB, SERVER_JOB, piece("server_command", "submit_update")),
    (SERVER_JOB, "server", SILO_JOB, SERVER_JOB, piece("aux_communication", "fed.event")),
    (SERVER_JOB, "server", SILO_JOB, SERVER_JOB, ("_net_manager", "stop")),
    (SERVER_JOB, "server", f"silo-1.{OTHER}", SERVER_JOB, WORK),  # of another job
    (SERVER_JOB, "server", SERVER_JOB, SERVER_JOB, ABORT),
    (SERVER_JOB, SILO_JOB, SILO_JOB, SERVER_JOB, WORK),  # connected directly
    (SERVER_JOB, "server", "_admin_1", SERVER_JOB, ABORT),
]


def route(row: tuple[Any, ...]) -> tuple[str, Route]:
    me, neighbour, origin, destination, (channel, topic, *carried) = row
    return me, Route(
        neighbour=neighbour,
        origin=origin,
        destination=destination,
        channel=channel,
        topic=topic,
        carries=tuple(carried) or None,
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


def test_a_silo_hears_the_server_and_no_other_silo(
    cells: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert arrive(cells["GatedCell"], "server", origin="server")
    assert not arrive(cells["GatedCell"], "server", origin="silo-1")
    assert any(
        line.startswith("gate.refused neighbour=server origin=silo-1") for line in caplog.messages
    )
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


@pytest.mark.parametrize(
    ("url", "bound"),
    [
        ("tcp://0:8002", "tcp://10.0.0.7:8002"),
        ("tcp://0:8002?admin=true", "tcp://10.0.0.7:8002?admin=true"),
        ("stcp://localhost:8002", "stcp://10.0.0.7:8002"),
    ],
)
def test_a_listener_is_put_on_one_interface(url: str, bound: str) -> None:
    assert on_interface(url, "10.0.0.7") == bound


# -- the server's process of a job


@pytest.mark.parametrize("origin", ["silo-1", f"silo-1.{JOB}"])
@pytest.mark.parametrize(("kind", "obeys"), [(Cell, True), (GatedCell, False)])
def test_no_silo_commands_the_servers_process_of_a_job(
    kind: type, obeys: bool, origin: str
) -> None:
    """The control: the engine's own cell obeys a silo's word, unasked for any right."""
    # in a process of its own: the engine's agent leaves marks in the process that it runs in
    done = subprocess.run(
        [sys.executable, "-m", "support.server_job", kind.__name__, SERVER_JOB, origin],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {"by a silo": obeys, "by the server": True}


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
    fed_server.Cell = Cell
    assert start.stand_before(start.SERVER_JOB).endswith("runner_process")
    assert fed_server.Cell is GatedCell


def test_another_release_of_the_engine_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start.nvflare, "__version__", "2.9.1")
    with pytest.raises(EngineError, match=r"nvflare must be 2\.9\.0, got 2\.9\.1"):
        start.stand_before(start.SILO)


def test_the_server_hears_the_silos_of_its_roster_alone() -> None:
    """A certificate outlasts a silo's place on the roster; and the control: without a roster any
    certified silo is heard.
    """
    for row in NEEDED:
        cell, asked = route(row)
        if cell == "server":
            assert takes(cell, asked)
            assert takes(cell, asked, frozenset({SILO, "silo-1"}))
            retired = takes(cell, asked, frozenset({"silo-1", "silo-2"}))
            assert retired != asked.neighbour.startswith(SILO)
