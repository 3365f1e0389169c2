"""What must hold where one process plays all silos: with the same parties as across machines."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sumus.books import Ledger, NoLedger, Policy, RunFolder
from sumus.data import FederatedData
from sumus.errors import DataError, PeerProtocolError, PolicyError
from sumus.guarantee import NoiseDesign, calibrated, sum_length
from sumus.parties import (
    Agreement,
    InProcess,
    RunSecret,
    Simulation,
    SumsInProcess,
    federation_in_process,
    in_process as module,
)
from sumus.parties.keyed_memory import enrol
from sumus.parties.round import Invited, RoundOutcome, one_round
from sumus.parties.silo import SiloParty
from sumus.parties.sums import pack_model
from sumus.parties.watchers import Watchers
from sumus.parties.wire import plain
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.runs import RunOptions, train
from sumus.secagg import decode_any
from sumus.training import LocalUpdate, prepare
from support.local_federation import LocalFederation, plan, refused
from support.small_data import small_data
from support.small_federation import BASE


def design_of(
    overrides: dict[str, object] | None = None, *, data: FederatedData | None = None
) -> NoiseDesign:
    chosen = TrainingPlan.from_toml(BASE).with_overrides(overrides or {})
    return calibrated(chosen, (data or small_data()).facts())


@dataclass
class Ones:
    """Work of a silo that sends what a test says, and counts how often it was asked."""

    design: NoiseDesign
    value: int = 1
    error: Exception | None = None
    asked: list[bytes] = field(default_factory=list)

    def update(
        self, parameters: np.ndarray, source: RandomSource, seeds: Sequence[bytes], number: int
    ) -> LocalUpdate:
        self.asked.append(source.bytes(8))
        if self.error is not None:
            raise self.error
        return LocalUpdate(np.full(self.design.resolved.dimension, self.value, dtype=np.int64))

    def counts(self, parameters: np.ndarray, source: RandomSource) -> np.ndarray:
        return np.zeros(sum_length(self.design.resolved), dtype=np.int64)


def sums_of(design: NoiseDesign, works: Sequence[Any], **options: Any) -> SumsInProcess:
    bits = RunSecret(b"k" * 32, design.plan.hash)
    agreement = Agreement(design=design, certified=None)
    return SumsInProcess(agreement, works, bits, **({"releases": NoLedger("test")} | options))


EVERYBODY = Invited(frozenset(range(3)))


# -- mistakes


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("protocol", ["secagg", "trusted"])
def test_a_users_mistake_is_an_exception_with_its_fix(protocol: str, threads: int) -> None:
    design = design_of({"aggregation.protocol": protocol})
    works = [Ones(design), Ones(design, error=DataError("labels must be small. Recode them."))]
    sums = sums_of(design, [*works, Ones(design)], threads=threads)
    with pytest.raises(DataError, match="Recode them"):
        sums.sum(0, EVERYBODY, np.zeros(design.resolved.dimension))


def test_the_same_mistake_is_a_refusal_for_a_server() -> None:
    design = design_of({"aggregation.protocol": "trusted"})
    agreement = Agreement(design=design, certified=None)
    _, _, memories = enrol(agreement, range(3), Simulation(1), RandomSource.simulation(1))
    party = SiloParty(
        memories[0],
        work=lambda agreement, name: Ones(design, error=DataError("record 17 is wrong.")),
        releases=lambda agreement: NoLedger("test"),
        agree=lambda plan: agreement,
    )
    payload = pack_model(0, np.zeros(design.resolved.dimension))
    message = plain(bytes.fromhex(design.plan.hash) + bytes(32) + payload)
    assert "17" not in refused(decode_any(party.handle(message)))
    with pytest.raises(DataError, match="record 17"):
        party.answer(message)


def test_across_machines_no_silo_sends_its_vector_in_the_clear(tmp_path: Path) -> None:
    across = LocalFederation(tmp_path, plan())
    agreement = across.agreement
    payload = pack_model(0, np.zeros(agreement.design.resolved.dimension))
    message = plain(bytes.fromhex(agreement.plan.hash) + bytes(32) + payload)
    assert "secure sum only" in refused(across.ask(0, message))
    across.close()
    assert not list(across.folder("silo-0").glob("ledger-*.jsonl"))


# -- what is computed once


def test_silos_of_one_process_do_not_calibrate_for_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sumus.runs import run as runs

    chosen, calls = plan({"federation.rounds": 1}), list[TrainingPlan]()

    def counting(given: TrainingPlan, facts: Any) -> NoiseDesign:
        calls.append(given)
        return calibrated(given, facts)

    monkeypatch.setattr(runs, "calibrated", counting)
    monkeypatch.setattr("sumus.parties.agreement.calibrated", counting)
    train(chosen, options=RunOptions(root=tmp_path, ledger=False))
    assert len(calls) == 1


def test_a_silo_that_only_helps_to_unmask_loads_no_torch() -> None:
    code = (
        "import sys; from sumus.parties import SiloParty, SiloState, work_on, open_party; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- keys, names, numbers


def sessions_of(sums: SumsInProcess, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Digests of the sessions that sums are made in."""
    seen: list[bytes] = []
    real = module.SecureSum.sum

    def listening(self: Any, *arguments: Any) -> Any:
        seen.append(self._session.session)
        return real(self, *arguments)

    monkeypatch.setattr(module.SecureSum, "sum", listening)
    return seen


