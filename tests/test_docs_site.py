"""The site: every page is in it, every public name has a place in it, and it loads nothing from elsewhere."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def _hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOKS = _hooks()


def test_every_page_is_in_the_navigation_once() -> None:
    listed = re.findall(r": ([\w-]+\.md)$", CONFIG, flags=re.M)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_the_index_leads_to_every_other_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert linked == {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}


def test_the_build_is_strict_and_asks_no_network() -> None:
    assert re.search(r"^strict: true$", CONFIG, flags=re.M)
    assert re.search(r"^  font: false$", CONFIG, flags=re.M)
    assert "http" not in CONFIG + (ROOT / "docs" / "site.css").read_text(encoding="utf-8")


@pytest.mark.parametrize("module", HOOKS.rooms())
def test_every_public_name_has_a_place_in_the_reference(module: str) -> None:
    public = [name for name in importlib.import_module(module).__all__ if name[0] != "_"]
    page = HOOKS.page(module, HOOKS.rooms()[module])
    shown = re.findall(rf"^::: {re.escape(module)}\.(\w+)$", page, flags=re.M)
    assert sorted(shown) == sorted(public)


def test_the_package_itself_is_in_the_reference() -> None:
    assert "train" in HOOKS.rooms()["sumus"]


@pytest.mark.long
@pytest.mark.deep
def test_the_site_builds_and_no_page_loads_anything_from_elsewhere(tmp_path: Path) -> None:
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package)
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", str(ROOT / "mkdocs.yml")]
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 12
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(
            r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?(https?:[^\s\">]+)", text
        )
        assert loaded == [], page.name
        assert 'class="mermaid"' not in text, f"{page.name}: the theme would fetch a script for it"
