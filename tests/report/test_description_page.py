"""The page of a description: everything is there, nothing is loaded, no name becomes markup."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from sumus.describing import ColumnStatistics, Estimate
from sumus.report import write_description
from sumus.report.description import _number
from sumus.runs import Simulation, describe
from support.described_table import described_plan, description_options


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    options = description_options(folder)
    found = describe(described_plan(folder), epsilon=2.0, options=options, simulation=Simulation(1))
    write_description(found, folder / "d.html")
    return folder / "d.html"


@pytest.fixture(scope="module")
def page(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def test_every_column_has_a_figure_with_words_for_it(page: str) -> None:
    figures = re.findall(r'<figure class="figure prints" data-column="([^"]*)">', page)
    assert len(figures) == 4
    assert page.count('role="img"') == 4
    labels = re.findall(r'role="img" aria-label="([^"]+)"', page)
    assert len(labels) == 4
    assert all(re.match(r"Histogram of .+ (Cells|Largest): .+ with \d", label) for label in labels)
    assert page.count("<title>") > 40, "every bar says its cell and count"
    assert 'class="whisker"' in page
    assert "Bounds for a plan" in page
    assert "list its values in data.categories" in page


def test_an_interval_up_to_the_edge_of_the_cells_has_one_end() -> None:
    column = ColumnStatistics(
        name="age",
        kind="wide",
        cells=(),
        edges=(-1e9, 0.0, 70.0, 1e9),
        plus_minus=1.0,
        missing=None,
    )
    for low, high, told in (
        (-1e9, 70.0, "40 (below 70)"),
        (-math.inf, 70.0, "40 (below 70)"),
        (0.0, math.inf, "40 (above 0)"),
        (-math.inf, math.inf, "40 (anywhere)"),
        (0.0, 70.0, "40 (0 to 70)"),
    ):
        assert _number(Estimate(40.0, low, high), column) == told


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
