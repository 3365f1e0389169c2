"""Server and silos of a federation as they run across machines, here over the in-process engine."""

from __future__ import annotations

import math
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from oracles.secagg_federation import read
from sumus.books import Ledger, Policy, RunFolder
from sumus.data import load
from sumus.errors import EngineError, GuaranteeError, PlanError, RoundAborted, StorageError
from sumus.files import build_of
from sumus.parties import ServerParty, SiloParty
from sumus.parties.memory import SessionMemory
from sumus.parties.wire import readable
from sumus.runs import finish, is_over, open_run
from sumus.secagg import (
    CipherTexts,
    Greeting,
    Invitation,
    KeyDirectory,
    KeyRing,
    KeySet,
    Welcome,
    decode_any,
)
from sumus.secagg.messages import KeyAdvert, MaskedInput
from sumus.training import prepare
from support.local_federation import QUICK, LocalFederation, plan, refused
from support.small_federation import simulated


@pytest.fixture
def federation(tmp_path: Path):
    built: list[LocalFederation] = []

    def build(overrides=None, **options) -> LocalFederation:
        made = LocalFederation(tmp_path / str(len(built)), plan(overrides), **options)
        built.append(made)
        return made

    yield build
    for each in built:
        each.close()


# -- the same result as in one process


def test_the_model_is_bit_identical_to_the_in_process_run(federation, monkeypatch) -> None:
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "7")
    across = federation(
        {"evaluation.metrics": "secure", "evaluation.every": 2, "training.iterate_average": 0.5},
        seed=7,
    )
    server = across.server()
    server.greet()
    assert server.simulated
    records = list(server.train(across.run_folder(void="public seed")))
    design = across.agreement.design
    alone = simulated(design, prepare(design.plan, load(design.plan)), 7)
    outcomes = list(alone.rounds())
    assert np.array_equal(alone.server.parameters, server.server.parameters)
    assert [outcome.metrics is None for outcome in outcomes] == [True, False, False]
    for record, outcome in zip(records[1:], outcomes[1:], strict=True):
        assert record.metrics == outcome.metrics.numbers
        assert record.metrics_plus_minus == outcome.metrics.plus_minus
    # a public seed promises nothing
    assert {record.epsilon_spent for record in records} == {math.inf}


def test_a_public_seed_is_ignored_without_the_flag_file(federation, monkeypatch) -> None:
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "7")
    sums = []
    for _ in range(2):
        across = federation({"federation.rounds": 1})
        server = across.server()
        server.greet()
        assert not server.simulated
        list(server.train(across.run_folder()))
        sums.append(server.server.parameters)
    assert not np.array_equal(*sums)


def test_a_simulation_cannot_be_recorded_as_a_private_run(federation, monkeypatch) -> None:
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "7")
    across = federation(seed=7)
    server = across.server()
    server.greet()
    with pytest.raises(EngineError, match="public seed"):
        next(server.train(across.run_folder()))


def test_noise_that_no_drop_out_needed_is_taken_back(federation) -> None:
    across = federation(
        {"noise.removable": True, "federation.rounds": 2, "federation.colluding": 0}
    )
    server = across.server()
    server.greet()
    records = list(server.train(across.run_folder()))
    design = across.agreement.design
    kept = 1.0 / len(across.roster)  # of the target variance, per silo
    assert records[-1].survivors == across.roster.names
    assert design.removable_components
    assert design.removable_components[0].variance_grid == pytest.approx(
        kept
        * sum(each.variance_grid for each in design.removable_components)
        * design.plan.noise_contributors,
        rel=1e-6,
    )


def test_every_silo_enters_every_release_into_its_own_ledger(federation) -> None:
    across = federation({"evaluation.metrics": "secure"})
    server = across.server()
    server.greet()
    records = list(server.train(across.run_folder()))
    assert all(
        (each.counts_are, each.clipped_fraction, each.nonfinite, each.saturated)
        == ("none", None, None, None)
        for each in records
    )
    for name in across.roster.names:
        entries = Ledger.of_dataset("digits", state=across.folder(name)).entries()
        models = [entry for entry in entries if entry.purpose == "model"]
        assert [entry.round_id for entry in models] == [record.round_id for record in records]
        assert [entry.epsilon for entry in models] == [record.epsilon_spent for record in records]
        # the last model only
        (measured,) = [entry for entry in entries if entry.purpose == "metrics"]
        assert (measured.round, measured.epsilon) == (3, across.agreement.account.metrics_epsilon)


