"""A server wants silos to begin with a model of its choice where the plan names a released one: a
fresh one, a poisoned one, or one of a run that nobody paid for.

It costs no privacy (every model is one that a server may send), and a hostile server can send what
it likes in later rounds; what is held is that a run which says where it began did begin there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sumus.books import Ledger, RunFolder
from sumus.errors import EngineError, ProtocolError
from sumus.parties import SecureSum, ServerParty, model_hash
from support.local_federation import QUICK, LocalFederation, plan

RELEASED = np.full(650, 0.125)
POISONED = np.full(650, 5.0)


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[LocalFederation]:
    made = LocalFederation(tmp_path, plan({"training.start_from": model_hash(RELEASED)}))
    yield made
    made.close()


def served(federation: LocalFederation, start: np.ndarray | None) -> ServerParty:
    summing = SecureSum(
        federation.agreement,
        federation.roster,
        federation.driver,
        identity=federation.identity,
        patience=QUICK,
    )
    return ServerParty(federation.agreement, summing, start=start)


def entries(federation: LocalFederation, name: str) -> int:
    return len(Ledger.of_dataset("digits", state=federation.folder(name)).entries())


@pytest.mark.parametrize("start", [POISONED, None], ids=["its own", "a fresh one"])
def test_a_model_that_the_plan_does_not_name_is_refused_and_costs_nothing(
    federation: LocalFederation, start: np.ndarray | None
) -> None:
    server = served(federation, start)
    server.greet()
    with pytest.raises((ProtocolError, EngineError)):
        list(server.train(federation.run_folder()))
    refusals = list(server.refusals.values())
    assert refusals
    assert all("the plan starts from the model sha256:" in reason for reason in refusals)
    for name in federation.roster.names:
        assert entries(federation, name) == 0


def test_the_named_model_is_answered(federation: LocalFederation) -> None:
    """The control: the same server with the model of the plan trains to the end."""
    server = served(federation, RELEASED)
    server.greet()
    run: RunFolder = federation.run_folder()
    assert len(list(server.train(run))) == 3
    for name in federation.roster.names:
        assert entries(federation, name) == 3


def test_without_a_named_model_any_is_answered(tmp_path: Path) -> None:
    """The control: what the plan does not say no silo can check."""
    free = LocalFederation(tmp_path / "free", plan())
    try:
        server = served(free, POISONED)
        server.greet()
        assert len(list(server.train(free.run_folder()))) == 3
    finally:
        free.close()


def test_a_server_that_began_with_another_model_is_taken_back_with_the_right_one(
    federation: LocalFederation,
) -> None:
    wrong = served(federation, POISONED)
    wrong.greet()
    with pytest.raises((ProtocolError, EngineError)):
        wrong.round(0)
    right = served(federation, RELEASED)
    right.greet()
    assert len(right.round(0).summed.survivors) == 4
