"""What is written for people: one sentence per line, the paper by its name, nothing about the making.

A page is judged as Markdown: code, formulas that are set off and HTML comments are left out, and the
cells of a table are judged one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
# True once sources and plans name the paper, and sources say nothing of the making.
SRC_IS_SWEPT = True

PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("tests/*.md")})
PLANS = sorted([*(ROOT / "plans").glob("*.toml"), *(ROOT / "examples").rglob("*.toml")])
SOURCES = sorted((ROOT / "src").rglob("*.py")) if SRC_IS_SWEPT else []
NAMING = [*PAGES, *PLANS, *SOURCES] if SRC_IS_SWEPT else PAGES

MAKING = {
    "a foreign folder": r"\.\./shared",
    "an acceptance target": (
        r"\|\s*targets?\s*\|"
        r"|\btargets?\b[^.|{}]{0,60}\b(?:met|missed|reached|exceeded)\b"
        r"|\b(?:met|missed|reached|exceeded) (?:the|its|our|all|every) targets?\b"
        r"|\bacceptance (?:criteri|target|test)"
    ),
    "history of the making": (
        r"\bfirst proposal\b|\bsame day\b|\bfirst trial\b|\bearlier revisions?\b"
        r"|\b(?:used to|formerly|previously)\b|\bissue \d|\bbefore there was\b|\bit no longer\b"
    ),
}

LEAD_IN = re.compile(r"(?:\*\*[^*]+\*\*|\*[^*]+\*)\s*")
LEAD_IN_WORDS = 4  # "**Not protected.** Availability, …": a heading that stands in its paragraph
END = re.compile(
    r"""(?<!\bet\ al)(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)(?<!\bvs)(?<!\bMikko\ A)
        (?:[.?!]["')\]*_]*|∎)          # the end of a sentence, with what closes around it
        \s+(?=[^\sa-z∎=≤≥<>×·+,;:.)…|–—-])  # and the beginning of another""",
    re.VERBOSE,
)
LIST_MARKER = re.compile(r"(\s*)([-*+]|\d+\.)\s+")


class Prose(NamedTuple):
    """One line of text, or one cell of a table, without the markers in front of it."""

    line: int
    text: str
    is_cell: bool
    goes_on: bool  # the next line belongs to the same paragraph


def masked(text: str) -> str:
    """The text at its length, with nothing inside code and addresses that looks like a sentence's end."""
    text = re.sub(r"`[^`]*`", lambda code: f"`{'x' * (len(code[0]) - 2)}`", text)
    return re.sub(r"\]\([^)]*\)", lambda link: "]" + "x" * (len(link[0]) - 1), text)


def sentences(text: str) -> list[str]:
    """The sentences of a text; a lead-in of a few emphasised words belongs to what follows it."""
    plain, out, start = masked(text), [], 0
    while start < len(text):
        lead = LEAD_IN.match(plain, start)
        title = lead is not None and (
            len(lead[0].split()) <= LEAD_IN_WORDS or re.match(r"\*\*(Theorem|Lemma)", lead[0])
        )
        end = END.search(plain, lead.end() if lead is not None and title else start)
        stop = end.end() if end else len(text)
        out.append(text[start:stop].strip())
        start = stop
    return out


