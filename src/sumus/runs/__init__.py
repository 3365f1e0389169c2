"""`sumus.train`: parties, books and report tied together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.runs.baselines import without_noise
    from sumus.runs.run import RunOptions, TrainedRun, train
    from sumus.runs.server_run import finish, is_over, open_run

__all__ = [
    "RunOptions",
    "TrainedRun",
    "finish",
    "is_over",
    "open_run",
    "train",
    "without_noise",
]

__getattr__, __dir__ = door(
    __name__,
    baselines="without_noise",
    run="RunOptions TrainedRun train",
    server_run="finish is_over open_run",
)
