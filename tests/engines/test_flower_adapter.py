"""The Flower adapter over a grid in this process: every message starts a silo from its disk, as a
SuperNode does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from sumus.books import Ledger
from sumus.data import load
from sumus.engines import ENGINES, Address, make_federation
from sumus.engines.flower.driver import FlowerDriver
from sumus.engines.flower.jobs import write_app
from sumus.engines.flower.records import body_of, record_of
from sumus.errors import EngineError
from sumus.parties import SecureSum, ServerParty
from sumus.training import prepare
from support.carriers.flower import DriverWithVaults, call, driver
from support.local_federation import QUICK, LocalFederation, federation_of_folders
from support.small_federation import simulated


@pytest.fixture
def across(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalFederation:
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "9")
    return federation_of_folders(tmp_path, seed=9)


@pytest.fixture
def carried(across: LocalFederation) -> Iterator[DriverWithVaults]:
    made = driver(across)
    yield made
    made.close()


def test_a_process_per_message_gives_the_same_model(
    across: LocalFederation, carried: DriverWithVaults
) -> None:
    summing = SecureSum(
        across.agreement, across.roster, carried, identity=across.identity, patience=QUICK
    )
    server = ServerParty(across.agreement, summing)
    server.greet()
    records = list(server.train(across.run_folder(void="public seed")))
    assert [record.survivors for record in records] == [across.roster.names] * 2
    alone = simulated(
        across.agreement.design, prepare(across.agreement.plan, load(across.agreement.plan)), 9
    )
    list(alone.rounds())
    assert np.array_equal(alone.server.parameters, server.server.parameters)
    assert len(Ledger.of_dataset("digits", state=across.folder("silo-0")).entries()) == 2


def test_a_node_that_never_answers_is_a_silo_that_does_not_answer(
    carried: DriverWithVaults,
) -> None:
    asked = dict.fromkeys(range(3), b"\xff")
    assert set(carried.exchange(asked, deadline_seconds=60.0)) == {0, 1, 2}
    carried.grid.errors.add(1001)
    assert set(carried.exchange(asked, deadline_seconds=3.0)) == {0, 2}


def test_attack_read_a_silos_folders_from_its_errors(tmp_path: Path) -> None:
    """Flower sends the server what an exception says; whatever is wrong at the silo, no path is in
    it.
    """
    message = Message(record_of(b""), dst_node_id=1, message_type="query")
    with pytest.raises(EngineError, match="the silo's vault gives no answer") as told:
        call(tmp_path / "no vault", message)
    assert str(tmp_path) not in str(told.value)


def test_attack_take_another_silos_place_as_a_node_of_ones_own(carried: DriverWithVaults) -> None:
    """Which silo a node is, is what the server has registered its key as; the control is a server
    that registered the attacker's node under the victim's name.
    """
    attacker = dict(record_of(b"attacker"))
    carried.grid._sockets[2000] = carried.grid._sockets[1001]  # a node that the kit does not name
    carried.grid.instead[2000] = attacker
    asked = dict.fromkeys(range(3), b"\xff")
    honest = carried.exchange(asked, deadline_seconds=60.0)
    assert len(honest) == 3
    assert b"attacker" not in honest.values()
    names = ("silo-0", "silo-1", "silo-2")
    fooled = FlowerDriver(carried.grid, names, {**carried.nodes, 2000: "silo-1"})
    assert fooled.exchange(asked, deadline_seconds=60.0)[1] == b"attacker"


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"sumus": ConfigRecord({})},
        {"sumus": ConfigRecord({"bytes": b"in one piece"})},
        {"sumus": ArrayRecord()},
        {"sumus": ArrayRecord({"bytes": Array(np.zeros(3))})},
        {"sumus": MetricRecord({})},
    ],
)
def test_a_node_that_answers_in_another_form_harms_nobody_else(
    carried: DriverWithVaults, content: dict[str, Any]
) -> None:
    asked = dict.fromkeys(range(3), b"\xff")
    good = carried.exchange(asked, deadline_seconds=60.0)
    carried.grid.instead[1001] = content
    assert carried.exchange(asked, deadline_seconds=60.0) == {**good, 1: b""}


@pytest.mark.parametrize("size", [0, 1, 5 << 20, (5 << 20) + 1, 23_456_789])
def test_a_large_message_is_carried_in_pieces_of_bounded_size(size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    content = record_of(body[:size])
    assert body_of(content) == body[:size]
    (array,) = content.array_records["sumus"].values()
    pieces = [len(piece.data) for _, piece in array.slice_array()]
    assert sum(pieces) == size
    assert max(pieces, default=0) <= 5 << 20
    # as the engine sends it: every object by itself, and put together again
    objects = {name: each.deflate() for name, each in get_all_nested_objects(content).items()}
    assert max(map(len, objects.values())) < (5 << 20) + 4096
    assert body_of(inflate_object_from_contents(content.object_id, objects)) == body[:size]


def test_an_app_of_ours_holds_no_code(across: LocalFederation, tmp_path: Path) -> None:
    app_folder = write_app(
        tmp_path / "app", across.agreement, rounds=2, patience={"set_up_seconds": 1.0}
    )
    assert [path.name for path in app_folder.rglob("*") if path.is_file()] == ["pyproject.toml"]


def test_attack_run_code_at_a_silo_whose_server_others_can_reach(tmp_path: Path) -> None:
    """Whoever reaches a SuperLink can submit code: kits are made for, and joined on, one machine."""
    options: dict[str, Any] = {"engine": "flower", "silos": ["a", "b"], "public_keys": None}
    with pytest.raises(EngineError, match=r"fl\.example\.org:8000 would run the code of whoever"):
        make_federation(
            tmp_path / "far", address=Address("fl.example.org", 8000), agreement=None, **options
        )
    near = make_federation(
        tmp_path / "near", address=Address("localhost", 8000), agreement=None, **options
    )
    kit = near.kit("a")
    assert ENGINES["flower"].join(kit)
    (kit / "kit.toml").write_text((kit / "kit.toml").read_text().replace("localhost", "10.0.0.1"))
    with pytest.raises(EngineError, match=r"10\.0\.0\.1:8000 would run the code of whoever"):
        ENGINES["flower"].join(kit)
