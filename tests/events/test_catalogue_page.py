"""docs/logs.md lists every event, as the code declares it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_what_the_generator_gives() -> None:
    """To update: `python docs/gen_events.py`."""
    spec = importlib.util.spec_from_file_location("gen_events", DOCS / "gen_events.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert (DOCS / "logs.md").read_text(encoding="utf-8") == generator.page()
