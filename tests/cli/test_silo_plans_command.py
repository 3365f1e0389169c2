"""`sumus silo approve`, `withdraw` and `plans`, as somebody types them while the silo runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sumus.cli import main
from sumus.cli.vaults import require_own
from sumus.errors import PlanError, PolicyError, StorageError
from sumus.events import read_trail
from sumus.parties import ApprovedPlans, Restored, approve, retire, vault_folder
from sumus.plan import TrainingPlan
from support.vault_federation import VaultFederation, small_plan

pytestmark = pytest.mark.deep

SILO = "silo-0"


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[VaultFederation]:
    made = VaultFederation(tmp_path)
    yield made
    made.close()


def written(folder: Path, plan: TrainingPlan) -> Path:
    path = folder / f"{plan.hash[:8]}.toml"
    path.write_text(plan.to_toml())
    return path


def silo(*words: object) -> int:
    return main(["silo", *map(str, words)])


def approved(federation: VaultFederation) -> list[str]:
    return [plan.hash for plan in ApprovedPlans(federation.vault(SILO))]


def test_a_plan_is_approved_listed_and_withdrawn_while_the_silo_runs(
    federation: VaultFederation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agreed, vault = small_plan(federation__rounds=4), federation.vault(SILO)
    file = written(tmp_path, agreed)
    assert silo("approve", vault, file, "--check") == 0
    assert "nothing was written" in capsys.readouterr().out
    assert approved(federation) == []
    assert silo("approve", vault, file) == 0
    said = capsys.readouterr().out
    assert agreed.hash in said
    assert "ε ≤" in said
    assert "one record" in said
    assert "all stay here" in said
    assert "Make a new backup" in said
    federation.approve(agreed, at=federation.names[1:])
    assert federation.train(agreed, rounds=1)["phase"] == "paused"
    assert silo("plans", vault) == 0
    said = capsys.readouterr().out
    assert "1 of 4" in said
    assert "under way, its ε is set aside" in said
    assert silo("withdraw", vault, agreed.hash[:6]) == 0
    assert "answers nothing more of it; what it had set aside" in capsys.readouterr().out
    ended = federation.train(agreed, rounds=1)  # the others go on without it
    assert ended["rounds"][-1]["dropped"] == [SILO]
    assert silo("plans", vault) == 0
    assert "no plan is approved: everything is refused" in capsys.readouterr().out
    assert federation.ledger(SILO).reservations() == []
    assert silo("approve", vault, file, "--json") == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (facts["plans"], facts["written"]) == ([agreed.hash], True)
    assert federation.train(agreed)["phase"] == "finished"
    assert silo("plans", vault, "--json") == 0
    (told,) = json.loads(capsys.readouterr().out)["plans"]
    assert (told["answered_up_to"], told["rounds"], told["over"]) == (4, 4, True)
    assert federation.rounds(SILO, agreed) == [1, 3, 4]
    assert (told["set_aside"], told["state"]) == (False, "over")


def test_a_withdrawn_run_counts_what_it_has_spent_and_enters_nothing_more(
    federation: VaultFederation, tmp_path: Path
) -> None:
    agreed, vault = small_plan(federation__rounds=3), federation.vault(SILO)
    federation.approve(agreed)
    assert federation.train(agreed, rounds=1)["phase"] == "paused"
    spent = federation.ledger(SILO).total("record").epsilon
    assert federation.ledger(SILO).committed("record").epsilon > spent
    assert silo("withdraw", vault, written(tmp_path, agreed)) == 0
    assert federation.ledger(SILO).committed("record").epsilon == spent
    # even if somebody put the file back by hand: the ledger takes nothing of a cancelled run
    (vault / "plans" / "back.toml").write_text(agreed.to_toml())
    ended = federation.train(agreed)
    assert ended["phase"] == "failed" or SILO in ended["refusals"]
    assert federation.rounds(SILO, agreed) == [1]
    assert federation.ledger(SILO).total("record").epsilon == spent


def test_reserved_plans_count_whole_at_once_and_all_or_none_is_approved(
    federation: VaultFederation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each has ε = 2: of three there is room for two."""
    vault = federation.vault(SILO)
    policy = tmp_path / "policy.toml"
    policy.write_text("max_epsilon = 4.5\n")
    files = [written(tmp_path, small_plan(seed)) for seed in range(3)]
    words = ("approve", vault, *files, "--reserve", "--policy", policy)
    assert silo(*words) == PolicyError.exit_code
    said = capsys.readouterr()
    assert "set aside by runs that have not ended" in said.err
    assert "3 approved plans that have not run would bring the data set to ε ≤ 6" in " ".join(
        said.out.split()
    )
    assert approved(federation) == []
    assert federation.ledger(SILO).reservations() == []
    assert silo("approve", vault, *files[:2], "--reserve") == 0  # under the policy that was set
    assert federation.ledger(SILO).committed("record").epsilon == pytest.approx(4.0, rel=1e-3)
    capsys.readouterr()
    assert silo("approve", vault, files[2]) == PolicyError.exit_code
    assert len(approved(federation)) == 2
    limits = read_trail(vault).of("limit.changed")
    assert limits[-1]["after"] == 4.5


