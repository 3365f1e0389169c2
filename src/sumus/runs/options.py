"""How a run is carried out."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from sumus.parties import DropOuts

__all__ = ["RunOptions"]


@final
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Speed, paths and books: nothing here changes what is promised.

    Args:
        root: where run folders go.
        name: first part of the folder's name.
        resume: a run folder to continue.
        start_from: run folder or file with the model to begin with; omitted: what
            `training.start_from` of the plan names is looked for in `root`.
        threads: silos that compute at the same time.
        vanishing: drop-outs to simulate; of a round that is repeated the same again, or its sum is
            one over other silos.
        compare: also train without privacy, together and each silo alone.
        ledger: enter every release into the ledger of the data set, in `state` or the default
            folder.
        policy: file with a silo's own policy, enforced before the first round.
        max_epsilon: the most that the data set may have spent after this run, where no policy says
            it; omitted: `budget.toml` beside the ledgers, or 10.
    """

    root: Path = Path("runs")
    name: str | None = None
    resume: Path | None = None
    start_from: Path | None = None
    threads: int = field(default_factory=lambda: max(1, os.cpu_count() or 1))
    vanishing: DropOuts = field(default_factory=dict)
    compare: bool = False
    ledger: bool = True
    state: Path | None = None
    policy: Path | None = None
    max_epsilon: float | None = None
