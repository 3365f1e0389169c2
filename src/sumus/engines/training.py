"""From a plan to a finished run: job after job until every round is done, each going on where the
last one ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sumus.engines.engine import Operator, Watch
from sumus.errors import EngineError
from sumus.parties import Agreement

__all__ = ["train_across"]

_MOST_IDLE_JOBS = 3


def train_across(
    operator: Operator,
    agreement: Agreement,
    *,
    out: Path,
    watch: Watch,
    rounds_per_job: int = 50,
    patience: Mapping[str, float] | None = None,
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
        outcome = operator.run(
            agreement,
            rounds=rounds_per_job,
            patience=operator.PATIENCE if patience is None else patience,
            out=out,
            watch=watching,
        )
        if outcome.finished and outcome.run is not None:
            return outcome.run
        idle, best = (0 if reached > best else idle + 1), reached
        if idle >= _MOST_IDLE_JOBS:
            raise EngineError(
                f"{idle} jobs in a row finished no round. The last one: {outcome.reason}"
            )
