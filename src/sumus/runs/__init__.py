"""`sumus.train`: parties, books and report tied together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.runs.baselines import without_noise as without_noise
    from sumus.runs.run import RunOptions as RunOptions, TrainedRun as TrainedRun, train as train
    from sumus.runs.server_run import finish as finish, is_over as is_over, open_run as open_run

__getattr__, __dir__, __all__ = door(
    __name__,
    baselines="without_noise",
    run="RunOptions TrainedRun train",
    server_run="finish is_over open_run",
)