def test_what_is_wrong_is_one_line_and_approves_nothing(
    federation: VaultFederation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vault = federation.vault(SILO)
    good = written(tmp_path, small_plan())
    four = written(tmp_path, small_plan(federation__silos=4))
    strange = tmp_path / "strange.toml"
    strange.write_text("[privacy]\nepsilo = 2.0\n")
    other = tmp_path / "other.toml"
    other.write_text(f'roster_fingerprint = "{"0" * 64}"\n')
    for words, code, part in (
        (("approve", vault, good, four), PlanError.exit_code, "silo-3"),
        (("approve", vault, good, strange), PlanError.exit_code, "epsilo"),
        (("approve", vault, good, "--policy", other), PolicyError.exit_code, "another roster"),
        (("approve", tmp_path / "nowhere", good), PlanError.exit_code, "must be a folder"),
        (("approve", tmp_path, good), StorageError.exit_code, "is no silo's vault"),
        (("withdraw", vault, "abcd"), PlanError.exit_code, "must be one approved plan"),
    ):
        capsys.readouterr()
        assert silo(*words) == code, words
        told = capsys.readouterr().err.splitlines()
        assert len(told) == 1, told
        assert part in told[0]
        assert approved(federation) == []
    assert len(read_trail(vault).of("policy.changed")) == 1  # when the vault was made


def test_a_retired_or_foreign_or_restored_vault_approves_nothing(
    federation: VaultFederation,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vault, file = federation.vault(SILO), written(tmp_path, small_plan())
    restored = Restored(
        backup="0", made="2026-01-01", restored="2026-01-02", answered={}, known_only=True
    )
    restored.write(vault)
    assert silo("approve", vault, file) == StorageError.exit_code
    assert "--never-run" in capsys.readouterr().err
    assert silo("approve", vault, file, "--never-run") == 0
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with pytest.raises(StorageError, match=r"belongs to user .*sudo -u"):
        require_own(vault)
    monkeypatch.undo()
    federation.stop(SILO)
    retire(vault)
    capsys.readouterr()
    assert silo("approve", vault, file) == StorageError.exit_code
    assert "was retired" in capsys.readouterr().err
    with pytest.raises(StorageError, match="was retired"):
        approve(vault, [small_plan(1)])


def test_a_kit_stands_for_its_silos_vault(
    federation: VaultFederation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))
    kit, file = tmp_path / "kit", written(tmp_path, small_plan())
    (kit / "sumus").mkdir(parents=True)
    (kit / "kit.toml").write_text(
        f'engine = "nvflare"\nparty = "{SILO}"\nserver = "localhost:8002"\n'
    )
    (kit / "sumus" / "roster.toml").write_text(federation.roster.to_text())
    assert silo("approve", kit, file) == StorageError.exit_code
    assert "has not been joined with here" in capsys.readouterr().err
    place = vault_folder(federation.roster, SILO)
    place.parent.mkdir(parents=True)
    federation.stop(SILO)
    federation.vault(SILO).rename(place)
    assert silo("approve", kit, file) == 0
    assert [plan.hash for plan in ApprovedPlans(place)] == [small_plan().hash]
