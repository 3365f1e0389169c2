"""The README is true: its Python blocks run, its two commands exist, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.scripts import run_script

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.deep
def test_python_blocks_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    assert len(blocks) >= 2
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    (tmp_path / "plans").symlink_to(ROOT / "plans")
    said = run_script(script, folder=tmp_path, monkeypatch=monkeypatch, capsys=capsys)
    assert "proved (convex-pass)" in said


@pytest.mark.deep
@pytest.mark.parametrize(
    ("example", "measure"),
    [
        ("hospitals.py --rounds 3", "c-index "),
        pytest.param("hospitals.py", "c-index ", marks=pytest.mark.long),
        pytest.param("images.py", "accuracy ", marks=pytest.mark.long),
    ],
)
def test_examples_run(
    example: str,
    measure: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script, *options = example.split()
    path = ROOT / "examples" / script
    try:
        said = run_script(path, *options, folder=tmp_path, monkeypatch=monkeypatch, capsys=capsys)
    except SystemExit as end:  # the package is fetched by pip
        code, error = end.code, capsys.readouterr().err
    else:
        code, error = 0, ""
    if "no table, no example" in error:
        assert code == 2
        assert error.count("\n") == 1
        pytest.skip(error)
    assert code == 0, error
    assert "proved (" in said
    assert measure in said
    if script == "hospitals.py":
        assert "joining brings +" in said
        assert (tmp_path / "hospitals" / "joining.png").is_file()


def test_exactly_two_set_up_commands_and_both_are_targets() -> None:
    commands = re.findall(r"^make (\w+)", README, flags=re.M)
    assert commands == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in commands:
        assert re.search(rf"^{target}:", makefile, flags=re.M)
    assert re.search(r"^check:.* test$", makefile, flags=re.M)
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in _anchors(file.read_text(encoding="utf-8")), f"{page.name}: {target}"


def _anchors(text: str) -> set[str]:
    """Of every heading, as a renderer makes them: lower case, words and hyphens."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_listed_command_exists() -> None:
    from sumus.cli import COMMANDS

    for name in re.findall(r"`sumus (\w+)", README):
        assert name in COMMANDS, name
