"""A plan names the task, is accounted, trains, and is measured by the task's own measures."""

import tempfile
from pathlib import Path

from sumus import RunOptions, TrainingPlan, account, train

plan = TrainingPlan().with_overrides(
    {
        "data.name": "digits",
        "training.task": "ordinal",
        "training.model": "linear",
        "training.algorithm": "dp-sgd",
        "training.sampling_rate": 0.2,
        "federation.rounds": 20,
        "privacy.epsilon": 8.0,
    }
)
assert account(plan).proved

with tempfile.TemporaryDirectory() as folder:
    run = train(plan, options=RunOptions(root=Path(folder), seed=1, ledger=False))
    assert list(run.metrics) == ["accuracy", "within one"]
    assert run.metrics["accuracy"] > run.baselines["majority"]
    assert run.metrics["within one"] > run.metrics["accuracy"]
    nine_thresholds = run.model.state_dict()["0.bias"]
    assert nine_thresholds.shape == (9,)
