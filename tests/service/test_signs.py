"""What a process says of itself: by its loop and by nothing else, one line at a time, to whoever
keeps it; nobody who listens badly holds it up.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from sumus.service import HEALTH, Heard, Signs, channels, is_well
from sumus.service.channels import KEEPER, HealthFile, ManagerSocket
from sumus.watching.probe import main as probe


class Manager:
    """A service manager's socket."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.setblocking(False)

    def heard(self) -> list[list[str]]:
        """Lines of every datagram so far."""
        told = []
        with contextlib.suppress(BlockingIOError):
            while True:
                told.append(self._socket.recv(65536).decode().split("\n"))
        return told

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    monkeypatch.chdir(tmp_path)  # paths of sockets are short
    made = Manager("notify")
    yield made
    made.close()


class Clock:
    """Time as the module sees it."""

    def __init__(self) -> None:
        self.now = self.used = 100.0

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.used


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("sumus.service.signs.time", made)
    return made


def watched(patience: float = 0.2) -> Signs:
    return Signs([ManagerSocket("notify", watched=True)], patience_seconds=patience)


# -- a service manager


def test_a_service_is_ready_once_and_says_what_has_changed(manager: Manager) -> None:
    signs = watched()
    signs.turned("starting")
    signs.turned("serving", ready=True)
    signs.turned("the engine ended", ready=False)
    signs.turned("serving", ready=True)
    signs.stopping()
    assert manager.heard() == [
        ["STATUS=starting", "WATCHDOG=1"],
        ["STATUS=serving", "READY=1", "WATCHDOG=1"],
        ["STATUS=the engine ended", "WATCHDOG=1"],
        ["STATUS=serving", "WATCHDOG=1"],
        ["STOPPING=1", "STATUS=stopping"],
    ]


def test_a_loop_that_turns_often_is_heard_a_few_times_in_the_managers_patience(
    manager: Manager, clock: Clock
) -> None:
    signs = watched(0.8)
    for _ in range(1000):
        signs.turned("serving", ready=True)
        clock.now += 0.001
    told = manager.heard()
    assert len(told) == 5  # every 0.2 s
    assert all("WATCHDOG=1" in lines for lines in told)


def test_patience_of_hours_is_fed_every_few_seconds(manager: Manager, clock: Clock) -> None:
    signs = watched(7200.0)
    for _ in range(21):
        signs.turned("serving", ready=True)
        clock.now += 1.0
    assert len(manager.heard()) == 5


def test_a_loop_that_stands_still_gives_no_sign(manager: Manager) -> None:
    signs = watched(0.04)
    signs.turned("serving", ready=True)
    manager.heard()
    time.sleep(0.2)
    assert manager.heard() == []


def test_whoever_waits_for_ever_in_its_work_gives_no_sign(manager: Manager, clock: Clock) -> None:
    signs = watched(0.04)
    with signs.working("answers a message"):
        assert manager.heard() == [["STATUS=answers a message", "WATCHDOG=1"]]
        time.sleep(0.2)  # twenty looks, and nobody has used the processor
        assert manager.heard() == []
    assert manager.heard() == [["STATUS=starting", "WATCHDOG=1"]]
    assert not signing()


def test_whoever_computes_for_long_is_alive(manager: Manager, clock: Clock) -> None:
    signs, told, until = watched(0.04), 0, time.time() + 60.0
    with signs.working("answers a message"):
        while told < 5 and time.time() < until:
            clock.used += 0.01
            time.sleep(0.01)
            told += sum(lines == ["WATCHDOG=1"] for lines in manager.heard())
    assert told >= 5


def signing() -> bool:
    """Whether a thread speaks for another one, a moment later."""
    for _ in range(1000):
        if not any(thread.name == "signs" for thread in threading.enumerate()):
            return False
        time.sleep(0.01)
    return True


def test_nothing_is_said_after_the_end(manager: Manager) -> None:
    signs = watched()
    signs.stopping()
    signs.turned("alive", ready=True)
    signs.stopping()
    assert manager.heard() == [["STOPPING=1", "STATUS=stopping"]]


@given(said=st.text(max_size=300))
@example("x\nMAINPID=1")
@example("\x1b[2J\x85\u2028")
def test_attack_no_words_become_another_order(said: str) -> None:
    """`MAINPID=1` on a line of its own would be one."""
    told = Listed()
    Signs([told]).turned(said, ready=True)
    assert told.said.isprintable()
    assert len(told.said) <= 200


class Listed:
    """A channel that remembers."""

    said = ""

    def tell(self, *, ready: bool, said: str, news: bool) -> None:
        self.said = said

    def end(self) -> None:
        pass


def test_a_manager_that_is_away_holds_up_nobody(tmp_path: Path) -> None:
    signs = Signs([ManagerSocket(str(tmp_path / "nobody"), watched=True)])
    signs.turned("serving", ready=True)
    signs.stopping()


# -- what the environment says