@pytest.mark.parametrize("removable", [False, True])
def test_removable_noise_has_keys_of_its_own_in_every_round(
    monkeypatch: pytest.MonkeyPatch, removable: bool
) -> None:
    data = small_data(silos=5)
    one_query = {"training.algorithm": "single-step", "federation.local_steps": 1}
    overrides = {**one_query, "noise.removable": removable, "federation.dropouts": 1}
    design = design_of(overrides, data=data)
    parameters, everybody = np.zeros(design.resolved.dimension), Invited(frozenset(range(5)))
    sessions = []
    for _ in range(2):
        sums = sums_of(design, [Ones(design)] * 5)
        with monkeypatch.context() as patch:
            seen = sessions_of(sums, patch)
            for number in range(2):
                sums.sum(number, everybody, parameters)
        sessions.append(seen)
    assert len(set(sessions[0])) == (2 if removable else 1)
    # from the run's secret: a round that is repeated has its keys again
    assert (sessions[0] == sessions[1]) is removable


def test_keys_and_names_of_rounds_belong_to_the_invited_silos(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = small_data(silos=6)
    design = design_of(
        {"federation.selection": "fixed", "federation.selected": 3, "federation.rounds": 6},
        data=data,
    )
    sums = sums_of(design, [Ones(design)] * 6)
    seen = sessions_of(sums, monkeypatch)
    groups, names = [], []
    for number in range(6):
        groups.append(sums.invite(number))
        names.append(sums.sum(number, groups[-1], np.zeros(design.resolved.dimension)).round_id)
    changes = [one != other for one, other in itertools.pairwise(groups)]
    assert any(changes)
    assert [one != other for one, other in itertools.pairwise(seen)] == changes
    assert len(set(names)) == 6


def test_silos_of_any_name_in_any_order_are_called_by_their_names(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    records = {
        name: (rng.normal(size=(30, 6)).astype(np.float32), rng.integers(0, 3, 30))
        for name in ("Zürich, am See", "Bergen", "a" * 80, "Åre", "Oslo")
    }
    overrides = {"federation.dropouts": 1, "federation.rounds": 1}
    run = train(
        TrainingPlan.from_toml(BASE).with_overrides(overrides),
        silos=records,
        classes=3,
        options=RunOptions(root=tmp_path, ledger=False, vanishing={0: {"masked": frozenset({1})}}),
    )
    (entry,) = run.rounds
    assert entry.dropped == ("Bergen",)
    assert entry.survivors == ("Zürich, am See", "a" * 80, "Åre", "Oslo")
    (invited,) = [
        detail["silos"] for event, detail in RunFolder.open(run.path).events if event == "invited"
    ]
    assert invited == list(records)


# -- threads


@pytest.mark.parametrize(("threads", "most"), [(1, 1), (2, 2)])
def test_a_thousand_silos_share_a_few_threads(threads: int, most: int) -> None:
    busy, seen, lock = [0], [0], threading.Lock()

    def answer(message: bytes) -> bytes:
        with lock:
            busy[0] += 1
            seen[0] = max(seen[0], busy[0])
        time.sleep(1e-4)
        with lock:
            busy[0] -= 1
        return message

    driver = InProcess(dict.fromkeys(range(1000), answer), threads)
    messages = {silo: silo.to_bytes(2, "big") for silo in range(1000)}
    assert driver.exchange(messages, deadline_seconds=float("inf")) == messages
    driver.close()
    assert seen[0] <= most


@pytest.mark.long
def test_three_hundred_silos_train_with_the_real_protocol(tmp_path: Path) -> None:
    """Enough for a sparse graph."""
    rng = np.random.default_rng(1)
    records = [
        (rng.normal(size=(2, 6)).astype(np.float32), rng.integers(0, 3, 2)) for _ in range(300)
    ]
    overrides = {"federation.rounds": 1, "federation.local_steps": 1, "privacy.epsilon": 5.0}
    run = train(
        TrainingPlan.from_toml(BASE).with_overrides(overrides),
        silos=records,
        classes=3,
        options=RunOptions(root=tmp_path, ledger=False, threads=2),
    )
    assert len(run.rounds[0].survivors) == 300


# -- releases


def test_nothing_is_drawn_before_its_release_is_entered() -> None:
    design = design_of()
    works = [Ones(design) for _ in range(3)]

    class Refusing:
        def enter(self, number: int, round_id: bytes, purpose: str = "model") -> None:
            raise PolicyError("too much.")

        def require_near(self, number: int, last: int) -> None:
            pass

    with pytest.raises(PolicyError):
        sums_of(design, works, releases=Refusing()).sum(
            0, EVERYBODY, np.zeros(design.resolved.dimension)
        )
    assert not any(work.asked for work in works)


@pytest.mark.parametrize("threads", [1, 3])
def test_silos_of_one_process_enter_a_release_once(threads: int) -> None:
    design, calls = design_of(), []

    class Slow:
        def enter(self, number: int, round_id: bytes, purpose: str = "model") -> None:
            assert not any(work.asked for work in works)
            time.sleep(0.05)
            calls.append((number, purpose))

        def require_near(self, number: int, last: int) -> None:
            pass

    works = [Ones(design) for _ in range(3)]
    sums_of(design, works, releases=Slow(), threads=threads).sum(
        0, EVERYBODY, np.zeros(design.resolved.dimension)
    )
    assert calls == [(0, "model")]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"options": RunOptions(ledger=False)}, "switched off"),
        ({"simulation": Simulation(1)}, "public seed"),
        ({}, None),
    ],
)
def test_the_journal_keeps_why_there_is_no_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], reason: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))
    run = RunFolder.open(train(plan({"federation.rounds": 1}), **given).path)
    assert run.header.no_ledger is None if reason is None else reason in run.header.no_ledger
    assert bool(Ledger.of_dataset("digits").entries()) is (reason is None)