def prose(text: str) -> Iterator[Prose]:
    """The lines of a page that hold sentences."""
    lines = text.split("\n")
    in_code = in_comment = False
    after_blank, list_indent = True, -1
    for number, line in enumerate(lines):
        stripped = line.strip()
        if re.match(r"```|~~~", stripped):
            in_code = not in_code
            continue
        in_comment = in_comment or stripped.startswith("<!--")
        if in_code or in_comment or not stripped or stripped.startswith(("#", "![", "---", ":::")):
            in_comment = in_comment and not stripped.endswith("-->")
            after_blank = not stripped or after_blank
            list_indent = -1 if stripped.startswith("#") else list_indent
            continue
        if stripped.startswith("|"):
            cells = re.sub(r"`[^`]*`", lambda code: code[0].replace("|", " "), stripped)
            for cell in cells.strip("|").split("|"):
                yield Prose(number + 1, cell.strip(), is_cell=True, goes_on=False)
            after_blank = False
            continue
        indent = len(line) - len(line.lstrip())
        marker = LIST_MARKER.match(line)
        inside = list_indent + 2 if list_indent >= 0 else 0
        if after_blank and not marker and indent >= inside + 4:
            continue  # a formula that is set off
        if marker:
            list_indent = len(marker[1])
        elif indent == 0 and after_blank:
            list_indent = -1
        following = lines[number + 1] if number + 1 < len(lines) else ""
        ends = re.match(r"\s*($|```|\||#|!\[|<!--)", following) or LIST_MARKER.match(following)
        body = line[marker.end() :] if marker else stripped
        yield Prose(number + 1, body.strip(), is_cell=False, goes_on=not ends)
        after_blank = False


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_line_holds_one_sentence(page: Path) -> None:
    for line in prose(page.read_text(encoding="utf-8")):
        parts = sentences(line.text)
        assert len(parts) <= 1, f"{name_of(page)}:{line.line}: {' ⏎ '.join(parts)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_sentence_stands_on_one_line(page: Path) -> None:
    for line in prose(page.read_text(encoding="utf-8")):
        if line.goes_on:
            end = line.text.rstrip("\"')]*_` ")
            assert end.endswith((".", ":", "?", "!", "∎")), (
                f"{name_of(page)}:{line.line}: {line.text}"
            )


@pytest.mark.parametrize("path", [*PAGES, *PLANS, *SOURCES], ids=name_of)
def test_nothing_tells_of_the_making(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for what, pattern in MAKING.items():
        hit = re.search(pattern, text, flags=re.IGNORECASE)
        assert hit is None, f"{name_of(path)}: {what}: {hit[0] if hit else ''}"


@pytest.mark.parametrize("path", NAMING, ids=name_of)
def test_the_paper_is_named_before_it_is_spoken_of(path: Path) -> None:
    """`The paper` without a name sends a reader searching; the line that names it may be the same."""
    text = path.read_text(encoding="utf-8")
    if spoken_of := re.search(r"\bthe paper\b", text, flags=re.IGNORECASE):
        line_end = text.find("\n", spoken_of.end())
        until = text[: line_end if line_end >= 0 else len(text)]
        assert "Heikkilä" in until, f"{name_of(path)}: {until.splitlines()[-1].strip()}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    """`noise/grid.py` is a file of the package, `tests/noise/test_grid.py` one of the tree."""
    named = set(re.findall(r"`([a-z_/]+\.py)(?:::\w+)?`", page.read_text(encoding="utf-8")))
    missing = [
        name
        for name in named
        if not any(
            (folder / name).exists() for folder in (ROOT, ROOT / "src/sumus", ROOT / "tests")
        )
        and not any(path.name == name for path in (ROOT / "tests").rglob("test_*.py"))
    ]
    assert not missing


def test_the_experiments_fit_on_one_screen() -> None:
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 60
    assert len(page.split()) <= 600


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One sentence. Another one.", 2),
        ("**Proof.** Let x be 1.5 and y = 2.", 1),
        ("**A whole sentence that is emphasised.** Another one.", 2),
        ("See `a.b. C` and [a b](c. D) of Dong et al. Here too.", 1),
        ("Is it? `yes` it is.", 2),
        ("(In brackets.) Outside of them.", 2),
        ("Finished. ∎ (A remark.)", 2),
        ("Mikko A. Heikkilä wrote it.", 1),
    ],
)
def test_sentences_are_told_apart(text: str, count: int) -> None:
    """The control: without it a page would pass because nothing is ever found."""
    assert len(sentences(text)) == count


def test_tables_code_and_formulas_are_told_apart() -> None:
    page = (
        "A. B\n\n    f = 1. G\n\n| a | b. C |\n|---|---|\n\n```\nx. Y\n```\n- item\n  more. End\n"
    )
    assert [line.text for line in prose(page)] == [
        "A. B",
        "a",
        "b. C",
        "---",
        "---",
        "item",
        "more. End",
    ]


def test_the_making_and_the_unnamed_paper_would_be_found() -> None:
    for text in ("the first proposal", "two targets are missed", "| target |", "../shared/data"):
        assert any(re.search(pattern, text) for pattern in MAKING.values()), text
    for text in ("noise calibrated to a target ε", "a target that both meet"):
        assert not any(re.search(pattern, text) for pattern in MAKING.values()), text
