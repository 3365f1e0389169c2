"""The page of a description: everything is there, nothing is loaded, no name becomes markup."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import sumus
from sumus.report import write_description
from sumus.runs import RunOptions, Simulation, describe
from support.browser import Browser, chromium

NASTY = "<b>x</b>&\"'"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    draw = np.random.default_rng(0)
    rows = [
        f"{'ABC'[i % 3]},{draw.normal(50, 9):.1f},{draw.exponential(9):.2f},{'uv'[i % 2]},t{i}"
        for i in range(900)
    ]
    header = f'site,age,"{NASTY.replace(chr(34), chr(34) * 2)}",ward,note'
    (folder / "t.csv").write_text("\n".join([header, *rows, ""]))
    plan = sumus.TrainingPlan().with_overrides(
        {
            "data.path": str(folder / "t.csv"),
            "data.silo_column": "site",
            "data.label_column": "ward",
            "data.bounds.age": [0, 100],
            "data.categories.ward": ["u", "w"],
        }
    )
    options = RunOptions(root=folder, ledger=False)
    found = describe(plan, epsilon=2.0, options=options, simulation=Simulation(1))
    write_description(found, folder / "d.html")
    return folder / "d.html"


@pytest.fixture(scope="module")
def page(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def test_every_column_has_a_figure_with_words_for_it(page: str) -> None:
    figures = re.findall(r'<figure class="figure" data-column="([^"]*)">', page)
    assert len(figures) == 4
    assert page.count('role="img"') == 4
    labels = re.findall(r'aria-label="([^"]+)"', page)
    assert all("Histogram of" in label for label in labels)
    assert page.count("<title>") > 40, "every bar says its cell and count"
    assert 'class="whisker"' in page
    assert "Bounds for a plan" in page
    assert "list its values in data.categories" in page


def test_a_void_run_says_so(page: str) -> None:
    assert "Void" in page
    assert "ε ≤" not in page.split("</section>")[0]


def test_names_of_columns_are_escaped(page: str) -> None:
    assert "<b>x</b>" not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    assert "default-src &#39;none&#39;" in page
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", page)
    assert "<script" not in page


def test_no_silo_is_told_apart(page: str) -> None:
    body = page.split("Column by column")[1].split("Bounds for a plan")[0]
    for name in ("site", "silo"):
        assert name not in body
    assert "minimum" not in page
    assert "maximum" not in page


def test_the_page_in_words(page: str) -> None:
    assert "private statistics" in page
    assert "A count may be negative" in page
    assert "95 %" in page


@pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_every_histogram_without_complaint(
    file: Path, tmp_path: Path, width: int
) -> None:
    with Browser(tmp_path / "profile", width=width) as browser:
        browser.open(file)
        assert browser.complaints == []
        assert browser.requests == [file.resolve().as_uri()]
        heights = browser.evaluate(
            "[...document.querySelectorAll('svg.chart')].map(s => s.getBoundingClientRect().height)"
        )
        assert len(heights) == 4
        assert min(heights) > 60
        wide = browser.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
        outside = browser.evaluate(
            "[...document.querySelectorAll('svg.chart')].flatMap(s => "
            "[...s.querySelectorAll('rect')].filter(r => +r.getAttribute('height') < 0 || "
            "+r.getAttribute('x') < 0 || +r.getAttribute('x') + +r.getAttribute('width') > 460)"
            ").length"
        )
        assert outside == 0