def test_a_plan_that_runs_again_under_a_new_roster_is_paid_for_again(federation) -> None:
    """The round ids are the same, the noise is not: whoever sees both runs has seen twice as
    much.
    """
    ledgers = []
    for again in (False, True):
        across = federation()
        if again:  # what docs/deployment.md asks for when a kit is replaced
            for path in ledgers[0].path.parent.glob("ledger-*"):
                shutil.copy(path, across.folder("silo-0"))
        ledgers.append(Ledger.of_dataset("digits", state=across.folder("silo-0")))
        server = across.server()
        server.greet()
        assert len(list(server.train(across.run_folder()))) == 3
    once, twice = (ledger.total("record") for ledger in ledgers)
    assert twice.epsilon == pytest.approx(2.0 * once.epsilon, rel=1e-9)
    assert (twice.delta, twice.releases) == (2.0 * once.delta, 6)


# -- a silo decides for itself


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": "9.9.9"}, "install the same version"),
        # the same release, with a file that somebody changed
        ({"version": f"{build_of().partition('+')[0]}+000000000000"}, "a digest of its files"),
        ({"plan_hash": bytes(32)}, "not one that silo"),
        ({"session": bytes(32)}, "other terms, or holds another roster"),
    ],
)
def test_a_greeting_that_does_not_fit_is_refused_with_its_reason(
    federation, changes, reason
) -> None:
    across = federation()
    assert reason in refused(across.ask(0, across.greeting(**changes))).lower()
    assert reason in (across.folder("silo-0") / "refusals.log").read_text().lower()


@pytest.mark.parametrize(
    ("policy", "limit"),
    [
        (Policy(max_epsilon_per_run=1.0625), "max_epsilon_per_run = 1.0625"),
        (Policy(max_epsilon=1.5625), "max_epsilon = 1.5625"),
        (Policy(min_silos=5), "min_silos = 5"),
        (Policy(allowed_analyses=("split-noise",)), "allowed_analyses = split-noise"),
        (Policy(allowed_plan_hashes=("0" * 64,)), "allowed_plan_hashes = 1 hashes"),
    ],
)
def test_a_plan_over_the_silos_policy_is_refused_and_only_the_silos_people_see_the_limit(
    federation, policy, limit
) -> None:
    across = federation(policies=dict.fromkeys([f"silo-{number}" for number in range(4)], policy))
    server = across.server()
    with pytest.raises(EngineError, match="over the policy of silo 'silo-0'"):
        server.greet()
    assert set(server.refusals) == set(across.roster.names)
    assert limit in (across.folder("silo-0") / "refusals.log").read_text()
    assert not Ledger.of_dataset("digits", state=across.folder("silo-0")).entries()


def test_metrics_count_against_the_policy_too(federation) -> None:
    across = federation(
        {"evaluation.metrics": "secure"}, policies={"silo-0": Policy(max_epsilon=2.5)}
    )
    assert "policy" in refused(across.ask(0, across.greeting()))
    assert isinstance(across.ask(1, across.greeting()), Welcome)


def test_a_silo_whose_roster_differs_is_left_out_and_the_others_go_on(federation) -> None:
    across = federation()
    other = federation()
    (across.folder("silo-3") / "roster.toml").write_text(other.roster.to_text())
    server = across.server()
    server.greet()
    assert server.present == ("silo-0", "silo-1", "silo-2")
    assert "silo-3" in server.refusals
    record = next(server.train(across.run_folder()))
    assert record.dropped == ("silo-3",)


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        ({"aggregation.protocol": "trusted"}, PlanError),
        ({"training.algorithm": "fedavg", "training.sampling_rate": 0.1}, GuaranteeError),
        ({"federation.selection": "fixed", "federation.selected": 3}, PlanError),
        # ε far above the target for test records
        ({"evaluation.metrics": "secure", "evaluation.noise_multiplier": 1.0}, GuaranteeError),
    ],
)
def test_plans_that_would_show_a_silos_vector_do_not_run_across_machines(overrides, error) -> None:
    with pytest.raises(error):
        plan(overrides)


