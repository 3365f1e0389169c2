"""From job to job until a plan is trained, with an operator whose jobs end as a test wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

from sumus.engines import train_across
from sumus.engines.nvflare.jobs import NvflareOperator
from sumus.errors import EngineError
from sumus.parties import agree_on
from support.local_federation import plan

KILLED = {
    "phase": "failed",
    "error": "the job left no result",
    "rounds": [],
    "status": "FINISHED:EXECUTION_EXCEPTION",
}


class Jobs:
    """Every job shows the rounds that are finished when it dies."""

    def __init__(self, last_rounds: list[int], result: Path) -> None:
        self._last, self._result, self.count = iter(last_rounds), result, 0

    def run_job(
        self, job: Path, watch: Callable[[Mapping[str, Any]], None], *, silos: list[str]
    ) -> dict[str, Any]:
        assert (job / "meta.json").is_file()
        assert len(silos) == 4
        self.count += 1
        last = next(self._last, None)
        if last is not None:
            watch({"rounds": [{"round": number} for number in range(1, last + 1)]})
            return KILLED
        run = self._result / "run" / "digits"
        run.mkdir(parents=True)
        (run / "journal.jsonl").write_text("{}\n")
        return {"phase": "finished", "rounds": [], "result": self._result, "download": self._result}


def train(
    last_rounds: list[int], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, int]:
    jobs = Jobs(last_rounds, folder / "download")
    kit = folder / "admin"
    (kit / "startup").mkdir(parents=True)
    (kit / "startup" / "fed_admin.json").touch()
    operator = NvflareOperator(kit)
    monkeypatch.setattr(operator, "run_job", jobs.run_job)
    path = train_across(operator, agree_on(plan()), out=folder / "runs", watch=lambda news: None)
    return path, jobs.count


def test_killed_jobs_that_finished_rounds_go_on_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, jobs = train([1, 2, 2, 2, 3, 3, 3], tmp_path, monkeypatch)
    assert jobs == 8
    assert (path / "journal.jsonl").is_file()
    assert not (tmp_path / "download").exists()


def test_three_jobs_in_a_row_without_a_round_end_with_the_last_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        EngineError,
        match=r"3 jobs in a row finished no round\. The last one: the job left no result",
    ):
        train([1, 1, 1, 1], tmp_path, monkeypatch)
