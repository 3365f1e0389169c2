"""Sumus: cross-silo federated learning with record-level differential privacy and real secure
aggregation.

    plan = sumus.TrainingPlan.load("plans/digits.toml")
    print(sumus.account(plan))                       # ε with its analysis, proved or not
    run = sumus.train(plan)                          # needs sumus[train]

Names are imported on first use, so that `import sumus` is fast and needs neither scipy nor torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.accounting import average as average, calibrate as calibrate, epsilon as epsilon
    from sumus.data import load as load_data
    from sumus.describing import Description as Description
    from sumus.errors import SumusError as SumusError
    from sumus.estimators import (
        Classifier as Classifier,
        Regressor as Regressor,
        Survival as Survival,
    )
    from sumus.guarantee import Account as Account, NoiseDesign as NoiseDesign, account as account
    from sumus.plan import TrainingPlan as TrainingPlan
    from sumus.predicting import Model as Model, Predictions as Predictions
    from sumus.runs import (
        Callback as Callback,
        RunOptions as RunOptions,
        Simulation as Simulation,
        TrainedRun as TrainedRun,
        describe as describe,
        train as train,
    )
    from sumus.training import lora as lora

__version__ = "0.2.0"
__all__ = [
    "Account",
    "Callback",
    "Classifier",
    "Description",
    "Model",
    "NoiseDesign",
    "Predictions",
    "Regressor",
    "RunOptions",
    "Simulation",
    "SumusError",
    "Survival",
    "TrainedRun",
    "TrainingPlan",
    "__version__",
    "account",
    "average",
    "calibrate",
    "describe",
    "epsilon",
    "load_data",
    "lora",
    "train",
]

__getattr__ = door(
    __name__,
    accounting="average calibrate epsilon",
    data="load:load_data",
    describing="Description",
    errors="SumusError",
    estimators="Classifier Regressor Survival",
    guarantee="Account NoiseDesign account",
    plan="TrainingPlan",
    predicting="Model Predictions",
    runs="Callback RunOptions Simulation TrainedRun describe train",
    training="lora",
)[0]


def __dir__() -> list[str]:
    return __all__
