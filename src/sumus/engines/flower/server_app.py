"""The server's process of a Flower run: runs a `ServerJob` over this engine, and writes down how
far it is. Its folder comes from the server's own kit, never from the run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from sumus.engines.flower.driver import FlowerDriver
from sumus.engines.flower.kits import registered
from sumus.engines.kit import STATE_FOLDER
from sumus.engines.server_job import ServerJob
from sumus.files import replace_atomically
from sumus.parties import Patience

__all__ = ["PROGRESS", "app"]

PROGRESS = "progress.json"
"""In the server's state: the latest run, and how far it is."""

app = ServerApp()


@app.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    """Train the plan that the operator's app names; a run that was interrupted goes on."""
    config, folder = context.run_config, Path(os.environ["FLWR_HOME"]).parent / STATE_FOLDER

    def tell(*, ended: bool = False) -> None:
        state = job.state(about=True) | {"job": str(context.run_id), "ended": ended}
        replace_atomically(folder / PROGRESS, json.dumps(state).encode())

    job = ServerJob(
        str(config["plan"]),
        rounds=int(config["rounds"]),
        patience=Patience(
            set_up=float(config["set_up_seconds"]),
            update=float(config["update_seconds"]),
            stage=float(config["stage_seconds"]),
            retry=0.5,
        ),
        start=str(config["start"]),
        changed=tell,
    )
    try:
        job.run(folder, lambda names: FlowerDriver(grid, names, registered(folder)))
    finally:
        tell(ended=True)
