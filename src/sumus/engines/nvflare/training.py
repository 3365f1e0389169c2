"""From a plan to a finished run: job after job until every round is done, each going on where the
last one ended.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sumus.engines.nvflare.jobs import Operator, Watch, job_folder
from sumus.errors import EngineError
from sumus.parties import Agreement

__all__ = ["DEFAULT_PATIENCE", "train_across"]

DEFAULT_PATIENCE: Mapping[str, float] = {
    "set_up_seconds": 120.0,
    "update_seconds": 600.0,
    "stage_seconds": 60.0,
}
_MOST_IDLE_JOBS = 3


def train_across(
    operator: Operator,
    agreement: Agreement,
    *,
    out: Path,
    watch: Watch,
    rounds_per_job: int = 50,
    patience: Mapping[str, float] = DEFAULT_PATIENCE,
) -> Path:
    """Train a plan to its end and return the run folder, copied to `out`.

    Guarantee: a job that fails costs no privacy (the silos answer every round once) and no finished
        round; after three jobs in a row without a new round the last reason is raised.
    """
    idle = best = reached = 0

    def watching(news: Mapping[str, Any]) -> None:
        nonlocal reached  # a job that is killed leaves no result, but it may have finished rounds
        reached = max([reached, *(int(record["round"]) for record in news["rounds"])])
        watch(news)

    while True:
        with job_folder(agreement, rounds=rounds_per_job, patience=patience) as job:
            outcome = operator.run_job(
                job, watching, silos=[silo.name for silo in agreement.design.silos]
            )
        place = _fetched(outcome, out)
        if outcome["phase"] == "finished" and place is not None:
            return place
        idle, best = (0 if reached > best else idle + 1), reached
        if idle >= _MOST_IDLE_JOBS:
            raise EngineError(
                f"{idle} jobs in a row finished no round. The last one: "
                f"{outcome.get('error') or outcome.get('status')}"
            )


def _fetched(outcome: Mapping[str, Any], out: Path) -> Path | None:
    """Move the run folder out of a downloaded result."""
    if "download" not in outcome:
        return None
    found = next((Path(outcome["result"]) / "run").glob("*/journal.jsonl"), None)
    place = None
    if found is not None:
        out.mkdir(parents=True, exist_ok=True)
        place = out / found.parent.name
        shutil.copytree(found.parent, place, dirs_exist_ok=True)
    shutil.rmtree(outcome["download"], ignore_errors=True)
    return place
