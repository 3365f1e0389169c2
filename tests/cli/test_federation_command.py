"""A plan and a roster that do not fit are found when kits are made and when a silo looks at its
kit, not when training begins.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sumus.cli import main

pytest.importorskip("nvflare")

PLAN = """
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
silos = 3
rounds = 2
local_steps = 20
[data]
name = "digits"
"""


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return str(path)


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_kits_are_made_for_the_silos_of_the_plan_only(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, plan: str
) -> None:
    folder = tmp_path / "federation"
    said = fails(
        capsys, "federation", "init", str(folder), "--silos", "silo-0,silo-1", "--plan", plan
    )
    assert (
        "--silos must be the silos of the plan, silo-0, silo-1, silo-2, got 'silo-0, silo-1'"
        in said
    )
    assert not folder.exists()


def test_a_folder_of_keys_that_is_not_there_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "federation"
    assert "--keys must be a folder" in fails(
        capsys,
        "federation",
        "init",
        str(folder),
        "--silos",
        "a,b",
        "--keys",
        str(tmp_path / "none"),
    )
    assert not folder.exists()


@pytest.mark.deep
def test_a_silo_sees_that_its_roster_and_its_plan_do_not_fit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, plan: str
) -> None:
    folder, policy = tmp_path / "federation", tmp_path / "policy.toml"
    policy.write_text("")
    assert main(["federation", "init", str(folder), "--silos", "silo-0,silo-1"]) == 0
    capsys.readouterr()
    kit = str(folder / "kits" / "silo-0")
    said = fails(
        capsys, "join", kit, "--data", "digits", "--policy", str(policy), "--plan", plan, "--check"
    )
    assert "the kit's roster must be the silos of the plan" in said
