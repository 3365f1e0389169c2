"""docs/deployment.md says who attacks, what for and with which outcome: by tests that exist, and for
every file of attacks.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECTION = (
    (ROOT / "docs" / "deployment.md")
    .read_text(encoding="utf-8")
    .split("## Attackers, what they want")[1]
    .split("\n## ")[0]
)
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in SECTION.splitlines()
    if line.startswith("| ") and not line.startswith("| attacker")
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[3])
def test_a_row_is_whole_and_names_a_test_that_exists(row: list[str]) -> None:
    assert len(row) == 4
    assert all(row)
    named = re.fullmatch(r"`(tests/[\w/]+\.py)::(\w+)`", row[3])
    assert named is not None
    assert f"def {named[2]}(" in (ROOT / named[1]).read_text(encoding="utf-8")


def test_every_file_of_attacks_is_in_the_table() -> None:
    files = {
        f"tests/attacks/{path.name}" for path in (ROOT / "tests" / "attacks").glob("test_*.py")
    }
    assert files - {row[3].strip("`").split("::")[0] for row in ROWS} == set()
