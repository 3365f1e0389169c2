"""Real kills in a federation of real processes, with their recovery times; all of it in `make
test-network`.

Every training also checks what must hold whatever happens: see `Running.train`. Every blow falls
while a round is open: on a process that is at a stage of it, or while a silo's vault holds its
answer back.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import pytest

pytest.importorskip("nvflare")

from sumus.books import RunFolder
from sumus.randomness import RandomSource
from sumus.secagg import Identity
from support.notes import IN_TEST_NETWORK
from support.running import PATIENCE, Running, vault_process

pytestmark = IN_TEST_NETWORK

STAGES = ("input", "survivor-set", "release")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(tmp_path_factory.mktemp("faults"))
    yield made
    made.close()


@pytest.fixture
def report(running: Running, capsys: pytest.CaptureFixture[str]) -> Any:
    """Prints a row of the table in docs/deployment.md."""

    def row(what: str, run: RunFolder, recovered: list[tuple[float, list[str]]]) -> None:
        summary, seconds = run.summary or {}, [each for each, _ in recovered]
        spread = f"{median(seconds):.1f} s" + (
            f" ({min(seconds):.1f} to {max(seconds):.1f})" if len(seconds) > 1 else ""
        )
        with capsys.disabled():
            sys.stdout.write(
                f"\n| {what} | {summary['rounds']} rounds, {summary['lost_rounds']} lost | "
                f"{spread}, {len(seconds)} blows in {', '.join(sorted(stages()))} |\n"
            )
        assert seconds
        assert all(each > 0.0 for each in seconds), "no round was finished after a blow"

    def stages() -> set[str]:
        """The stages of the open rounds that were hit; every blow names one."""
        return {blow[2] for blow in running.notes.lines("blows")}

    return row


class Strikes:
    """Has a silo's vault or the server's job process killed at one place of a round after another,
    each time after it is back.
    """

    def __init__(self, running: Running, party: str, places: list[tuple[str, str]]) -> None:
        self._notes, self._party, self._places = running.notes, party, places

    def __call__(self, news: Mapping[str, Any]) -> None:
        blows = self._notes.lines("blows")
        since = [
            survivors
            for when, _, survivors in self._notes.rounds
            if not blows or when > float(blows[-1][0])
        ]
        back = bool(since) and (self._party == "server" or self._party in since[-1])
        order = self._notes.folder / f"strike-{self._party}"
        if back and not order.exists() and len(blows) < len(self._places):
            order.with_name("order").write_text(" ".join(self._places[len(blows)]))
            order.with_name("order").rename(order)


class Blows:
    """Does something to the federation while a round is open, because the vault of a silo holds its
    answer back; again when everybody was there once more.

    Args:
        hurt: what is done.
        holder: the silo whose answer is missing.
        times: how often.
    """

    def __init__(self, running: Running, hurt: Any, *, holder: str, times: int = 2) -> None:
        self._running, self._notes, self._hurt = running, running.notes, hurt
        self._holder, self._times = holder, times
        self._order = running.notes.folder / f"hold-{holder}"

    def __call__(self, news: Mapping[str, Any]) -> None:
        blows, held = self._notes.lines("blows"), self._notes.lines("held")
        if len(held) > len(blows):
            rounds = len(self._notes.rounds)
            self._notes.blow(self._holder, "input", "open")
            self._hurt()
            assert len(self._notes.rounds) == rounds, "no round was open"
            self._order.unlink()
        elif not self._order.exists() and len(blows) < self._times and self._all_back(blows):
            self._order.touch()

    def _all_back(self, blows: list[list[str]]) -> bool:
        since = float(blows[-1][0]) if blows else 0.0
        return any(
            when > since and tuple(survivors) == self._running.names
            for when, _, survivors in self._notes.rounds
        )


def restart_vault(running: Running, silo: str) -> None:
    """End a silo's vault and wait until its site has started another."""
    old = vault_process(running.processes, silo)
    old.kill()
    until = time.monotonic() + 60.0
    while (new := vault_process(running.processes, silo)) is None or new.pid == old.pid:
        assert time.monotonic() < until
        time.sleep(0.1)


# -- a silo


def test_a_silos_vault_is_killed_before_during_and_after_every_stage(
    running: Running, report: Any
) -> None:
    victim = running.names[0]
    places = list(itertools.product(STAGES, ("before", "during", "after")))
    run = running.train(Strikes(running, victim, places), rounds=60)
    assert [tuple(blow[2:]) for blow in running.notes.lines("blows")] == places
    assert (run.summary or {})["lost_rounds"] == 0
    assert {record.dropped for record in run.rounds()} == {(), (victim,)}
    # only a kill between the claim of the round and the answer on the disk costs the silo its part
    # in that round on a machine so busy that a process is not back in time, the silo may miss any
    # round
    late = False
    for place, (seconds, survivors) in zip(places, running.notes.next_rounds(), strict=True):
        was_late, late = late, seconds > 0.7 * PATIENCE["stage_seconds"]
        assert late or was_late or (victim in survivors) == (place != ("input", "during")), place
    report(
        "a silo's vault killed before, during and after each stage",
        run,
        running.notes.next_rounds(of=victim),
    )


