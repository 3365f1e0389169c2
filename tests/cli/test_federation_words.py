"""What an operator is told: whether a round could begin, and who is waited for and how long."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nvflare")

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply

from sumus import engines
from sumus.cli import main
from sumus.cli.federation_progress import Waiting
from sumus.engines.nvflare.controller import ServerController
from sumus.engines.nvflare.driver import Awaited, NvflareDriver
from sumus.engines.nvflare.jobs import NvflareOperator

PLAN = """
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
silos = 3
rounds = 2
local_steps = 20
dropouts = 1
[data]
name = "digits"
"""


class FakeOperator:
    """A server that lists the silos which are connected."""

    connected: tuple[str, ...] = ()

    def __init__(self, kit: Path) -> None:
        pass

    def system(self) -> dict[str, Any]:
        return {
            "server": "up, no job runs",
            "silos": dict.fromkeys(self.connected, "now"),
            "jobs": [],
        }

    def close(self) -> None:
        pass


@pytest.fixture
def kit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    monkeypatch.setattr(engines.ENGINES["nvflare"], "operator", FakeOperator)
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    assert (
        main(
            [
                "federation",
                "init",
                str(tmp_path / "f"),
                "--silos",
                "silo-0,silo-1,silo-2",
                "--plan",
                str(plan),
            ]
        )
        == 0
    )
    capsys.readouterr()
    return tmp_path / "f" / "kits" / "admin"


@pytest.mark.deep
@pytest.mark.parametrize(
    ("connected", "code", "words"),
    [
        ((), 6, "0 of 3 silos are connected, a round needs 2. Missing: silo-0, silo-1, silo-2."),
        (("silo-1",), 6, "1 of 3 silos are connected, a round needs 2. Missing: silo-0, silo-2."),
        (("silo-1", "a stranger"), 6, "1 of 3 silos are connected"),
        (("silo-0", "silo-1"), 0, ""),
        (("silo-0", "silo-1", "silo-2"), 0, ""),
    ],
)
def test_status_fails_unless_enough_silos_are_connected(
    kit: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    connected: tuple[str, ...],
    code: int,
    words: str,
) -> None:
    monkeypatch.setattr(FakeOperator, "connected", connected)
    assert main(["federation", "status", "--kit", str(kit)]) == code
    assert words in capsys.readouterr().err
    assert main(["federation", "status", "--kit", str(kit), "--json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert (told["needed"], told["enough"]) == (2, code == 0)


@pytest.mark.deep
def test_status_without_a_plan_wants_everybody_of_the_roster(
    kit: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (kit / "sumus" / "plan.toml").unlink()
    monkeypatch.setattr(FakeOperator, "connected", ("silo-0", "silo-1"))
    assert main(["federation", "status", "--kit", str(kit)]) == 6
    assert (
        "2 of 3 silos are connected, a round needs 3. Missing: silo-2." in capsys.readouterr().err
    )


def news_of(driver_news: list[tuple[float, list[Awaited]]], silos: int) -> list[tuple[float, str]]:
    """The lines that are printed for what a driver reports at certain moments."""
    waiting = Waiting(silos)
    lines = [
        (now, waiting.line([vars(each) for each in awaited], now)) for now, awaited in driver_news
    ]
    return [(now, line) for now, line in lines if line is not None]


def test_whoever_is_lost_is_named_within_five_seconds_and_then_now_and_then() -> None:
    polls = [0.5 * number for number in range(120)]
    lost = [
        (now, [Awaited(silo="Bergen", seconds=now, left=60.0 - now, away=True)]) for now in polls
    ]
    lines = news_of(lost, silos=3)
    assert lines[0] == (2.0, "waiting for Bergen (not connected): 2 s so far, 58 s more at most")
    assert [now for now, _ in lines] == [2.0, 17.0, 32.0, 47.0]


def test_nobody_is_named_while_all_silos_compute() -> None:
    busy = [
        (now, [Awaited(silo=name, seconds=now, left=600.0 - now, away=False) for name in "ABC"])
        for now in (1.0, 30.0, 300.0)
    ]
    assert news_of(busy, silos=3) == []
    ((_, line),) = news_of([(30.0, busy[1][1][:1])], silos=3)  # the two others have answered
    assert line == "waiting for A (no answer yet): 30 s so far, 570 s more at most"


@pytest.mark.deep
def test_the_driver_knows_who_is_away_while_it_asks() -> None:
    reports: list[list[Awaited]] = []

    class Engine:
        def new_context(self) -> None:
            return None

        def send_aux_request(self, **_: Any) -> Any:
            reports.append(driver.awaited())
            return {"Bergen": make_reply(ReturnCode.COMMUNICATION_ERROR)}

    driver = NvflareDriver(Engine(), ("Bergen",), stopped=lambda: len(reports) >= 3)
    driver.exchange({0: b"message"}, deadline_seconds=600.0)
    assert [[(each.silo, each.away) for each in report] for report in reports] == [
        [("Bergen", False)],
        *[[("Bergen", True)]] * 2,
    ]
    assert 540.0 < reports[0][0].left <= 600.0
    assert 0.0 < reports[-1][0].left <= 60.0  # a silo that is away is not waited for as long
    assert driver.awaited() == []
    driver.close()


def test_the_server_tells_the_operator_who_is_waited_for() -> None:
    controller = ServerController(plan=PLAN, rounds=1)
    assert controller._progress("", {"after": 0}, None)["waiting"] == []
    controller._job._awaited = lambda: [Awaited(silo="Bergen", seconds=3.0, left=57.0, away=True)]
    assert controller._progress("", {"after": 0}, None)["waiting"] == [
        {"silo": "Bergen", "seconds": 3.0, "left": 57.0, "away": True}
    ]


@pytest.mark.deep
def test_before_a_job_begins_the_absent_silos_are_named(kit: Path) -> None:
    operator, news = NvflareOperator(kit), []
    session = SimpleNamespace(
        get_connected_client_list=lambda: [SimpleNamespace(name="silo-1")], close=lambda: None
    )
    operator._session = session  # type: ignore[assignment]
    operator._tell_of_absent(["silo-0", "silo-1", "silo-2"], time.monotonic() - 4.0, news.append)
    assert [each["silo"] for each in news[0]["waiting"]] == ["silo-0", "silo-2"]
    line = Waiting(3).line(news[0]["waiting"], now=4.0)
    assert line is not None
    assert line.startswith(
        "waiting for silo-0 (not connected), silo-2 (not connected): 4 s so far, until enough silos"
    )
    operator.close()
