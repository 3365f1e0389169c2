"""A silo, or whoever writes the plan, chooses names; the report of everybody else must show them
and do nothing else: no element, no attribute, no other number.
"""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import jinja2

from sumus.books import RunFolder
from sumus.report import page
from sumus.report.histograms import histogram
from sumus.report.page import render_report
from support.reported_runs import reported_run

NASTY = "</style><script>alert(1)</script><img src=x onerror='alert(2)'>\" autofocus onfocus=\"x {{ 7*7 }}"
PLAIN = "an ordinary name that is as long as any"


class Elements(HTMLParser):
    """What a page consists of: elements with the names of their attributes, and its words."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.seen: Counter[tuple[str, ...]] = Counter()
        self.words: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag, *sorted(name for name, _ in attrs)] += 1

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def page_with(name: str, root: Path) -> Elements:
    """The page of a run in which everything that has a name has this one."""
    account: dict[str, Any] = {
        "columns": (name, "age"),
        "assumptions": (name, f"warning: {name}"),
        "cautions": (name,),
        "trust": name,
        "releases": name,
        "epsilon_per_silo": {name: 0.5, "other": 0.7},
    }
    path = reported_run(root, silos=5, rounds=3, account=account, name=name)
    return Elements(render_report([RunFolder.open(path)]))


def test_by_names_of_silos_classes_columns_and_data_sets(tmp_path: Path) -> None:
    hostile, plain = page_with(NASTY, tmp_path / "a"), page_with(PLAIN, tmp_path / "b")
    assert hostile.seen == plain.seen
    assert NASTY in "".join(hostile.words)


def test_by_a_category_that_a_histogram_shows() -> None:
    pictures = [
        Elements(histogram([(name, 3.0), ("other", 2.0)], plus_minus=1.0, label=name))
        for name in (NASTY, PLAIN)
    ]
    assert pictures[0].seen == pictures[1].seen


def test_control_without_escaping_a_name_becomes_elements(tmp_path: Path) -> None:
    plain = page_with(PLAIN, tmp_path / "b")
    page._environment.cache_clear()
    with mock.patch("jinja2.Environment", _unescaped):
        hostile = page_with(NASTY, tmp_path / "a")
    page._environment.cache_clear()
    assert any(tag == "img" for tag, *_ in (hostile.seen - plain.seen))


def _unescaped(**options: Any) -> jinja2.Environment:
    return _ENVIRONMENT(**{**options, "autoescape": False})


_ENVIRONMENT = jinja2.Environment
