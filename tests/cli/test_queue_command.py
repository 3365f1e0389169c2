"""`sumus federation queue`, as somebody types it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sumus.cli import main
from sumus.cli.queue_progress import listed
from sumus.engines import PlanQueue
from sumus.engines.nvflare import __name__ as engine_module
from sumus.errors import EngineError, PlanError, StorageError
from sumus.plan import TrainingPlan
from support.vault_federation import OperatorInProcess, VaultFederation, small_plan

pytestmark = pytest.mark.deep


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[VaultFederation]:
    made = VaultFederation(tmp_path)
    yield made
    made.close()


@pytest.fixture
def kit(federation: VaultFederation, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator's kit whose engine is this process."""
    folder = federation.root / "admin"
    (folder / "sumus").mkdir(parents=True)
    (folder / "kit.toml").write_text(
        'engine = "nvflare"\nparty = "admin"\nserver = "localhost:8002"\n'
    )
    (folder / "sumus" / "roster.toml").write_text(federation.roster.to_text())
    operator = OperatorInProcess(federation)
    monkeypatch.setattr(f"{engine_module}.operator", lambda kit, **options: operator)
    return folder


def queue(kit: Path, *words: object) -> int:
    return main(["federation", "queue", *map(str, words), "--kit", str(kit)])


def written(folder: Path, plan: TrainingPlan) -> Path:
    path = folder / f"{plan.hash[:8]}.toml"
    path.write_text(plan.to_toml())
    return path


def told(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def short_plan(seed: int, **changes: object) -> TrainingPlan:
    return small_plan(seed, federation__rounds=1, **changes)


def test_plans_are_added_listed_moved_removed_run_and_tried_again(
    federation: VaultFederation, kit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [written(tmp_path, short_plan(seed)) for seed in range(3)]
    assert queue(kit, "list") == 0
    assert "the queue is empty" in capsys.readouterr().out
    assert queue(kit, "add", *files) == 0
    said = capsys.readouterr().out
    for plan in (short_plan(seed) for seed in range(3)):
        assert plan.hash in said
    assert "ε ≤" in said
    assert "every silo approves the files" in said
    assert queue(kit, "move", 3, 1) == 0
    assert "3, 1, 2" in capsys.readouterr().out
    assert queue(kit, "remove", 1, "--json") == 0
    assert told(capsys)["removed"]["number"] == 1
    assert queue(kit, "list") == 0
    said = capsys.readouterr().out
    assert "nothing runs it" in said
    assert "waiting" in said
    federation.approve(short_plan(2))
    out = tmp_path / "runs"
    assert queue(kit, "run", "--out", out) == EngineError.exit_code
    ended = capsys.readouterr()
    assert "1 of 2 plans of the queue are not finished. The first is plan 2, set aside" in ended.err
    assert "plan 3  finished" in ended.out
    federation.approve(short_plan(1))
    assert queue(kit, "retry") == 0
    assert "waiting again: 2" in capsys.readouterr().out
    assert queue(kit, "run", "--out", out, "--json") == 0
    facts = told(capsys)
    assert [each["state"] for each in facts["plans"]] == ["finished", "finished"]
    assert "text" not in facts["plans"][0]
    assert queue(kit, "list", "--json") == 0
    facts = told(capsys)
    assert not facts["is_run"]
    assert [each["number"] for each in facts["plans"]] == [3, 2]


def test_a_chain_is_added_with_its_starts_and_is_what_the_silos_approve(
    federation: VaultFederation, kit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [written(tmp_path, short_plan(seed)) for seed in range(3)]
    assert queue(kit, "add", files[0]) == 0
    assert queue(kit, "add", *files[1:], "--start-from", 1, "--json") == 0
    added = told(capsys)["added"]
    starts = [TrainingPlan.load(each["file"]).training.start_from for each in added]
    assert starts == [f"plan:{short_plan(0).hash}", f"plan:{added[0]['plan_hash']}"]
    federation.approve(short_plan(0), *(TrainingPlan.load(each["file"]) for each in added))
    assert queue(kit, "run", "--out", tmp_path / "runs", "--stop") == 0
    assert list((kit / "queue").glob("plan-*.toml")) == []  # those of finished plans are gone
    assert "every plan of the queue is finished" in capsys.readouterr().out


def test_a_live_page_lists_the_queue_and_no_more_of_it_than_fits(
    federation: VaultFederation,
    kit: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sumus.watching import Board, LiveState

    states: list[LiveState] = []
    posted = Board.post

    def post(board: Board, state: LiveState) -> None:
        states.append(state)
        posted(board, state)

    monkeypatch.setattr(Board, "post", post)
    federation.approve(short_plan(0))
    files = [written(tmp_path, short_plan(seed)) for seed in range(2)]
    assert queue(kit, "add", *files) == 0
    assert queue(kit, "run", "--watch", "--out", tmp_path / "runs") == EngineError.exit_code
    assert "live    http://127.0.0.1:" in capsys.readouterr().out
    seen = [tuple((each.number, each.state) for each in state.queue) for state in states]
    order = [each for n, each in enumerate(seen) if not n or each != seen[n - 1]]
    assert order[-4:] == [
        ((1, "running"), (2, "waiting")),
        ((1, "finished"), (2, "waiting")),
        ((1, "finished"), (2, "running")),
        ((1, "finished"), (2, "set aside")),
    ]
    assert states[-1].stage == "idle"
    assert "has approved" in states[-1].queue[1].why
    many = PlanQueue(tmp_path / "many")
    (entry,) = many.add(short_plan(7), words=lambda plan: "x")
    assert len(listed([entry] * 1000)) == 200


def test_what_is_wrong_is_one_line_and_changes_nothing(
    federation: VaultFederation, kit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, four = (
        written(tmp_path, short_plan(0)),
        written(tmp_path, short_plan(0, federation__silos=4)),
    )
    started = written(tmp_path, short_plan(1, training__start_from=f"plan:{'0' * 64}"))
    assert queue(kit, "add", good) == 0
    before = (kit / "queue" / "queue.json").read_bytes()
    for words, code, part in (
        (("add", good), PlanError.exit_code, "is plan 1 of the queue already"),
        (("add", four), PlanError.exit_code, "silo-3"),
        (("add", started, "--start-from", 1), PlanError.exit_code, "names another start"),
        (("add", good, "--start-from", 9), PlanError.exit_code, "must be the number of a plan"),
        (("remove", 9), PlanError.exit_code, "must be the number of a plan"),
        (("move", 1, 5), PlanError.exit_code, "must be a place among the 1 that wait"),
        (("retry", 1), PlanError.exit_code, "must be a plan that was set aside"),
    ):
        capsys.readouterr()
        assert queue(kit, *words) == code, words
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1, lines
        assert part in lines[0]
        assert (kit / "queue" / "queue.json").read_bytes() == before
    with PlanQueue(kit / "queue").running():
        assert queue(kit, "run") == StorageError.exit_code
    assert "in use by another process" in capsys.readouterr().err
