"""What a page consists of, without a browser: headings in order, landmarks, tables and pictures that
can be read aloud, colours that can be told apart, and nothing that moves or loads.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sumus.books import RunFolder
from sumus.report import write_description
from sumus.report.page import render_report
from sumus.runs import describe
from support.described_table import described_plan, description_options
from support.reported_runs import reported_run

CSS = Path(__file__).parents[2] / "src" / "sumus" / "report" / "templates" / "page.css"
VOID = {"meta", "line", "rect", "circle", "path"}


class Node:
    """An element, its attributes, its children and its text."""

    def __init__(self, tag: str, attributes: dict[str, str | None], parent: Node | None) -> None:
        self.tag, self.attributes, self.parent = tag, attributes, parent
        self.children: list[Node] = []
        self.own_text = ""

    def __iter__(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child

    def all(self, *tags: str) -> list[Node]:
        return [node for node in self if node.tag in tags]

    @property
    def text(self) -> str:
        return " ".join((self.own_text + " ".join(child.text for child in self.children)).split())


class Tree(HTMLParser):
    """A page as a tree."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self._here = Node("", {}, None)
        self.feed(source)
        self.close()
        assert self._here is self.root

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs), self._here)
        self._here.children.append(node)
        if tag not in VOID:
            self._here = node

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._here.children.append(Node(tag, dict(attrs), self._here))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._here.tag == tag
            assert self._here.parent is not None
            self._here = self._here.parent

    def handle_data(self, data: str) -> None:
        self._here.own_text += data


