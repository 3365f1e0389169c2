"""A ledger as bars, and composed where its runs' folders are at hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from sumus.books import Ledger, LedgerEntry, RunFolder, Step, steps_of
from sumus.cli import main
from sumus.cli.ledger_composed import composed
from sumus.cli.ledger_plots import LETTERS, bars
from sumus.errors import StorageError
from sumus.guarantee import certify
from sumus.guarantee.calibrate import calibrated
from sumus.plan import PublicFacts, TrainingPlan
from sumus.tasks import LabelFacts

FACTS = PublicFacts(
    name="clinic",
    silo_names=("a", "b", "c"),
    records_per_silo=(100, 100, 100),
    shape=(4,),
    labels=LabelFacts(("no", "yes")),
)
PLAN = TrainingPlan().with_overrides(
    {"federation.rounds": 1, "federation.local_steps": 5, "training.algorithm": "convex-pass"}
    | {"evaluation.metrics": "secure", "privacy.delta": 1e-5}
)


def _filled(tmp_path: Path, runs: int = 3) -> Ledger:
    """A ledger of finished runs with metrics, and their folders."""
    design = calibrated(PLAN, FACTS)
    account = certify(design)
    assert account.metrics_epsilon is not None
    ledger = Ledger.of_dataset("clinic", state=tmp_path / "state")
    for number in range(runs):
        with RunFolder.create(
            design.plan, account, tmp_path / "runs", name=f"r{number}", silos=FACTS.silo_names
        ) as run:
            pass
        for purpose, epsilon in (("model", account.epsilon), ("metrics", account.metrics_epsilon)):
            entry = LedgerEntry.of(
                account,
                run=run.name,
                round=1,
                round_id=f"{number}",
                epsilon=epsilon,
                purpose=purpose,
            )
            ledger.enter(entry)
    return ledger


def test_runs_with_metrics_compose_to_less_than_their_sum(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = _filled(tmp_path)
    total, found = ledger.total("record"), composed(ledger, "record", tmp_path / "runs")
    assert found.measured
    assert len(found.runs) == 3
    assert not found.added
    assert found.epsilon < 0.8 * total.epsilon
    assert found.delta == total.delta
    arguments = ["--state", str(tmp_path / "state"), "--compose", str(tmp_path / "runs")]
    assert main(["ledger", *arguments, "--plot", str(tmp_path / "plots")]) == 0
    told = capsys.readouterr().out
    assert "measured with in every run" in told
    assert "█" in told
    assert {path.suffix for path in (tmp_path / "plots").iterdir()} == {".png", ".svg"}


def test_what_cannot_be_composed_is_added_by_name(tmp_path: Path) -> None:
    ledger = _filled(tmp_path)
    gone = next((tmp_path / "runs").iterdir())
    gone.rename(tmp_path / "elsewhere")
    found = composed(ledger, "record", tmp_path / "runs")
    assert {name for name, _ in found.added} == {gone.name}
    one = ledger.total("record").epsilon / 3.0
    assert one < found.epsilon < ledger.total("record").epsilon
    alone = composed(ledger, "record", tmp_path / "nowhere")
    assert alone.epsilon == ledger.total("record").epsilon


def test_a_folder_of_another_plan_is_refused(tmp_path: Path) -> None:
    ledger = _filled(tmp_path, runs=1)
    last = ledger.entries()[0]
    ledger.enter(replace(last, plan_hash="0" * 64, round_id="x"))
    with pytest.raises(StorageError, match="the ledger says 00000000"):
        composed(ledger, "record", tmp_path / "runs")


def test_bars_stack_up_to_the_limit_and_show_the_smallest_run() -> None:
    steps = [
        Step(run="a", before=0.0, spent=5.0, when=""),
        Step(run="b", before=5.0, spent=0.01, when=""),
        Step(run="c", before=5.01, spent=math.inf, when=""),
    ]
    lines = bars(steps, 10.0, width=10, drawn=LETTERS)
    assert lines[0].startswith("#####.....")
    assert lines[1].startswith("=====#....")
    assert lines[2].endswith("no bound")
    assert all(len(line.split(" ")[0]) == 10 for line in lines)


def test_steps_end_at_the_total(tmp_path: Path) -> None:
    ledger = _filled(tmp_path, runs=2)
    steps = steps_of(ledger, "record")
    assert len(steps) == 2
    assert steps[-1].after == pytest.approx(ledger.total("record").epsilon)
