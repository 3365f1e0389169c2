"""The Flower adapter over a grid in this process: every message starts a silo from its disk, as a
SuperNode does.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from sumus.books import Ledger
from sumus.data import load
from sumus.engines.flower.client_app import app
from sumus.engines.flower.driver import FlowerDriver
from sumus.engines.flower.on_this_machine import write_app
from sumus.errors import EngineError
from sumus.parties import SecureSum, ServerParty
from sumus.training import prepare
from support.local_federation import QUICK, LocalFederation, plan
from support.small_federation import simulated


class LocalGrid:
    """What the driver uses of Flower's grid, with the silos' apps called on the spot."""

    def __init__(self, folders: dict[int, Path]) -> None:
        self._folders, self._replies, self._numbers = folders, {}, itertools.count()
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


@pytest.fixture
def across(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalFederation:
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "9")
    for part in ("_task_id", "_run_id", "_node_id"):
        # what a task's process of the engine knows of itself
        monkeypatch.setattr(TaskIdentity, part, 1)
    made = LocalFederation(tmp_path, plan({"federation.silos": 3, "federation.rounds": 2}), seed=9)
    for number in range(3):
        made.stop(number)  # only their folders are needed
    for name in made.roster.names:
        (made.folder(name) / "site.toml").write_text('data = "digits"\n')
        (made.folder(name) / "policy.toml").write_text("")
    return made


def test_a_process_per_message_gives_the_same_model(across: LocalFederation) -> None:
    grid = LocalGrid(
        {
            1000 + number: across.folder(name)
            for number, name in enumerate(reversed(across.roster.names))
        }
    )
    driver = FlowerDriver(grid, across.roster.names)
    summing = SecureSum(across.agreement, across.roster, driver, patience=QUICK)
    server = ServerParty(across.agreement, summing)
    server.greet()
    records = list(server.train(across.run_folder(void="public seed")))
    assert [record.survivors for record in records] == [across.roster.names] * 2
    design = across.agreement.design
    alone = simulated(design, prepare(design.plan, load(design.plan)), 9)
    list(alone.rounds())
    assert np.array_equal(alone.server.parameters, server.server.parameters)
    assert len(Ledger.of_dataset("digits", state=across.folder("silo-0")).entries()) == 2


def test_a_node_that_never_answers_is_a_silo_that_does_not_answer(across: LocalFederation) -> None:
    nodes = {1000 + number: across.folder(name) for number, name in enumerate(across.roster.names)}
    grid = LocalGrid(nodes)
    driver = FlowerDriver(grid, across.roster.names)
    assert set(driver.exchange(dict.fromkeys(range(3), b"\xff"), deadline_seconds=60.0)) == {
        0,
        1,
        2,
    }
    grid.errors.add(1001)
    assert set(driver.exchange(dict.fromkeys(range(3), b"\xff"), deadline_seconds=3.0)) == {0, 2}


@pytest.mark.parametrize("kind", ["query", "query.name"])
def test_attack_read_a_silos_folders_from_its_errors(across: LocalFederation, kind: str) -> None:
    """Flower sends the server what an exception says; whatever is wrong with a silo's folder, its
    path is not in it.
    """
    folder = across.folder("silo-0")
    folder.chmod(0o755)  # open to others, so the silo refuses to use it
    message = Message(
        RecordDict({"sumus": ConfigRecord({"bytes": b""})}), dst_node_id=1, message_type=kind
    )
    context = Context(
        run_id=1, node_id=1, node_config={"state": str(folder)}, state=RecordDict(), run_config={}
    )
    with pytest.raises(EngineError, match="cannot open its own folder") as told:
        app(message, context)
    assert str(folder) not in str(told.value)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"sumus": ConfigRecord({})},
        {"sumus": ConfigRecord({"bytes": 7})},
        {"sumus": MetricRecord({})},
    ],
)
def test_a_node_that_answers_in_another_form_harms_nobody_else(
    across: LocalFederation, content: dict[str, ConfigRecord]
) -> None:
    grid = LocalGrid(
        {1000 + number: across.folder(name) for number, name in enumerate(across.roster.names)}
    )
    driver = FlowerDriver(grid, across.roster.names)
    good = driver.exchange(dict.fromkeys(range(3), b"\xff"), deadline_seconds=60.0)
    grid.instead[1001] = content
    assert driver.exchange(dict.fromkeys(range(3), b"\xff"), deadline_seconds=60.0) == {
        **good,
        1: b"",
    }


def test_an_app_of_ours_holds_no_code(across: LocalFederation, tmp_path: Path) -> None:
    app_folder = write_app(
        tmp_path / "app", across.agreement, server_folder=tmp_path, patience={"set-up": 1.0}
    )
    assert [path.name for path in app_folder.rglob("*") if path.is_file()] == ["pyproject.toml"]