@pytest.fixture(scope="module", params=["one", "void", "several", "described"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Node:
    root = tmp_path_factory.mktemp("pages")
    if request.param == "described":
        found = describe(described_plan(root), epsilon=2.0, options=description_options(root))
        write_description(found, root / "page.html")
        return Tree((root / "page.html").read_text(encoding="utf-8")).root
    void = "the noise comes from a public seed" if request.param == "void" else None
    paths = [reported_run(root / "a", rounds=4, secure=True, void=void)]
    if request.param == "several":
        paths.append(reported_run(root / "b", rounds=4))
    return Tree(render_report([RunFolder.open(path) for path in paths])).root


def test_headings_are_in_order(page: Node) -> None:
    levels = [int(node.tag[1]) for node in page.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert all(node.text for node in page.all("h1", "h2", "h3", "h4"))


def test_there_are_landmarks_a_language_and_a_way_past_the_head(page: Node) -> None:
    (html,), (main,) = page.all("html"), page.all("main")
    assert html.attributes["lang"] == "en"
    assert len(page.all("header")) == 1
    (body,) = page.all("body")
    first = body.children[0]
    assert (first.tag, first.attributes["href"]) == ("a", f"#{main.attributes['id']}")
    for nav in page.all("nav"):
        assert nav.attributes["aria-label"]
    outside = [node for node in page.all("section") if node not in list(main)]
    assert outside == []


def test_every_name_that_is_pointed_to_is_there_once(page: Node) -> None:
    names = [str(node.attributes["id"]) for node in page if "id" in node.attributes]
    assert len(names) == len(set(names))
    pointed = {str(node.attributes["href"]) for node in page.all("a")}
    assert all(each.startswith("#") for each in pointed)
    labelled = {
        str(node.attributes["aria-labelledby"])
        for node in page
        if "aria-labelledby" in node.attributes
    }
    assert {each[1:] for each in pointed} | labelled <= set(names)
    for section in page.all("section"):
        assert {"aria-label", "aria-labelledby"} & set(section.attributes)


def test_every_table_says_what_it_is_and_what_its_cells_belong_to(page: Node) -> None:
    assert page.all("table")
    for table in page.all("table"):
        (caption,) = table.all("caption")
        assert len(caption.text) > 10
        assert table.children[0] is caption
        heads = table.all("th")
        assert all(head.attributes.get("scope") in ("row", "col") for head in heads)
        for row in table.all("tr"):
            assert row.children[0].tag == "th"


def test_every_picture_is_told_in_words_or_is_ornament(page: Node) -> None:
    told = 0
    for svg in page.all("svg"):
        if svg.attributes.get("aria-hidden") == "true":
            continue
        assert svg.attributes["role"] == "img"
        label = str(svg.attributes["aria-label"])
        assert re.search(r"\. .*\d", label), "it says numbers, not only a title"
        told += 1
    assert told >= 4


def test_what_scrolls_or_opens_can_be_reached_without_a_mouse(page: Node) -> None:
    for node in page:
        if node.attributes.get("class") in ("scroll", "plan"):
            assert node.attributes["tabindex"] == "0"
            assert node.attributes["role"] == "region"
            assert node.attributes["aria-label"]
        if node.tag == "details":
            assert node.children[0].tag == "summary"
            assert node.children[0].text
    moved = [node for node in page if int(str(node.attributes.get("tabindex", "0"))) > 0]
    assert moved == []


def test_only_its_own_style_and_script_may_run(page: Node) -> None:
    policies = [
        str(node.attributes["content"])
        for node in page.all("meta")
        if node.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert len(policies) == 1
    assert policies[0].startswith("default-src 'none'; ")
    for node in page.all("style", "script"):
        digest = base64.b64encode(hashlib.sha256(node.own_text.encode()).digest()).decode()
        assert f"{node.tag}-src 'sha256-{digest}'" in policies[0]
        assert not {"src", "href"} & set(node.attributes)
    assert len(page.all("style")) == 1
    assert len(page.all("script")) <= 1
    assert page.all("link", "img", "iframe", "object", "form", "base") == []
    assert [node for node in page if "style" in node.attributes] == []


def themes() -> dict[str, dict[str, str]]:
    """The colours of each theme, by the name of the variable."""
    blocks = re.findall(r":root \{(.*?)\}", CSS.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    named = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6});", block)) for block in blocks]
    return {"light": named[0], "dark": named[0] | named[1], "paper": named[0] | named[2]}


@pytest.mark.parametrize("theme", ["light", "dark", "paper"])
def test_the_colours_of_every_theme_have_contrast(theme: str) -> None:
    colours = themes()[theme]
    grounds = ("paper", "card")
    pairs = [(text, ground, 4.5) for text in ("ink", "soft", "faint") for ground in grounds]
    pairs += [(text, f"{text}-soft", 4.5) for text in ("good", "bad", "warn")]
    pairs += [(text, "card", 4.5) for text in ("good", "bad", "warn")]
    pairs += [("soft", f"{each}-soft", 4.5) for each in ("good", "bad", "warn")]
    pairs += [(f"c{number}", ground, 3.0) for number in range(8) for ground in grounds]
    pairs += [("focus", ground, 3.0) for ground in grounds]
    assert [
        (text, ground)
        for text, ground, least in pairs
        if contrast(colours[text], colours[ground]) < least
    ] == []


def test_nothing_moves_for_whoever_asked_for_stillness() -> None:
    style = CSS.read_text(encoding="utf-8")
    assert not re.search(r"\b(animation|transition)\b", style)
    (only,) = re.findall(
        r"@media \((prefers-reduced-motion: [\w-]+)\) \{[^}]*scroll-behavior", style
    )
    assert only == "prefers-reduced-motion: no-preference"
    assert style.count("scroll-behavior") == 1


@pytest.mark.deep
def test_a_page_of_a_thousand_rounds_is_below_a_megabyte_and_draws_the_extremes(
    tmp_path: Path,
) -> None:
    run = RunFolder.open(reported_run(tmp_path, rounds=1000))
    text = render_report([run])
    assert len(text.encode()) < 1_000_000
    page = Tree(text).root
    assert "round (1 in 5 drawn)" in text
    (table,) = [
        node for node in page.all("table") if node.attributes.get("class") == "wide numbers"
    ]
    assert len(table.all("tr")) == 1001, "the table has them all"
    (chart,) = [
        node for node in page.all("svg") if "Fairness" in str(node.parent and node.parent.text)
    ]
    scores = [min(entry.known_silo_scores) for entry in run.rounds()]
    worst = scores.index(min(scores)) + 1
    assert f"in round {worst}" in str(chart.attributes["aria-label"])


def contrast(one: str, two: str) -> float:
    """Contrast of two colours as in WCAG 2.2."""
    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * each for each in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