def test_variables_are_taken_away_from_processes_that_come_later(
    manager: Manager, tmp_path: Path
) -> None:
    variables = {
        "NOTIFY_SOCKET": "notify",
        "WATCHDOG_USEC": "400000",
        "WATCHDOG_PID": str(os.getpid()),
        HEALTH: "health",
        "OTHER": "stays",
    }
    variables["NOTIFY_SOCKET"] = str(tmp_path / "notify")
    signs = Signs.of_environment(variables)
    assert variables == {"OTHER": "stays"}
    signs.turned("serving", ready=True)
    assert manager.heard() == [["STATUS=serving", "READY=1", "WATCHDOG=1"]]
    assert is_well(Path("health"), ready=True)


@pytest.mark.parametrize(
    "given",
    [
        {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "0"},
        {},
    ],
)
def test_a_watchdog_that_is_not_ours_is_not_fed(
    manager: Manager, tmp_path: Path, given: dict[str, str]
) -> None:
    signs = Signs.of_environment({"NOTIFY_SOCKET": str(tmp_path / "notify"), **given})
    signs.turned("serving", ready=True)
    assert manager.heard() == [["STATUS=serving", "READY=1"]]


def test_an_abstract_address_is_one(tmp_path: Path) -> None:
    name = f"sumus-test-{os.getpid()}"
    manager = Manager(f"\0{name}")
    signs = Signs.of_environment({"NOTIFY_SOCKET": f"@{name}"})
    signs.turned("serving")
    signs.stopping()
    assert manager.heard() == [["STATUS=serving"], ["STOPPING=1", "STATUS=stopping"]]
    manager.close()


@pytest.mark.parametrize(
    "variables", [{}, {"NOTIFY_SOCKET": "vsock:2:1"}, {KEEPER: "nine"}, {KEEPER: "9999"}]
)
def test_a_process_that_nobody_keeps_runs_all_the_same(variables: dict[str, str]) -> None:
    signs = Signs.of_environment(variables)
    signs.turned("serving", ready=True)
    with signs.working("answers"):
        pass
    signs.stopping()


# -- a file for probes


def test_a_probe_says_yes_while_signs_come_and_no_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "health"
    assert probe([str(file)]) == 1
    signs = Signs([HealthFile(file, seconds=3600.0)], patience_seconds=0.04)
    signs.turned("starting", ready=False)
    assert (probe([str(file)]), probe([str(file), "healthz"])) == (0, 0)
    assert probe([str(file), "readyz"]) == 1
    signs.turned("serving", ready=True)
    assert probe([str(file), "readyz"]) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    now = channels._now()
    monkeypatch.setattr(channels, "_now", lambda: now + 3601.0)
    assert (probe([str(file)]), probe([str(file), "readyz"])) == (1, 1)
    time.sleep(0.02)
    signs.turned()
    assert probe([str(file), "readyz"]) == 0
    signs.stopping()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"until": "x"}', '{"until": 1e99}', "x"])
def test_a_file_that_says_something_else_is_no_yes(tmp_path: Path, text: str) -> None:
    (tmp_path / "health").write_text(text)
    assert probe([str(tmp_path / "health"), "readyz"]) == 1


@pytest.mark.parametrize("words", [[], ["a", "b"], ["a", "readyz", "readyz"]])
def test_a_probe_that_is_asked_nothing_says_how_to_ask(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert probe(words) == 2
    assert "python -m sumus.watching.probe" in capsys.readouterr().err


def test_a_disk_without_room_ends_nobody(tmp_path: Path) -> None:
    Signs([HealthFile(tmp_path / "no" / "folder", seconds=1.0)]).turned("serving")


# -- a keeper


def kept() -> tuple[Heard, Signs]:
    heard = Heard()
    inherited = os.dup(heard.inherited[0])  # as a process that is started has it
    heard.begun()
    return heard, Signs.of_environment({KEEPER: str(inherited)})


def test_a_keeper_hears_a_process_that_it_started() -> None:
    heard, signs = kept()
    assert heard.silent_seconds() is None
    signs.turned()
    assert heard.silent_seconds() == 0.0
    assert not heard.ready
    signs.turned(ready=True)
    assert heard.silent_seconds() == 0.0
    assert heard.ready
    heard.close()


def test_what_a_process_starts_does_not_get_its_pipe() -> None:
    heard = Heard()
    os.set_inheritable(heard.inherited[0], True)
    Signs.of_environment({KEEPER: str(heard.inherited[0])})
    assert not os.get_inheritable(heard.inherited[0])
    heard.begun()
    heard.close()


def test_attack_a_process_that_writes_rubbish_without_end_is_looked_at_in_bounded_time() -> None:
    heard, _ = kept()
    again = Heard()
    os.set_blocking(again.inherited[0], False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(again.inherited[0], b"\xff" * 65536)
    assert again.silent_seconds() is None
    assert not again.ready
    again.begun()
    again.close()
    heard.close()


def test_a_keeper_that_stood_still_blames_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    heard, signs = kept()
    signs.turned()
    assert heard.silent_seconds() == 0.0
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 9.0)
    assert heard.silent_seconds() == pytest.approx(9.0, abs=0.1)
    monkeypatch.setattr(time, "monotonic", lambda: now + 3600.0)  # the machine slept
    assert heard.silent_seconds() == 0.0
    heard.close()