# -- what a hostile server may want


def invitation(
    federation: LocalFederation,
    number: int,
    parameters: np.ndarray,
    *,
    round_id: bytes = b"r" * 32,
    purpose: int = 0,
) -> bytes:
    server = federation.server()
    server.greet()
    assert server.summing._session is not None
    _, message = server.summing._session.invite(
        round_id,
        payload=struct.pack("<QL", number, purpose) + parameters.astype("<f4").tobytes(),
        sequence=(2 * number + purpose) % 2**64,
    )
    return message


def test_attack_two_noise_draws_for_one_round(federation) -> None:
    across = federation()
    size = across.agreement.plan.training.dimension
    first = invitation(across, 0, np.zeros(size))
    assert across.parties[0].handle(first) == across.parties[0].handle(first)
    again = invitation(across, 0, np.ones(size), round_id=b"s" * 32)
    assert "answered" in refused(across.ask(0, again))
    assert len(Ledger.of_dataset("digits", state=across.folder("silo-0")).entries()) == 1


def test_attack_go_back_to_an_earlier_round(federation) -> None:
    across = federation()
    size = across.agreement.plan.training.dimension
    assert isinstance(across.ask(0, invitation(across, 2, np.zeros(size))), MaskedInput)
    earlier = invitation(across, 1, np.zeros(size), round_id=b"s" * 32)
    assert "answered" in refused(across.ask(0, earlier))


@pytest.mark.parametrize("number", [3, 2**63, 2**64 - 1])
def test_attack_more_rounds_than_the_plan_has(federation, number) -> None:
    across = federation()
    asked = invitation(across, number, np.zeros(across.agreement.plan.training.dimension))
    assert "beyond the 3 rounds" in refused(across.ask(0, asked))


@pytest.mark.parametrize("parameters", [np.zeros(3), np.full(650, np.nan), np.full(650, np.inf)])
def test_attack_a_model_that_breaks_the_silo(federation, parameters) -> None:
    across = federation()
    assert "Refuse the server" in refused(across.ask(0, invitation(across, 0, parameters)))
    assert not Ledger.of_dataset("digits", state=across.folder("silo-0")).entries()


@pytest.mark.parametrize(
    "message",
    [b"", b"\x00", b"SUMU", b"SUMU\x02", b"SUMU\x01\x03", b"SUMU\x02\x09" + bytes(66), bytes(1000)],
)
def test_attack_bytes_that_are_no_message(federation, message) -> None:
    across = federation()
    assert refused(across.ask(0, message))


# -- what a hostile silo may want


@pytest.mark.parametrize("copied", [False, True])
def test_attack_one_silos_key_that_makes_everybody_refuse_the_set_up(federation, copied) -> None:
    """A key of low order costs its owner only; so does one copied from an earlier set-up, since
    every set-up has fresh keys.
    """
    across, key = federation({"federation.silos": 5, "federation.dropouts": 2}), bytes(32)
    if copied:
        welcome = across.ask(0, across.greeting())
        key = read(welcome.advert, KeyAdvert).agreement_key

    def hostile(party: SiloParty, message: bytes) -> bytes:
        reply, identity = party.handle(message), party._memory.identity
        welcome = decode_any(reply)
        if not isinstance(welcome, Welcome):
            return reply
        hostile = replace(read(welcome.advert, KeyAdvert), agreement_key=key).encode(identity)
        return replace(welcome, advert=hostile).encode(identity)

    across.stop(3)
    across.start(3, hostile)
    server = across.server()
    server.greet()
    assert server.present == ("silo-0", "silo-1", "silo-2", "silo-4")
    told = "shows other keys for silo 3 than it sent" if copied else "'silo-3' has low order"
    assert told in server.refusals["silo-3"]
    record = next(server.train(across.run_folder()))
    assert "silo-3" in record.dropped


