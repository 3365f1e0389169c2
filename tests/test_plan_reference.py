"""docs/plan-reference.md and docs/policy-reference.md are what the rules say, key by key."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "gen_plan_reference", DOCS / "gen_plan_reference.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = _generator()
TABLES = [*GENERATOR.SECTIONS.values(), GENERATOR.SiloPlan, GENERATOR.Policy]


@pytest.mark.parametrize("page", GENERATOR.PAGES)
def test_the_page_is_what_the_generator_gives(page: str) -> None:
    """To update: `python docs/gen_plan_reference.py`."""
    assert (DOCS / page).read_text(encoding="utf-8") == GENERATOR.PAGES[page]()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_no_key_lacks_a_meaning_or_a_rule(table: type) -> None:
    meanings = GENERATOR.meanings(table)
    assert [name for name, meaning in meanings.items() if len(meaning.split()) < 2] == []
    for item in dataclasses.fields(table):
        assert GENERATOR.rule_in_words(item.metadata["rule"])


@pytest.mark.parametrize("page", GENERATOR.PAGES)
def test_every_key_has_a_row(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    tables = TABLES[:-1] if page.startswith("plan") else TABLES[-1:]
    for table in tables:
        for item in dataclasses.fields(table):
            assert f"\n| `{item.name}` |" in text
