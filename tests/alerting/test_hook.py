"""The command of `--notify`: what it is given, and that nobody ever waits for it."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sumus.alerting import Hook, Lookout, Thresholds, command_of
from sumus.errors import PlanError
from sumus.events import AlertRaised
from support.live import made_board

RAISED = AlertRaised(alert="disk-low", severity="error", free=12)


def script(folder: Path, body: str) -> list[str]:
    path = folder / "hook"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return [str(path)]


def hooked(command: list[str], **options: Any) -> Hook:
    return Hook(command, party="silo", process="join", **options)


def told(hook: Hook, times: int = 1) -> None:
    for _ in range(times):
        hook.notify(RAISED, says="The disk is nearly full", name="Graz")


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_it_hears_one_json_object_on_its_standard_input(tmp_path: Path) -> None:
    hook = hooked(script(tmp_path, f"cat > {tmp_path}/heard"))
    told(hook)
    hook.close()
    heard = json.loads((tmp_path / "heard").read_text())
    assert heard.pop("time").endswith("+00:00")
    assert heard == {
        "event": "alert.raised",
        "party": "silo",
        "process": "join",
        "of": "Graz",
        "says": "The disk is nearly full",
        "alert": "disk-low",
        "severity": "error",
        "free": 12,
        "unsent": 0,
    }


def test_no_shell_reads_its_words(tmp_path: Path) -> None:
    mark = tmp_path / "made by a shell"
    words = command_of(f"/bin/echo $(touch '{mark}') ; touch '{mark}'")[1:]
    assert words == ["$(touch", f"{mark})", ";", "touch", str(mark)]
    hook = hooked(["/bin/echo", f"$(touch '{mark}')", ";", f"touch '{mark}'"])
    told(hook)
    hook.close()
    assert not mark.exists()
    # the control: with a shell in between it would be there
    hook = hooked(["/bin/sh", "-c", f"touch '{mark}'"])
    told(hook)
    hook.close()
    assert mark.exists()


def test_it_learns_nothing_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMUS_STATE", "/where/the/ledgers/are")
    monkeypatch.setenv("DB_PASSWORD", "secret")
    monkeypatch.setenv("LD_PRELOAD", "")
    hook = hooked(script(tmp_path, f"env > {tmp_path}/env; pwd > {tmp_path}/pwd; cat"))
    told(hook)
    hook.close()
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    ours = {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME"}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} <= ours
    assert "secret" not in (tmp_path / "env").read_text()
    assert (tmp_path / "pwd").read_text() == "/\n"


def test_it_inherits_no_open_file(tmp_path: Path) -> None:
    secret = (tmp_path / "secret").open("w")
    os.set_inheritable(secret.fileno(), True)
    hook = hooked(script(tmp_path, f"ls /proc/self/fd > {tmp_path}/fds; cat"))
    told(hook)
    hook.close()
    secret.close()
    numbers = set((tmp_path / "fds").read_text().split())
    assert str(secret.fileno() if not secret.closed else "x") not in numbers
    assert len(numbers) <= 4  # its own three, and the folder that ls reads


@pytest.mark.deep
def test_one_that_hangs_is_ended_with_everything_it_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="sumus")
    body = f"sleep 1000 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/self; sleep 1000"
    hook = hooked(script(tmp_path, body), seconds=0.5)
    told(hook)  # returns at once
    assert "hook.failed cause=timeout" not in caplog.messages
    hook.close()
    until(lambda: "hook.failed cause=timeout" in caplog.messages)
    for name in ("child", "self"):
        pid = int((tmp_path / name).read_text())
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists() or _is_zombie(pid))  # type: ignore[misc]


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["/nowhere/at/all"], "hook.failed cause=FileNotFoundError"),
        (["/bin/false"], "hook.failed cause=status status=1"),
        (["/usr"], "hook.failed cause=PermissionError"),
    ],
)
def test_one_that_fails_is_a_line_in_the_log(
    command: list[str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    hook = hooked(command)
    told(hook)
    hook.close()
    assert caplog.messages == [said]


def test_output_without_end_goes_nowhere(tmp_path: Path) -> None:
    hook = hooked(script(tmp_path, "head -c 50000000 /dev/zero; cat > /dev/null; exit 0"))
    told(hook)
    hook.close()
    assert threading.active_count() < 50


def test_its_number_is_bounded_and_what_was_not_passed_on_is_counted(tmp_path: Path) -> None:
    now = [0.0]
    command = script(tmp_path, f"cat >> {tmp_path}/heard")
    hook = hooked(command, burst=3, refill=60.0, clock=lambda: now[0])
    told(hook, times=10)
    now[0] = 61.0
    told(hook, times=5)
    hook.close()
    heard = [json.loads(line) for line in (tmp_path / "heard").read_text().splitlines()]
    assert [each["unsent"] for each in heard] == [0, 0, 0, 7]


def test_alerts_that_wait_behind_a_slow_command_are_bounded(tmp_path: Path) -> None:
    """The queue has room for a hundred; whoever notifies never waits for room."""
    hook = hooked(script(tmp_path, "sleep 1000"), seconds=2.0, burst=10_000)
    told(hook, times=5000)
    assert hook._waiting.qsize() <= 100
    assert hook._unsent >= 4000


def test_whoever_is_watched_does_not_notice_a_lookout_that_fails(tmp_path: Path) -> None:
    board = made_board("silo")

    def broken() -> Any:
        raise RuntimeError("the look itself failed")

    with Lookout(board, health=broken):
        pass
    assert board.state.health is None


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "must begin with a program"),
        ("/nowhere/hook --x", "must begin with a program"),
        ("/usr", "must begin with a program"),
        ("'unclosed", "must be words"),
    ],
)
def test_a_command_that_cannot_be_run_is_refused_at_the_start(text: str, rule: str) -> None:
    with pytest.raises(PlanError, match=rule):
        command_of(text)


def test_words_are_split_as_a_shell_splits_them() -> None:
    command = command_of(f"{sys.executable} -c 'a b' \"c d\"")
    assert command[1:] == ["-c", "a b", "c d"]


def test_thresholds_are_read_and_refused_in_one_line() -> None:
    given = Thresholds.parse(["budget_percent=90", "server_away_minutes=0.5"])
    assert (given.budget_percent, given.server_away_minutes) == (90.0, 0.5)
    assert given.backup_days == Thresholds().backup_days
    for wrong in ("budget_percent", "budget_percents=3", "backup_days=soon", "backup_days=-1"):
        with pytest.raises(PlanError, match="--alert"):
            Thresholds.parse([wrong])
