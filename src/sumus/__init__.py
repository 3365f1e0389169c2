"""Sumus: cross-silo federated learning with record-level differential privacy and real secure aggregation.

    plan = sumus.TrainingPlan.load("plans/digits.toml")
    print(sumus.account(plan))                       # ε with its analysis, proved or not
    run = sumus.train(plan)                          # needs sumus[train]

Names are imported on first use, so that `import sumus` is fast and needs neither scipy nor torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sumus.accounting.averaging import average
    from sumus.accounting.query import calibrate, epsilon
    from sumus.data import load as load_data
    from sumus.errors import SumusError
    from sumus.guarantee import Account, account
    from sumus.plan import TrainingPlan
    from sumus.training.run import train

__version__ = "0.2.0"
__all__ = [
    "Account",
    "SumusError",
    "TrainingPlan",
    "__version__",
    "account",
    "average",
    "calibrate",
    "epsilon",
    "load_data",
    "train",
]

_HOMES = {
    "Account": ("sumus.guarantee", "Account"),
    "SumusError": ("sumus.errors", "SumusError"),
    "TrainingPlan": ("sumus.plan", "TrainingPlan"),
    "account": ("sumus.guarantee", "account"),
    "average": ("sumus.accounting.averaging", "average"),
    "calibrate": ("sumus.accounting.query", "calibrate"),
    "epsilon": ("sumus.accounting.query", "epsilon"),
    "load_data": ("sumus.data", "load"),
    "train": ("sumus.training.run", "train"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sumus' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    found = getattr(importlib.import_module(module), attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
