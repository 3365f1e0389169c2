"""A plan names the set, and a model is trained on it under a proved promise."""

import tempfile
from pathlib import Path

from sumus import RunOptions, TrainingPlan, train

PLAN = """
[privacy]
epsilon = 3.0
delta = 1e-4
[federation]
rounds = 2
local_steps = 10
[training]
learning_rate = 1.0
[data]
name = "breast-cancer"
"""

with tempfile.TemporaryDirectory() as folder:
    options = RunOptions(root=Path(folder), state=Path(folder))
    run = train(TrainingPlan.from_toml(PLAN), options=options)
assert run.account is not None
assert run.account.proved
assert [len(record.survivors) for record in run.rounds] == [3, 3]
