"""A silo, a plan or a class chooses its name and a refusal its words: the live page of everybody
else must show them and do nothing else, and the lines of Prometheus must stay lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sumus.watching import Board, LivePage
from sumus.watching.state import Connection, Lost, Part, Presence, Refused, Result
from support.browser import Browser, chromium
from support.live import NOON, TOKEN, asked, begun, made_board, told, until

NASTY = (
    "</script><script>alert(1)</script><img src=x onerror='alert(2)'>\" autofocus "
    'onfocus="alert(3) javascript:alert(4) {{7*7}} \\u003cscript>'
)
PLAIN = "an ordinary name that is about as long as any other one could be"


def board_with(name: str) -> Board:
    """A board on which everything that has a name has this one."""
    board = made_board("operator", name=name)
    follow = begun(board)
    follow.round_ends(told(1, notes=(name,)))
    plan, promise, measured = board.state.plan, board.state.promise, board.state.measured
    assert plan is not None
    assert promise is not None
    assert measured is not None
    follow.change(
        plan=replace(plan, title=name, hash=name, terms=((name, name), *plan.terms)),
        promise=replace(promise, neighbours=name, trust=name, analysis=name, unit=name),
        measured=replace(measured, title=name, text=name),
        said=name,
        presences=(Presence(name=name, presence="refused", why=name, since=NOON),),
        refusals=(Refused(who=name, reason=name, when=NOON),),
        lost=(Lost(round=1, reason=name, when=NOON),),
        connection=Connection(up=False, since=NOON, why=name),
        parts=(Part(name=name, up=True, since=NOON),),
        result=Result(run=name, report=name, model=name),
        refused=1,
        lost_rounds=1,
    )
    return board


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def elements(browser: Browser, board: Board) -> dict[str, int]:
    """How many elements of each kind the page has, once it shows the board."""
    with LivePage(board, token=TOKEN) as page:
        browser.visit(page.address)
        until(lambda: browser.evaluate("live.version") >= board.version)
        counted = browser.evaluate(
            "(() => { const found = {}; for (const node of document.querySelectorAll('*')) { const "
            "key = node.tagName + [...node.attributes].map(each => ' ' + each.name).sort().join(''); "
            "found[key] = (found[key] ?? 0) + 1; } return found; })()"
        )
    return dict(counted)


@pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")
def test_by_names_of_silos_plans_classes_and_files(browser: Browser) -> None:
    browser.complaints.clear()
    hostile = elements(browser, board_with(NASTY))
    assert browser.evaluate("document.getElementById('title').textContent") == NASTY
    assert NASTY in browser.evaluate("document.title")
    assert browser.evaluate("document.getElementById('silos-rows').textContent").count(NASTY) == 2
    assert hostile == elements(browser, board_with(PLAIN))
    assert browser.complaints == []
    # the control: a page that takes the name for markup has an image that was never there
    browser.evaluate("document.getElementById('title').innerHTML = " + repr(NASTY.split("\\")[0]))
    assert browser.evaluate("document.querySelectorAll('#title img').length") == 1


def test_by_labels_of_metrics() -> None:
    nasty = 'x"} 1\nsumus_epsilon_spent 0\n# '
    board = board_with(nasty)
    with LivePage(board, token=TOKEN) as page:
        text = asked(page.port, f"/{TOKEN}/metrics")[2].decode()
    families = {each.name: each for each in text_string_to_metric_families(text)}
    samples = families["sumus_epsilon_spent"].samples
    assert [sample.value for sample in samples] == [told(1).epsilon]
    assert samples[0].labels["trust"] == nasty
    # the control: a line that is put together by hand says what the name wants
    careless = f'# TYPE sumus_epsilon_spent gauge\nsumus_epsilon_spent{{trust="{nasty}"}} 0.3\n'
    (family,) = text_string_to_metric_families(careless)
    assert [sample.value for sample in family.samples] == [1.0, 0.0]
