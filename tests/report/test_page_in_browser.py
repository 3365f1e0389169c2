"""The page in headless Chromium: no complaints, no requests, everything there, at every width, on
paper; hostile names stay text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sumus.books import RunFolder
from sumus.report import write_report
from support.browser import Browser, chromium
from support.synthetic_runs import made_run

pytestmark = pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")

HOSTILE = tuple(
    f"<script>alert({n})</script><img src=x onerror=alert({n})>\"'>{{{{7*7}}}} & silo {n}"
    for n in range(15)
)


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
    return root


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.deep
@pytest.mark.parametrize("name", ["one", "two", "hostile"])
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


def test_pointing_at_a_chart_shows_the_nearest_round(browser: Browser, pages: Path) -> None:
    browser.open(pages / "one.html")
    browser.evaluate(
        "document.querySelector('[data-figure=accuracy] svg.chart').scrollIntoView({block: "
        "'center'})"
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


@pytest.mark.parametrize("width", [1440, 1024, 768, 390, 320])
@pytest.mark.parametrize("name", ["one", "two", "hostile"])
def test_nothing_sticks_out_at_any_width(
    browser: Browser, pages: Path, name: str, width: int
) -> None:
    browser.resize(width, 900)
    browser.open(pages / f"{name}.html")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    browser.resize(1280, 900)


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
    """Second line of defence: the page's own policy allows its script by hash and no other."""
    smuggled = tmp_path / "smuggled.html"
    smuggled.write_text(
        (pages / "one.html")
        .read_text()
        .replace("</article>", "<script>document.title = 'owned'</script></article>")
    )
    browser.open(smuggled)
    assert browser.evaluate("document.title") != "owned"
    assert any("Content Security Policy" in each for each in browser.complaints)
    browser.complaints.clear()


def test_dark_and_light_both_have_readable_text(tmp_path: Path, pages: Path) -> None:
    for dark in (False, True):
        with Browser(tmp_path / f"profile-{dark}", dark=dark) as opened:
            opened.open(pages / "one.html")
            colours = opened.evaluate(
                "['body', '.tile-remark', 'figcaption', '.terms dt', '.verdict'].map(s => { const "
                "e = document.querySelector(s);"
                " let b = e; while (getComputedStyle(b).backgroundColor === 'rgba(0, 0, 0, 0)') b "
                "= b.parentElement;"
                " return [getComputedStyle(e).color, getComputedStyle(b).backgroundColor]; })"
            )
            for text, ground in colours:
                assert contrast(text, ground) >= 4.0, (dark, text, ground)


def test_a_printed_page_fits_a4_and_opens_what_a_signed_copy_needs(
    browser: Browser, pages: Path
) -> None:
    browser.open(pages / "one.html")
    assert browser.evaluate("getComputedStyle(document.querySelector('.sign')).display") == "none"
    document = browser.printed()
    assert document.startswith(b"%PDF")
    boxes = {
        tuple(map(float, box.split())) for box in re.findall(rb"/MediaBox\s*\[([^\]]*)\]", document)
    }
    assert all(abs(box[2] - 595) < 2 and abs(box[3] - 842) < 2 for box in boxes)
    assert boxes
    assert document.count(b"/Type /Page\n") <= 7
    assert (
        browser.evaluate(
            "[...document.querySelectorAll('details[data-print]')].every(each => each.open)"
        )
        is True
    )


def contrast(one: str, two: str) -> float:
    """Contrast of two CSS colours as in WCAG 2.2."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)
