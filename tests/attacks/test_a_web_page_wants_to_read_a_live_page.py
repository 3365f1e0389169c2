"""A page of somebody else's is open in the browser of whoever watches a run, and wants the run's
numbers: from another origin, or under a name that it lets point to this machine (DNS rebinding).

The attacker knows the port and even the token, as from a screenshot: without it there is nothing to
ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from sumus.watching import LivePage
from sumus.watching.access import Access
from sumus.watching.answers import _ALWAYS
from support.browser import Browser, chromium
from support.live import TOKEN, asked, begun, made_board, told

pytestmark = pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")
EVIL = "evil.test"
WANTED = '"round":7'
READ = f"""fetch("ADDRESS/{TOKEN}/state").then((answer) => answer.text(), (error) => "error: " + error)"""
FOLLOW = f"""new Promise((done) => {{
  const events = new EventSource("ADDRESS/{TOKEN}/events");
  events.onmessage = (event) => {{ events.close(); done(event.data); }};
  events.onerror = () => {{ events.close(); done("error"); }};
}})"""
FRAME = f"""new Promise((done) => {{
  const frame = document.createElement("iframe");
  frame.src = "ADDRESS/{TOKEN}/state";
  frame.onload = () => {{
    let seen = "nothing";
    try {{ seen = frame.contentDocument.body.textContent; }} catch (error) {{ seen = "error: " + error; }}
    done(seen);
  }};
  document.body.append(frame);
}})"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    rules = f"--host-resolver-rules=MAP {EVIL} 127.0.0.1"
    with Browser(tmp_path_factory.mktemp("profile"), rules) as opened:
        yield opened


@contextmanager
def running(token: str = TOKEN) -> Iterator[LivePage]:
    board = made_board()
    begun(board).round_ends(told(7))
    with LivePage(board, token=token) as page:
        yield page


@contextmanager
def undefended() -> Iterator[None]:
    """A server as one writes it in a hurry: it looks at no header, and lets everybody read."""
    kept = {name: value for name, value in _ALWAYS.items() if name in ("Cache-Control",)}
    open_door = {"Access-Control-Allow-Origin": "*"}
    with (
        mock.patch.object(Access, "_is_for_us", return_value=True),
        mock.patch.dict(_ALWAYS, kept | open_door, clear=True),
    ):
        yield


@pytest.mark.parametrize("script", [READ, FOLLOW], ids=["fetch", "events"])
def test_from_another_origin(browser: Browser, script: str) -> None:
    """Another port of the same machine is the same site, and all that cookies would ask for."""
    with running() as page, running("f" * 64) as others:
        attack = script.replace("ADDRESS", f"http://127.0.0.1:{page.port}")
        with undefended():
            browser.visit(f"http://127.0.0.1:{others.port}/healthz")  # a page of the attacker's
            assert WANTED in browser.evaluate(attack, awaited=True)
        assert WANTED not in browser.evaluate(attack, awaited=True)


@pytest.mark.parametrize("script", [READ, FOLLOW], ids=["fetch", "events"])
def test_by_a_name_that_points_here(browser: Browser, script: str) -> None:
    with running() as page:
        attack = script.replace("ADDRESS", "")
        with undefended():
            # a document of the attacker's, who has served it before the name came to point here
            browser.visit(f"http://{EVIL}:{page.port}/healthz")
            assert WANTED in browser.evaluate(attack, awaited=True)
        assert WANTED not in browser.evaluate(attack, awaited=True)
        status = asked(page.port, f"/{TOKEN}/state", host=f"{EVIL}:{page.port}")[0]
        assert status == 403


def test_by_a_frame(browser: Browser) -> None:
    with running() as page:
        attack = FRAME.replace("ADDRESS", "")
        with undefended():
            browser.visit(f"http://{EVIL}:{page.port}/healthz")
            assert WANTED in browser.evaluate(attack, awaited=True)
        assert WANTED not in browser.evaluate(attack, awaited=True)
        browser.visit(page.address + "state")  # its owner may look
        assert WANTED in browser.evaluate("document.body.textContent")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.test"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.test"},
    ],
    ids=lambda headers: " ".join(*headers.items()),
)
def test_headers_of_other_pages_are_refused_before_the_token_is_looked_at(
    headers: dict[str, str],
) -> None:
    with running() as page:
        for path in (f"/{TOKEN}/state", "/healthz", "/wrong"):
            assert asked(page.port, path, headers)[0] == 403
        assert asked(page.port, f"/{TOKEN}/state", {"Sec-Fetch-Site": "same-origin"})[0] == 200


def test_no_answer_lets_another_origin_read_it() -> None:
    with running() as page:
        for path in (f"/{TOKEN}/", f"/{TOKEN}/state", f"/{TOKEN}/metrics", "/healthz", "/x"):
            headers = asked(page.port, path)[1]
            assert not [name for name in headers if name.startswith("access-control")]
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert "set-cookie" not in headers
