"""Server and silos as processes of their own train a plan to its end through the engine."""

import tempfile
from pathlib import Path

from sumus.books import RunFolder
from sumus.engines import LocalProcesses, train_across
from sumus.parties import agree_on
from sumus.plan import TrainingPlan

PLAN = """
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
silos = 2
rounds = 2
local_steps = 5
[training]
algorithm = "convex-pass"
learning_rate = 1.0
[data]
name = "digits"
"""

agreement = agree_on(TrainingPlan.from_toml(PLAN))
told: list[int] = []
with tempfile.TemporaryDirectory() as folder:
    root = Path(folder)
    with LocalProcesses(root / "kits", agreement, data="digits", engine="sqlite") as processes:
        operator = processes.start_all()
        run = train_across(
            operator,
            agreement,
            out=root / "runs",
            watch=lambda news: told.extend(record["round"] for record in news["rounds"]),
        )
        operator.close()
    assert RunFolder.open(run).summary is not None
assert told == [1, 2], told
