"""A folder of made-up runs, some of which begin with the model of another, and their ledger."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

from sumus.books import Ledger, LedgerEntry, RunFolder, StartedFrom
from support.synthetic_runs import SILOS, made_account, made_plan, made_round

BEGAN = datetime(2026, 1, 3, 9, tzinfo=UTC)


def made_history(
    root: Path, *, runs: int = 6, rounds: int = 3, name: str | None = None, **plan: object
) -> list[RunFolder]:
    """Run folders below `root/runs` and their ledger in `root/state`, two days apart.

    Run 2 begins with the model of run 1, run 3 with that of run 2, run 4 with that of run 1 again;
    the last is under way, the one before lost a round.
    """
    ledger, made = Ledger.of_dataset("digits", state=root / "state"), list[RunFolder]()
    parents = {1: 0, 2: 1, 3: 0}
    for number in range(runs):
        moment = (BEGAN + timedelta(days=2 * number)).isoformat(timespec="seconds")
        unsynced = mock.patch("os.fsync")
        with unsynced, mock.patch("sumus.books.journal._now", lambda now=moment: now):
            parent = made[parents[number]] if number in parents else None
            start = None
            if parent is not None:
                model = str((parent.summary or {})["model_hash"])
                start = StartedFrom(model=model, run=parent.name, round=rounds, guarantee="ε ≤ 1")
            run = _made(root / "runs", number, runs, rounds, start, name, plan)
            account = run.guarantee
            assert account is not None
            entry = LedgerEntry.of(
                account, run=run.name, round=1, round_id=run.name, epsilon=account.epsilon
            )
            ledger.enter(replace(entry, time=moment))
            made.append(run)
    return made


def _made(
    root: Path,
    number: int,
    runs: int,
    rounds: int,
    start: StartedFrom | None,
    name: str | None,
    overrides: dict[str, object],
) -> RunFolder:
    plan = made_plan(
        federation__rounds=rounds, training__learning_rate=0.1 + 0.01 * number, **overrides
    )
    account = made_account(plan, epsilon=0.25, proved=number != 4)
    with RunFolder.create(plan, account, root, name=name, silos=SILOS, start=start) as run:
        lost = number == runs - 2
        for each in range(1, rounds + 1 - lost):
            run.append(made_round(each, rounds=rounds, seed=number))
        if number < runs - 1:
            last = run.rounds()[-1]
            run.finish(
                {
                    "metrics": dict(last.metrics),
                    "plus_minus": {"accuracy": 0.012},
                    "metrics_are": "secure",
                    "lost_rounds": int(lost),
                    "model_hash": f"sha256:{number:064x}",
                }
            )
        return run