def test_a_silo_hangs_and_answers_late(running: Running, report: Any) -> None:
    victim = running.names[1]
    stopped: list[Any] = []

    def hang() -> None:
        stopped.append(vault_process(running.processes, victim))
        stopped[0].suspend()

    watch = Blows(running, hang, holder=victim, times=1)

    def resume(news: Mapping[str, Any]) -> None:
        watch(news)
        if stopped and any(victim in record["dropped"] for record in news["rounds"]):
            stopped[0].resume()

    try:
        run = running.train(
            resume,
            rounds=40,
            patience={"set_up_seconds": 120.0, "update_seconds": 15.0, "stage_seconds": 15.0},
        )
    finally:
        for process in stopped:
            if process.is_running():
                process.resume()
    assert any(record.dropped == (victim,) for record in run.rounds())
    assert run.rounds()[-1].survivors == running.names
    report(
        "a silo hangs, is left out after its 15 s and comes back", run, running.notes.next_rounds()
    )


def test_a_whole_silo_is_killed_and_comes_back_in_a_later_job(
    running: Running, report: Any
) -> None:
    victim = running.names[2]

    def hurt() -> None:
        running.processes.kill(victim)
        running.processes.start(victim)

    run = running.train(Blows(running, hurt, holder=victim), rounds=40, rounds_per_job=10)
    assert any(victim in record.dropped for record in run.rounds())
    assert run.rounds()[-1].survivors == running.names
    report("a whole silo killed and started again: the others", run, running.notes.next_rounds())
    report(
        "a whole silo killed and started again: it is back",
        run,
        running.notes.next_rounds(of=victim),
    )


def test_a_silos_disk_is_full_for_a_while(
    running: Running, report: Any, request: pytest.FixtureRequest
) -> None:
    victim = running.names[3]
    sessions = running.vault(victim) / "sessions"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", str(sessions)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here ({mounted.stderr.strip()})")
    request.addfinalizer(lambda: subprocess.run(["umount", "--lazy", str(sessions)], check=False))
    filler = sessions / "filler"

    def fill() -> None:
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(256))
            except OSError:
                return

    watch = Blows(running, fill, holder=victim, times=1)

    def free(news: Mapping[str, Any]) -> None:
        watch(news)
        if any(victim in record["dropped"] for record in news["rounds"]):
            filler.unlink(missing_ok=True)

    run = running.train(free, rounds=40)
    assert any(record.dropped == (victim,) for record in run.rounds())
    assert run.rounds()[-1].survivors == running.names
    assert "No space left" in (running.vault(victim) / "refusals.log").read_text()
    report("a silo's disk is full for a while", run, running.notes.next_rounds())


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [("identity.key", "does not verify"), ("version", "Install the same version")],
)
def test_a_silo_with_wrong_keys_or_another_release_is_left_out_with_its_reason(
    running: Running, wrong: str, reason: str
) -> None:
    victim, refusals = running.names[1], {}
    key, version = (
        running.vault(victim) / "identity.key",
        running.notes.folder / f"version-{victim}",
    )
    kept = key.read_text()
    if wrong == "version":
        version.write_text("9.9.9")
        restart_vault(running, victim)
    else:
        key.write_text(Identity.generate(victim, RandomSource()).secret_text())
    try:
        run = running.train(lambda news: refusals.update(news["refusals"]), rounds=3)
    finally:
        key.write_text(kept)
        if version.exists():
            version.unlink()
            restart_vault(running, victim)
    assert {record.dropped for record in run.rounds()} == {(victim,)}
    assert set(refusals) == {victim}
    assert reason in refusals[victim]


# -- the server


def test_the_servers_job_process_is_killed_during_every_stage_and_between_rounds(
    running: Running, report: Any
) -> None:
    places = [*((stage, "during") for stage in STAGES), ("input", "before")]
    run = running.train(Strikes(running, "server", places))
    assert [tuple(blow[2:]) for blow in running.notes.lines("blows")] == places
    assert (run.summary or {})["lost_rounds"] == 0
    assert sum(event == "resumed" for event, _ in run.events) == len(places)
    report(
        "the server's job process killed during each stage and between rounds",
        run,
        running.notes.next_rounds(),
    )


def test_the_whole_server_is_killed_and_started_again(running: Running, report: Any) -> None:
    def hurt() -> None:
        running.processes.kill("server")
        running.processes.start("server")

    run = running.train(Blows(running, hurt, holder=running.names[0]), rounds=40)
    assert any(event == "resumed" for event, _ in run.events)
    assert run.rounds()[-1].survivors == running.names
    report("the whole server killed and started again", run, running.notes.next_rounds())