def test_a_refusal_cannot_write_to_the_operators_terminal(federation) -> None:
    assert readable(b"\x1b[2Jgone\r\n" + "ε".encode() + b"\xff") == " [2Jgone  ε\ufffd"


# -- faults


class Crash(Exception):  # noqa: N818 - what happens to the process
    """The silo's process ends."""


def kill_server(
    federation: LocalFederation, server: ServerParty, run: RunFolder, *, after: int
) -> None:
    """Let the server die when the answers to its `after`-th exchange of the training have come;
    three exchanges make a round.
    """
    exchange, seen = federation.driver.exchange, [0]

    def dying(messages, *, deadline_seconds):
        seen[0] += 1
        answers = exchange(messages, deadline_seconds=deadline_seconds)
        if seen[0] == after:
            raise Crash
        return answers

    federation.driver.exchange = dying
    with pytest.raises(Crash):
        list(server.train(run))
    run.close()
    federation.driver.exchange = exchange


def crash_once(federation: LocalFederation, silo: int, *, at: int, when: str) -> None:
    """Let a silo die in its `at`-th message after set-up, before or after it did its work, and come
    back from its disk.
    """
    seen = [0]

    def handler(party, message: bytes) -> bytes | None:
        if isinstance(decode_any(message), Greeting | KeyDirectory | CipherTexts):
            return party.handle(message)
        seen[0] += 1
        if seen[0] != at:
            return federation.parties[silo].handle(message)
        if when == "after":
            party.handle(message)
        federation.parties[silo].close()
        federation.start(silo)
        return None

    federation.parties[silo].close()
    federation.start(silo, handler)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_silo_killed_at_any_stage_costs_at_most_its_part_of_one_round(
    federation, stage, when
) -> None:
    across = federation()
    crash_once(across, 2, at=stage, when=when)
    server = across.server()
    server.greet()
    records = list(server.train(across.run_folder()))
    assert [record.round for record in records] == [1, 2, 3]
    lost = () if stage > 1 else ("silo-2",)
    assert records[0].dropped == lost
    assert records[-1].survivors == across.roster.names
    ids = [
        entry.round_id
        for entry in Ledger.of_dataset("digits", state=across.folder("silo-2")).entries()
    ]
    assert len(ids) == len(set(ids))


def test_a_silo_that_hangs_does_not_hold_up_the_others(federation) -> None:
    across, over = federation(), Event()

    def hangs(party, message: bytes) -> bytes | None:
        if isinstance(decode_any(message), Invitation):
            over.wait(200.0)
        return party.handle(message)

    across.parties[1].close()
    across.start(1, hangs)
    server = across.server(replace(QUICK, update=5.0))  # the others need a tenth of a second
    server.greet()
    try:
        record = next(server.train(across.run_folder()))
    finally:
        over.set()
    assert record.dropped == ("silo-1",)


def test_more_silos_gone_than_tolerated_abort_the_round_and_nothing_else(federation) -> None:
    across = federation()
    server = across.server()
    server.greet()
    run = across.run_folder()
    training = server.train(run)
    next(training)
    across.stop(0)
    across.stop(1)
    with pytest.raises(RoundAborted):
        next(training)
    run.close()
    across.start(0)
    across.start(1)
    again = across.server()
    again.greet()
    with RunFolder.open(run.path, resume=True) as resumed:
        assert [record.round for record in again.train(resumed)] == [2, 3]
        assert resumed.rounds()[1].survivors == across.roster.names


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_server_killed_in_any_stage_repeats_the_round_word_for_word(
    federation, stage, monkeypatch
) -> None:
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "3")
    across = federation(seed=3)
    server = across.server()
    server.greet()
    run = across.run_folder(void="public seed")
    kill_server(across, server, run, after=4 + stage)
    again = across.server()
    again.greet()
    with RunFolder.open(run.path, resume=True) as resumed:
        assert [record.round for record in again.train(resumed)] == [2, 3]
    design = across.agreement.design
    alone = simulated(design, prepare(design.plan, load(design.plan)), 3)
    list(alone.rounds())
    assert np.array_equal(alone.server.parameters, again.server.parameters)


