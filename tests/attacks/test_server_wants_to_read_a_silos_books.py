"""A server wants to learn a silo's limits, what it has spent, what its records say or where they
lie, from how it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from oracles.secagg_federation import round_id
from sumus.books import Policy
from sumus.data import FederatedData
from sumus.errors import DataError, GuaranteeError, PlanError, StorageError
from sumus.parties import work_on
from sumus.parties.sums import pack_model
from sumus.randomness import RandomSource
from sumus.secagg import Identity, Roster, decode_any
from support.local_federation import LocalFederation, plan, refused

SECRET = "record 17 of patient Smith in /vault/ward.csv, 4711 in all"
Build = Callable[..., LocalFederation]


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    made: list[LocalFederation] = []

    def make(**options: object) -> LocalFederation:
        made.append(LocalFederation(tmp_path, plan(), **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.close()


def told_and_kept(across: LocalFederation, message: bytes) -> tuple[str, str]:
    """What silo 0 tells the server, and what it tells its own people."""
    return refused(across.ask(0, message)), (across.folder("silo-0") / "refusals.log").read_text()


def test_by_asking_for_a_plan_over_the_policy(build: Build) -> None:
    across = build(policies={"silo-0": Policy(max_epsilon=1.2345)})
    told, kept = told_and_kept(across, across.greeting())
    assert (
        told
        == "this is over the policy of silo 'silo-0'. Its own people find the reason in its refusals.log."
    )
    assert "max_epsilon = 1.2345" in kept


def test_by_asking_for_a_release_that_the_ledger_has_no_room_for(build: Build) -> None:
    """The plan fits when it is agreed to; by the time of its round other runs have spent the
    rest.
    """
    across = build()
    server = across.server()
    server.greet()
    assert server.summing._session is not None
    admitted = next(iter(across.parties[0]._admitted.values()))
    object.__setattr__(admitted.releases, "policy", Policy(max_epsilon=0.0123))
    payload = pack_model(0, np.zeros(across.agreement.plan.training.dimension or 0))
    told, kept = told_and_kept(
        across,
        server.summing._session.invite(round_id("full"), payload=payload)[1],
    )
    assert (
        told
        == "this is over the policy of silo 'silo-0'. Its own people find the reason in its refusals.log."
    )
    assert "max_epsilon = 0.0123, but all 1 runs on the ledger" in kept


@pytest.mark.parametrize(
    "error",
    [
        DataError(SECRET),
        GuaranteeError(SECRET),
        PlanError("data.path", SECRET, "must be", SECRET),
        StorageError(SECRET),
        ValueError(SECRET),
    ],
    ids=lambda error: type(error).__name__,
)
def test_by_making_the_silo_stumble_over_its_records(build: Build, error: Exception) -> None:
    across = build()

    def stumble(*_: object, **__: object) -> FederatedData:
        raise error

    across.parties[0]._open_work = work_on(stumble)
    told, kept = told_and_kept(across, across.greeting())
    assert SECRET in kept
    assert not [word for word in SECRET.split() if len(word) > 3 and word in told]


def test_by_asking_a_silo_with_another_roster(build: Build) -> None:
    """The names of those whom a silo works with elsewhere are not the server's business."""
    across = build()
    own = Identity.parse((across.folder("silo-0") / "identity.key").read_text())
    others = [
        Identity.generate(name, RandomSource()) for name in ("clinic-a", "clinic-b", "clinic-c")
    ]
    (across.folder("silo-0") / "roster.toml").write_text(
        Roster.of(across.identity, (own, *others)).to_text()
    )
    told = refused(decode_any(across.parties[0].handle(across.greeting())))
    assert "Compare plan and roster" in told
    assert "clinic" not in told
