"""Pages in headless Chromium: no complaints, no requests, everything there, at every width, by
keyboard, in light and dark, on two sheets of paper; hostile names stay text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sumus.books import RunFolder
from sumus.report import History, write_description, write_history, write_report
from sumus.runs import describe
from support.browser import PAPERS, Browser, chromium
from support.described_table import described_plan, description_options
from support.past_runs import made_history
from support.reported_runs import KINDS, reported_run
from support.synthetic_runs import made_run

pytestmark = pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")

HOSTILE = tuple(
    f"<script>alert({n})</script><img src=x onerror=alert({n})>\"'>{{{{7*7}}}} & silo {n}"
    for n in range(15)
)
NAMES = ("one", "two", "hostile", "described", "history")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pages")
    one = RunFolder.open(made_run(root / "a"))
    write_report([one], root / "one.html")
    write_report(
        [one, RunFolder.open(made_run(root / "b", seed=1, privacy__delta="1e-6"))],
        root / "two.html",
    )
    write_report(
        [RunFolder.open(made_run(root / "c", silos=HOSTILE, rounds=60))], root / "hostile.html"
    )
    for name, more in (("described", 0), ("twelve columns", 8)):
        plan = described_plan(root, more=more)
        found = describe(plan, epsilon=2.0, options=description_options(root))
        write_description(found, root / f"{name}.html")
    made_history(root / "past", data__name=HOSTILE[0], data__path=None)
    write_history(
        History.of_folder(root / "past" / "runs", state=root / "past" / "state"),
        root / "history.html",
    )
    for name, kind in KINDS.items():
        write_report([RunFolder.open(reported_run(root / name, **kind))], root / f"{name}.html")
    return root


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def as_usual(browser: Browser) -> Iterator[None]:
    yield
    browser.prefer()
    browser.resize(1280, 900)


@pytest.mark.parametrize("name", [*NAMES, *KINDS])
def test_a_page_loads_without_complaint_and_without_the_network(
    browser: Browser, pages: Path, name: str
) -> None:
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(pages / f"{name}.html")
    assert browser.complaints == []
    assert browser.requests == [(pages / f"{name}.html").resolve().as_uri()]


def test_every_chart_is_drawn_with_visible_size(browser: Browser, pages: Path) -> None:
    browser.open(pages / "one.html")
    drawn = browser.evaluate(
        "[...document.querySelectorAll('figure')].map(f => [f.dataset.figure, "
        "f.querySelector('svg.chart').getBoundingClientRect().height])"
    )
    assert {name for name, _ in drawn} == {
        "accuracy",
        "loss",
        "epsilon",
        "fairness",
        "noise",
        "clipping",
        "seconds",
        "traffic",
    }
    assert all(height > 150 for _, height in drawn)
    line = "getComputedStyle(document.querySelector('[data-figure=accuracy] path.line'))"
    # the style sheet passed its own policy
    assert browser.evaluate(f"{line}.stroke") == "rgb(47, 95, 208)"


def test_every_bar_of_a_histogram_lies_inside_its_picture(browser: Browser, pages: Path) -> None:
    browser.open(pages / "described.html")
    heights = browser.evaluate(
        "[...document.querySelectorAll('svg.chart')].map(s => s.getBoundingClientRect().height)"
    )
    assert len(heights) == 4
    assert min(heights) > 60
    outside = browser.evaluate(
        "[...document.querySelectorAll('svg.chart rect')].filter(r => +r.getAttribute('height') < "
        "0 || +r.getAttribute('x') < 0 || +r.getAttribute('x') + +r.getAttribute('width') > 460"
        ").length"
    )
    assert outside == 0


def test_pointing_at_a_chart_shows_the_nearest_round(browser: Browser, pages: Path) -> None:
    browser.open(pages / "one.html")
    browser.evaluate(
        "document.documentElement.style.scrollBehavior = 'auto', document.querySelector("
        "'[data-figure=accuracy] svg.chart').scrollIntoView({block: 'center'})"
    )
    box = browser.evaluate(
        "(b => [b.left, b.top, b.width, b.height])(document.querySelector('[data-figure=accuracy] "
        "svg.chart').getBoundingClientRect())"
    )
    assert browser.evaluate("document.getElementById('tip').hidden") is True
    browser.point_at(box[0] + box[2] - 12, box[1] + box[3] / 2)
    assert browser.evaluate("document.getElementById('tip').hidden") is False
    shown = browser.evaluate("document.getElementById('tip').innerText")
    assert "round 12" in shown
    last = RunFolder.open(next((pages / "a").iterdir())).rounds()[-1]
    assert f"{100 * last.metrics['accuracy']:.1f}\u00a0%" in shown
    tip = browser.evaluate(
        "(b => [b.left, b.right, b.top])(document.getElementById('tip').getBoundingClientRect())"
    )
    assert 0 <= tip[0] < tip[1] <= 1280
    assert tip[2] >= 0
    browser.point_at(2, 2)
    assert browser.evaluate("document.getElementById('tip').hidden") is True


@pytest.mark.parametrize("width", [1440, 768, 320])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_sticks_out_at_any_width(
    browser: Browser, pages: Path, name: str, width: int
) -> None:
    browser.resize(width, 900)
    browser.open(pages / f"{name}.html")
    browser.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_names_are_shown_and_do_nothing(browser: Browser, pages: Path) -> None:
    """The attacker names a silo so that the report of everybody else runs its code, loads something
    or shows other numbers.
    """
    browser.complaints.clear()
    browser.open(pages / "hostile.html")
    assert browser.evaluate("document.scripts.length") == 1
    assert browser.evaluate("document.images.length") == 0
    assert browser.evaluate("document.body.innerText.includes('<script>alert(')") is True
    assert browser.evaluate("document.body.innerText.includes('{{7*7}}')") is True
    assert browser.complaints == []


def test_even_a_page_with_a_smuggled_script_does_not_run_it(
    browser: Browser, pages: Path, tmp_path: Path
) -> None:
    """Second line of defence: the page's own policy allows its script by hash and no other. Control:
    the same page without its policy runs it.
    """
    whole = (pages / "one.html").read_text()
    whole = whole.replace("</article>", "<script>document.title = 'owned'</script></article>")
    without = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", whole)
    for name, text, owned in (("guarded", whole, False), ("bare", without, True)):
        (tmp_path / f"{name}.html").write_text(text)
        browser.complaints.clear()
        browser.open(tmp_path / f"{name}.html")
        assert (browser.evaluate("document.title") == "owned") is owned
        assert any("Content Security Policy" in each for each in browser.complaints) is not owned
    browser.complaints.clear()


# every text that is shown: its colour, the ground that it stands on, and whether it is large
COLOURS = """
[...new Set([...document.querySelectorAll('body, body *')].filter(e => e.checkVisibility() &&
  [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) &&
  !['SCRIPT', 'STYLE'].includes(e.tagName)).map(e => {
    const style = getComputedStyle(e), svg = e.closest('svg');
    let ground = svg || e;
    while (ground.parentElement &&
           getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)')
      ground = ground.parentElement;
    const size = parseFloat(style.fontSize), bold = +style.fontWeight >= 700;
    return JSON.stringify([svg ? style.fill : style.color,
      getComputedStyle(ground).backgroundColor, size >= 24 || (bold && size >= 18.66),
      e.tagName + '.' + (e.getAttribute('class') || '')]);
  }))].map(JSON.parse)
