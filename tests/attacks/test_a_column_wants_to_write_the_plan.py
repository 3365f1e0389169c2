"""A supplier of a table wants other numbers in the plan: its header carries lines of TOML, which a
comment or a list of columns would let through.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from sumus.cli import main
from sumus.drafting import shown
from sumus.plan import TrainingPlan

NAMES = (
    "x\n[privacy]\nepsilon = 50.0\n#",
    'x"]\n[privacy]\nepsilon = 50.0\n# "',
    "x\r[privacy]\repsilon = 50.0",
    "\x1b[2Jx",
    'x", "y',
    "x # [privacy]",
)


def table(name: str) -> str:
    quoted = name.replace('"', '""')
    rows = "".join(f"{'AB'[i % 2]},{i % 9},{i % 7},{(i // 2) % 2}\n" for i in range(80))
    return f's,"{quoted}",age,y\n{rows}'


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kept", [True, False])
def test_the_plan_has_the_numbers_that_were_asked_for(
    name: str,
    kept: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(table(name), newline="")
    out = [] if kept or "," in name else ["--leave-out", name]  # in a comment, or among columns
    assert main(["new", "t.csv", "--silo", "s", "--label", "y", *out]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    plan = TrainingPlan.load("plan.toml")
    assert plan.privacy.epsilon == 1.0
    assert set(plan.data.columns or ()) <= {name, "age"}


def test_control_a_name_as_it_stands_writes_into_a_plan() -> None:
    name = NAMES[0]
    naive = f"[training]\n# left out: {name}"
    assert tomllib.loads(naive)["privacy"] == {"epsilon": 50.0}
    assert "privacy" not in tomllib.loads(f"[training]\n# left out: {shown(name)}")
