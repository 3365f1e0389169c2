"""A plan may name a model or a feature map as "package.module:Class", and building it runs it. A
silo shows the names first and imports what its own policy lists.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sumus.books import Policy
from sumus.cli import main
from sumus.errors import PolicyError
from sumus.parties import agree_on, open_party, settle
from sumus.parties.server_model import prepared_without_records
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.secagg import Identity
from support.kits import bare_kit, made_roster

MODULE = "sumus_test_carried_code"
SOURCE = """
import pathlib, torch
pathlib.Path(__file__).with_name("ran").touch()
class Net(torch.nn.Linear):
    def __init__(self, in_features, classes):
        super().__init__(in_features, classes)
"""
PLAN = """
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
silos = 3
rounds = 2
local_steps = 2
[training]
algorithm = "split-noise"
{name} = "{path}"
dimension = 650
sampling_rate = 0.1
[data]
name = "digits"
"""


@pytest.fixture
def joining(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    me = Identity.generate("silo-0", RandomSource())
    roster = made_roster(("silo-0", "silo-1", "silo-2"), me)
    kit = bare_kit(tmp_path / "kit", "silo-0", roster)
    (tmp_path / "silo-0.key").write_text(me.secret_text())

    def check(name: str, policy: str) -> int:
        (tmp_path / "plan.toml").write_text(PLAN.format(name=name, path=f"{MODULE}:Net"))
        pin = f'roster_fingerprint = "{roster.digest().hex()}"\n'
        (tmp_path / "policy.toml").write_text(pin + policy)
        own = ["--identity", tmp_path / "silo-0.key", "--policy", tmp_path / "policy.toml"]
        words = ["join", kit, "--data", "digits", *own, "--plan", tmp_path / "plan.toml"]
        return main([str(word) for word in [*words, "--check"]])

    yield check
    sys.modules.pop(MODULE, None)


@pytest.mark.parametrize("name", ["model", "features"])
def test_code_that_the_policy_does_not_list_is_named_and_never_imported(
    joining, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert joining(name, "") == 3
    shown = capsys.readouterr()
    assert f"{MODULE}:Net" in shown.out  # before the refusal, and before any import
    assert f'add "{MODULE}:Net" to allowed_models' in shown.err
    assert not (tmp_path / "ran").exists()


def test_listed_code_runs(joining, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The control: whoever works on the plan runs what it names."""
    assert joining("model", f'allowed_models = ["{MODULE}:Net"]') == 0
    shown = capsys.readouterr().out
    assert shown.index(f"{MODULE}:Net") < shown.index("plan hash")
    prepared_without_records(agree_on(TrainingPlan.load(tmp_path / "plan.toml")))
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("listed", [[], ["other:Net"], [f"{MODULE}"], [f"{MODULE}:Net2"]])
def test_a_list_names_whole_paths(listed: list[str]) -> None:
    plan = TrainingPlan.from_toml(PLAN.format(name="model", path=f"{MODULE}:Net"))
    with pytest.raises(PolicyError, match="allowed_models"):
        Policy(allowed_models=tuple(listed)).check_imports(plan)
    Policy(allowed_models=(f"{MODULE}:Net",)).check_imports(plan)
    Policy().check_imports(plan.replace("training", model="mlp"))


def test_a_plan_that_found_its_way_into_the_folder_is_not_imported_either(tmp_path: Path) -> None:
    me = Identity.generate("silo-0", RandomSource())
    roster = made_roster(("silo-0", "silo-1", "silo-2"), me)
    settle(
        tmp_path / "state",
        identity=me,
        roster=roster,
        data="digits",
        policy=Policy(),
        policy_text="",
    )
    party = open_party(tmp_path / "state")
    with pytest.raises(PolicyError, match="allowed_models"):
        party._agree(TrainingPlan.from_toml(PLAN.format(name="model", path=f"{MODULE}:Net")))
    party.close()
