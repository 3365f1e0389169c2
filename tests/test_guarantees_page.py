"""docs/guarantees.md names only tests that exist, and no claim without one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"tests/[\w/]+(?:\.py(?:::\w+)?|\.toml|/)", PAGE)))


@pytest.mark.parametrize("reference", NAMED)
def test_a_named_test_exists(reference: str) -> None:
    path, _, name = reference.partition("::")
    assert (ROOT / path).exists()
    if name:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


def test_every_pitfall_has_a_severity_and_a_test() -> None:
    table = PAGE.split("## Pitfalls")[1].split("## What is not protected")[0]
    rows = [
        line.split("|")[1:-1]
        for line in table.splitlines()
        if line.startswith("| ") and not line.startswith("| pitfall")
    ]
    assert len(rows) >= 15
    for _, severity, measure, test in rows:
        assert any(word in severity for word in ("critical", "high", "medium"))
        assert measure.strip()
        assert "tests/" in test
