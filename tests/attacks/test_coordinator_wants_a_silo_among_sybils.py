"""The roster arrives in the coordinator's kit. One whose other silos are made up would turn the
"sum" into the victim's own vector, so a silo joins the roster that its own people have compared, and
no other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sumus.books import Policy
from sumus.cli import main
from sumus.errors import StorageError
from sumus.parties import agree_on, approve, open_party, settle
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.secagg import Identity, Roster
from support.kits import bare_kit, made_roster

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
NAMES = ("silo-0", "silo-1", "silo-2")


class Case:
    """A silo with its key, the roster that everybody compared, and a kit with another one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.me = Identity.generate("silo-0", RandomSource())
        self.honest, self.sybil = (made_roster(NAMES, self.me) for _ in range(2))
        self.plan, self.key = folder / "plan.toml", folder / "silo-0.key"
        self.plan.write_text(PLAN)
        self.key.write_text(self.me.secret_text())

    def join(self, roster: Roster, policy: str, *options: str) -> tuple[int, Path]:
        kit = bare_kit(self.folder / "kit", "silo-0", roster)
        (self.folder / "policy.toml").write_text(policy)
        own = ("--identity", self.key, "--policy", self.folder / "policy.toml", "--plan", self.plan)
        words = ["join", kit, "--data", "digits", *own, *options]
        return main([str(word) for word in words]), kit


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def named(roster: Roster) -> str:
    return f'roster_fingerprint = "{roster.digest().hex()}"\n'


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("way", ["policy", "option"])
def test_a_roster_of_made_up_silos_is_refused_before_anything_is_written(
    case: Case, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    before = files_of(bare_kit(case.folder / "kit", "silo-0", case.sybil))
    pin = case.honest.digest().hex()
    code, kit = (
        case.join(case.sybil, named(case.honest))
        if way == "policy"
        else case.join(case.sybil, "", "--fingerprint", pin)
    )
    said = capsys.readouterr().err
    assert code == 3
    assert "compare with the other silos" in said.lower()
    assert files_of(kit) == before


def test_a_silo_that_has_named_no_roster_joins_none_and_is_told_the_line(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_of(bare_kit(case.folder / "kit", "silo-0", case.honest))
    code, kit = case.join(case.honest, "")
    said = capsys.readouterr().err
    assert code == 3
    assert len(said.strip().splitlines()) == 1
    assert "roster_fingerprint = " in said
    assert files_of(kit) == before


def test_a_dry_run_shows_what_to_compare_and_the_line_to_add(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = case.join(case.honest, "", "--check")
    shown = capsys.readouterr().out
    (line,) = (line for line in shown.splitlines() if "roster_fingerprint" in line)
    assert code == 0
    assert Policy.from_toml(line).pins(case.honest.digest())
    assert case.join(case.honest, line, "--check")[0] == 0
    assert case.join(case.sybil, line, "--check")[0] == 3


def test_a_fingerprint_given_twice_is_given_alike(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    other = case.sybil.digest().hex()
    assert case.join(case.honest, named(case.honest), "--fingerprint", other, "--check")[0] == 3
    assert "name different rosters" in capsys.readouterr().err
    assert case.join(case.honest, "", "--fingerprint", "not one", "--check")[0] == 2


def test_a_roster_that_is_exchanged_later_is_noticed_by_every_process(case: Case) -> None:
    """And the control: a silo that has named none takes part in whatever roster is there."""
    for pin, notices in ((named(case.honest), True), ("", False)):
        folder = case.folder / f"state-{notices}"
        settle(
            folder,
            identity=case.me,
            roster=case.honest,
            data="digits",
            policy=Policy.from_toml(pin),
            policy_text=pin,
        )
        approve(folder, [agree_on(TrainingPlan.from_toml(PLAN)).plan])
        open_party(folder).close()
        (folder / "roster.toml").write_text(case.sybil.to_text())
        if notices:
            with pytest.raises(StorageError, match="is not the roster"):
                open_party(folder)
        else:
            open_party(folder).close()