# -- repetitions, work, watchers


def test_a_round_has_the_bits_of_its_number_and_silo_and_no_others() -> None:
    design = design_of()
    first, second = ([Ones(design) for _ in range(3)] for _ in range(2))
    for works in (first, second):
        sums = sums_of(design, works)
        for number in range(2):
            sums.sum(number, EVERYBODY, np.zeros(design.resolved.dimension))
    assert [work.asked for work in first] == [work.asked for work in second]
    assert len({bits for work in first for bits in work.asked}) == 6


def test_a_silo_answers_a_round_once() -> None:
    design = design_of()
    sums = sums_of(design, [Ones(design)] * 3)
    zeros = np.zeros(design.resolved.dimension)
    sums.sum(1, EVERYBODY, zeros)
    for number in (0, 1):
        with pytest.raises(PeerProtocolError, match="answered once"):
            sums.sum(number, EVERYBODY, zeros)


def test_what_a_silo_computes_is_an_argument() -> None:
    design = design_of()
    works = [Ones(design, value=value) for value in (1, -20, 300)]
    summed = sums_of(design, works).sum(0, EVERYBODY, np.zeros(design.resolved.dimension))
    assert set(summed.total_grid.tolist()) == {281}


def test_no_watcher_can_change_what_is_sent() -> None:
    class Scribbler:
        def round_begins(self, number: int, invited: Invited) -> None:
            assert isinstance(invited.silos, frozenset)
            with pytest.raises(AttributeError):
                invited.keys = b"others"

        def round_ends(self, outcome: RoundOutcome) -> None:
            for array in (outcome.update, outcome.summed.total_grid):
                with pytest.raises(ValueError, match="read-only"):
                    array[:] = 0
            outcome.update = outcome.update * 0.0

    data, design = small_data(), design_of()
    models = []
    for watchers in (Watchers(), Watchers((Scribbler(),))):
        party = federation_in_process(
            design, prepare(design.plan, data), Simulation(3), releases=NoLedger("test")
        )
        for number in range(2):
            one_round(number, party.server, party.summing, watchers)
        models.append(party.server.parameters)
    assert np.array_equal(*models)


def test_a_policy_is_asked_before_the_first_round_and_before_every_other(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("max_epsilon = 0.5\n")
    with pytest.raises(PolicyError):
        train(plan(), options=RunOptions(root=tmp_path / "runs", state=tmp_path, policy=policy))
    assert not (tmp_path / "runs").exists()
    assert isinstance(Policy.load(policy), Policy)