def test_a_round_that_cannot_be_repeated_is_lost_and_never_noised_again(federation) -> None:
    across = federation()
    server = across.server()
    server.greet()
    run = across.run_folder()
    kill_server(across, server, run, after=1)
    across.stop(3)
    # all of it, since the process of one silo is not there
    again = across.server(replace(QUICK, set_up=6.0))
    again.greet()
    with RunFolder.open(run.path, resume=True) as resumed:
        records = list(again.train(resumed))
    assert [record.round for record in records] == [2, 3]
    entries = Ledger.of_dataset("digits", state=across.folder("silo-0")).entries()
    assert [entry.round for entry in entries] == [1, 2, 3]
    assert len({entry.round_id for entry in entries}) == 3


def test_a_server_process_that_starts_anew_finds_the_run_of_its_plan(federation) -> None:
    across = federation()
    runs = across.root / "server-runs"
    for rounds in ([1, 2], [3], []):
        server = across.server()
        server.greet()
        with open_run(across.agreement, across.roster, runs, simulated=False) as run:
            if run.summary is None:
                assert [record.round for record in server.train(run, rounds=len(rounds))] == rounds
                if is_over(run):
                    finish(run, server)
            else:
                assert not rounds
    assert len(list(runs.rglob("journal.jsonl"))) == 1
    assert len(list(runs.rglob("model.pt"))) == 1


def test_a_full_disk_at_a_silo_is_a_dropped_silo_and_no_release(federation, monkeypatch) -> None:
    across = federation()
    server = across.server()
    server.greet()
    memory = next(iter(across.parties[0]._admitted.values())).memory

    def full(drawn):
        raise OSError(28, "No space left on device")

    memory.keep = full
    record = next(server.train(across.run_folder()))
    assert record.dropped == ("silo-0",)
    assert "failed" in server.refusals["silo-0"]


def test_a_damaged_key_file_is_refused_and_never_begun_anew(tmp_path) -> None:
    """A session that forgot its round in flight would draw noise twice."""
    memory = SessionMemory(tmp_path / "session", bytes(32))
    memory.keep(KeyRing((KeySet(b"k" * 32, 0, {1: b"r" * 32}),)))
    memory.close()
    path = tmp_path / "session" / "keys"
    assert path.stat().st_mode & 0o777 == 0o600
    content = path.read_bytes()
    for damaged in (content[:-1], content.replace(b"rrr", b"rrs", 1), b""):
        path.write_bytes(damaged)
        with pytest.raises(StorageError, match=r"damaged. Start a new session"):
            SessionMemory(tmp_path / "session", bytes(32))
    path.write_bytes(content)
    assert SessionMemory(tmp_path / "session", bytes(32)).ring.sets[0].roots == {1: b"r" * 32}


def test_duplicate_and_foreign_answers_change_nothing(federation) -> None:
    across = federation()
    exchange, old = across.driver.exchange, {}

    def confused(messages, *, deadline_seconds):
        answers = dict(exchange(messages, deadline_seconds=deadline_seconds))
        answers[0] = old.get(0, answers[0])  # a late answer to an earlier message
        old.update(answers)
        return answers

    server = across.server()
    server.greet()
    across.driver.exchange = confused
    record = next(server.train(across.run_folder()))
    # its first answer counted; without its later ones three others suffice
    assert record.survivors == across.roster.names


def test_two_processes_of_one_silo_do_not_both_answer(federation) -> None:
    across = federation()
    assert isinstance(across.ask(0, across.greeting()), Welcome)
    running = across.parties[0]
    across.start(0)
    assert "own data or disk" in refused(across.ask(0, across.greeting()))
    running.close()
    assert isinstance(across.ask(0, across.greeting()), Welcome)


def test_a_silos_folder_must_be_closed_to_others(federation) -> None:
    from sumus.errors import StorageError
    from sumus.parties import SiloState

    across = federation()
    across.folder("silo-0").chmod(0o755)
    with pytest.raises(StorageError, match="chmod 700"):
        SiloState(across.folder("silo-0"))
    across.folder("silo-0").chmod(0o700)