"""
# every line, dot and bar that carries a value, on the card it stands on
DRAWN = """
[...new Set([...document.querySelectorAll('.line, .fill, .dot, .limit')].filter(e =>
  e.checkVisibility() && !e.closest('td, th')).map(e => {
    const style = getComputedStyle(e);
    let ground = e.closest('svg');
    while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)')
      ground = ground.parentElement;
    const colour = style.fill === 'none' || e.matches('.line, .limit') ? style.stroke : style.fill;
    return JSON.stringify([colour, getComputedStyle(ground).backgroundColor]);
  }))].map(JSON.parse)
"""


@pytest.mark.parametrize(("dark", "media"), [(False, ""), (True, ""), (True, "print")])
@pytest.mark.parametrize("name", ["persons", "two", "void", "not proved", "described", "history"])
def test_everything_that_is_shown_has_contrast(
    browser: Browser, pages: Path, name: str, dark: bool, media: str
) -> None:
    browser.prefer(dark=dark, media=media)
    browser.open(pages / f"{name}.html")
    browser.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    texts = browser.evaluate(COLOURS)
    assert len(texts) >= 10
    faint = [each for each in texts if contrast(each[0], each[1]) < (3.0 if each[2] else 4.5)]
    assert faint == []
    pale = [each for each in browser.evaluate(DRAWN) if contrast(*each) < 3.0]
    assert pale == []
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    light = luminance(ground if ground != "rgba(0, 0, 0, 0)" else "rgb(255, 255, 255)")
    assert (light > 0.5) == (media == "print" or not dark), "paper is never dark"


@pytest.mark.parametrize("name", ["one", "described"])
def test_everything_can_be_reached_and_opened_by_keyboard(
    browser: Browser, pages: Path, name: str
) -> None:
    browser.open(pages / f"{name}.html")
    browser.press("Tab")
    here = "document.activeElement"
    assert browser.evaluate(f"{here}.className") == "skip"
    assert browser.evaluate(f"{here}.getBoundingClientRect().top") >= 0, "it is seen"
    wanted = browser.evaluate("document.querySelectorAll('summary, svg[tabindex], a').length")
    reached = set()
    for _ in range(2 * wanted + 20):
        browser.press("Tab")
        reached.add(
            browser.evaluate(
                f"[...document.querySelectorAll('summary, svg[tabindex], a')].indexOf({here})"
            )
        )
        if browser.evaluate(f"{here} === document.body"):
            break
    assert set(range(1, wanted)) <= reached
    browser.evaluate("document.querySelector('summary').focus()")
    browser.press("Enter")
    assert browser.evaluate("document.querySelector('details').open") is True


def test_a_long_history_is_narrowed_down_by_typing_and_lineage_leads_to_its_runs(
    browser: Browser, pages: Path
) -> None:
    browser.open(pages / "history.html")
    shown = "[...document.querySelectorAll('#all-runs tbody tr')].filter(r => r.checkVisibility())"
    assert browser.evaluate(f"{shown}.length") == 6
    for text, rows in (("under way", 1), ("1 LOST", 1), ("nothing like it", 0), ("", 6)):
        browser.evaluate(
            f"(b => {{ b.value = '{text}'; b.dispatchEvent(new Event('input')); }})"
            "(document.getElementById('filter'))"
        )
        assert browser.evaluate(f"{shown}.length") == rows
    links = "[...document.querySelectorAll('.lineage a')].map(a => a.getAttribute('href'))"
    assert len(browser.evaluate(links)) == 4
    assert browser.evaluate(f"{links}.every(each => document.querySelector(each).matches('tr'))")
    browser.evaluate("document.querySelector('svg.chart').focus()")
    browser.press("End")
    assert "2026-01-13" in browser.evaluate("document.getElementById('tip').innerText")


def test_arrow_keys_on_a_chart_show_its_values(browser: Browser, pages: Path) -> None:
    browser.open(pages / "one.html")
    browser.evaluate("document.querySelector('[data-figure=accuracy] svg.chart').focus()")
    told = "document.getElementById('tip').innerText"
    for key, expected in (("End", "round 12"), ("ArrowLeft", "round 11"), ("Home", "round 1\n")):
        browser.press(key)
        assert expected in browser.evaluate(told)
    browser.press("Escape")
    assert browser.evaluate("document.getElementById('tip').hidden") is True


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("name", ["described", "twelve columns", *KINDS])
def test_a_printed_run_is_two_sheets_with_lines_to_sign(
    browser: Browser, pages: Path, name: str, paper: str
) -> None:
    browser.open(pages / f"{name}.html")
    document = browser.printed(paper)
    boxes = re.findall(rb"/MediaBox\s*\[([^\]]*)\]", document)
    width, height = (72.0 * inches for inches in PAPERS[paper])
    for box in boxes:
        _, _, right, top = map(float, box.split())
        assert (right, top) == pytest.approx((width, height), abs=2.0)
    assert len(re.findall(rb"/Type\s*/Page\b", document)) == 2


def test_what_is_printed_holds_what_is_signed_and_nothing_is_cut_off(
    browser: Browser, pages: Path
) -> None:
    browser.open(pages / "persons.html")
    lines = "document.querySelector('.lines').checkVisibility()"
    assert browser.evaluate(lines) is False
    browser.prefer(media="print")
    browser.resize(round(184 * 96 / 25.4), 900)
    assert browser.evaluate(lines) is True
    shown = browser.evaluate("document.body.innerText")
    for needed in (
        "What ε means",
        "What it does not protect",
        "Assumptions",
        "How well the model does",
        "What the data set has spent",
        "Signatures",
        "Privacy officer",
        "more are on the page itself",
    ):
        assert needed in shown
    for left_out in ("The plan, in full", "Hash chain", "Skip to the content"):
        assert left_out not in shown
    assert (
        browser.evaluate(
            "[...document.querySelectorAll('main *')].filter(e => e.checkVisibility() && "
            "getComputedStyle(e).overflow === 'visible' && !e.closest('svg, .hidden') && "
            "e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).length"
        )
        == 0
    )


def contrast(one: str, two: str) -> float:
    """Contrast of two CSS colours as in WCAG 2.2."""
    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
