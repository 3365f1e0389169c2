"""The NVIDIA FLARE driver over an engine that fails in every way the real one does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("nvflare")

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from sumus.engines.nvflare.driver import NvflareDriver
from sumus.engines.nvflare.executor import BODY

Site = Callable[[bytes, float], Any]


class Engine:
    """What the driver uses of the server's engine: a site is a function of message and timeout."""

    def __init__(self, **sites: Site) -> None:
        self._sites, self.asked = sites, []

    def new_context(self) -> None:
        return None

    def send_aux_request(
        self,
        *,
        targets: list[str],
        topic: str,
        request: Shareable,
        timeout: float,
        fl_ctx: None,
        optional: bool,
    ) -> Any:
        (site,) = targets
        self.asked.append(site)
        reply = self._sites[site](request[BODY], timeout)
        return {} if reply is None else {site: reply}


def answers(message: bytes, timeout: float) -> Shareable:
    reply = Shareable()
    reply[BODY] = b"answer to " + message
    return reply


def away(message: bytes, timeout: float) -> Any:
    return make_reply(ReturnCode.COMMUNICATION_ERROR)


def hangs(message: bytes, timeout: float) -> None:
    time.sleep(timeout)


def breaks(message: bytes, timeout: float) -> None:
    raise RuntimeError("the engine raises many kinds")


def wrong_form(message: bytes, timeout: float) -> Shareable:
    reply = Shareable()
    reply[BODY] = "text"
    return reply


def exchange(
    engine: Engine, *, deadline_seconds: float, away_seconds: float = 60.0, stopped: bool = False
) -> tuple[dict[int, bytes], float]:
    names = tuple(engine._sites)
    driver = NvflareDriver(engine, names, stopped=lambda: stopped, away_seconds=away_seconds)
    begin = time.monotonic()
    found = driver.exchange(
        {number: name.encode() for number, name in enumerate(names)},
        deadline_seconds=deadline_seconds,
    )
    driver.close()
    return dict(found), time.monotonic() - begin


@pytest.mark.parametrize("fault", [away, hangs, breaks, wrong_form])
def test_a_silo_that_fails_is_missing_and_harms_nobody_else(fault: Site) -> None:
    found, seconds = exchange(Engine(a=answers, b=fault, c=answers), deadline_seconds=2.0)
    assert found == {0: b"answer to a", 2: b"answer to c"}
    assert seconds < 60.0  # on a busy machine too


def test_a_process_that_comes_back_is_asked_again() -> None:
    tries = iter([away, breaks, away, answers])
    found, _ = exchange(
        Engine(a=lambda message, timeout: next(tries)(message, timeout)), deadline_seconds=30.0
    )
    assert found == {0: b"answer to a"}


def test_a_site_that_is_gone_is_not_waited_for_as_long_as_one_that_computes() -> None:
    found, seconds = exchange(Engine(a=answers, b=away), deadline_seconds=600.0, away_seconds=0.6)
    assert found == {0: b"answer to a"}
    assert seconds < 300.0  # on a busy machine too


def test_a_silo_that_lets_requests_run_out_is_computing_and_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sumus.engines.nvflare.driver._FIRST_TRY_SECONDS", 1.0)
    tries = iter([hangs, hangs, answers])
    engine = Engine(a=lambda message, timeout: next(tries)(message, timeout))
    found, seconds = exchange(engine, deadline_seconds=60.0, away_seconds=2.5)
    assert found == {0: b"answer to a"}
    assert seconds > 2.5  # two tries of one and two seconds ran out


def test_an_aborted_job_asks_nobody() -> None:
    engine = Engine(a=answers)
    assert exchange(engine, deadline_seconds=30.0, stopped=True)[0] == {}
    assert not engine.asked
