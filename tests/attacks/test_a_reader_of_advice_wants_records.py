"""Whoever reads advice wants to know what the records hold: it is the same for all records that
fit one plan.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sumus.cli import main

PLAN = """
[privacy]
epsilon = 1.0
[federation]
rounds = 5
[data]
path = "t.csv"
silo_column = "site"
label_column = "y"
records_per_silo = [400, 400]
counts = "bounded"
[data.bounds]
x = [0.0, 10.0]
[data.categories]
y = ["no", "yes"]
"""


def table(seed: int, rows: int, share: float) -> str:
    """Two sites; in the first one a share of the rows says yes, in the second the others do."""
    rng = random.Random(seed)
    lines = []
    for row in range(rows):
        site = "AB"[row % 2]
        often = share if site == "A" else 1.0 - share
        lines.append(
            f"{site},{rng.uniform(0.0, 10.0):.2f},{'yes' if rng.random() < often else 'no'}"
        )
    return "\n".join(["site,x,y", *lines, ""])


def told(capsys: pytest.CaptureFixture[str], content: str, plan: str, *options: str) -> str:
    Path("t.csv").write_text(content)
    Path("plan.toml").write_text(plan)
    assert main(["plan", "plan.toml", "--advise", *options]) == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_other_records_give_the_same_bytes(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    alike, apart = table(1, 600, 0.5), table(2, 60, 0.02)
    assert told(capsys, alike, PLAN, *options) == told(capsys, apart, PLAN, *options)


def test_control_another_plan_gives_others(capsys: pytest.CaptureFixture[str]) -> None:
    records = table(1, 600, 0.5)
    strict = PLAN.replace("epsilon = 1.0", "epsilon = 0.01")
    assert told(capsys, records, PLAN) != told(capsys, records, strict)
