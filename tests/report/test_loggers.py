"""Loggers: what the record holds arrives in TensorBoard and MLflow, locally; a missing package is
named.
"""

from __future__ import annotations

import builtins
import importlib
import socket
from pathlib import Path
from typing import Any

import pytest

from sumus.books import RunFolder
from sumus.errors import PlanError
from sumus.report import open_loggers
from sumus.report.loggers import scalars_of
from support.synthetic_runs import made_account, made_plan, made_round


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a logger must not use the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    plan = made_plan().replace("report", loggers=("tensorboard", "mlflow"))
    return RunFolder.create(plan, made_account(plan), tmp_path)


def logged(run: RunFolder, name: str, rounds: tuple[int, ...] = (1, 2, 3)) -> None:
    for logger in open_loggers(run.plan.replace("report", loggers=(name,)), run.path):
        for number in rounds:
            logger.log_round(made_round(number, loss=float("nan") if number == 2 else 0.5))
        logger.close()


def test_tensorboard_reads_back_every_round(run: RunFolder) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logged(run, "tensorboard")
    events = accumulator.EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    accuracy = events.Scalars("accuracy")
    assert [each.step for each in accuracy] == [1, 2, 3]
    assert accuracy[2].value == pytest.approx(made_round(3).metrics["accuracy"], rel=1e-6)
    # a loss that is no number is left out, not drawn as zero
    assert [each.step for each in events.Scalars("loss")] == [1, 3]
    assert "seconds/local" in events.Tags()["scalars"]
    (text,) = events.Tensors("guarantee")
    shown = text.tensor_proto.string_val[0].decode()
    for needed in (
        "ε",
        "one record of one silo, add or remove",
        "honest-but-curious",
        "convex-pass",
        "proved",
    ):
        assert needed in shown


@pytest.mark.deep
def test_mlflow_reads_back_every_round_and_the_plan(run: RunFolder) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    logged(run, "mlflow")
    logged(run, "mlflow", rounds=(4,))  # resumed
    client = tracking.MlflowClient(tracking_uri=(run.path / "mlruns").resolve().as_uri())
    (stored,) = client.search_runs([client.get_experiment_by_name("sumus").experiment_id])
    assert stored.info.run_name == run.path.name
    assert stored.info.status == "FINISHED"
    assert stored.data.params["training.algorithm"] == "convex-pass"
    history = client.get_metric_history(stored.info.run_id, "accuracy")
    assert [each.step for each in history] == [1, 2, 3, 4]
    assert history[0].value == pytest.approx(made_round(1).metrics["accuracy"])
    assert "one record of one silo, add or remove" in stored.data.tags["guarantee"]


@pytest.mark.parametrize(
    ("name", "package"), [("tensorboard", "tensorboard"), ("mlflow", "mlflow-skinny")]
)
def test_a_missing_package_is_named(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    original = importlib.import_module

    def without(module: str, *rest: Any) -> Any:
        if module.split(".")[0] == name:
            raise ImportError(module)
        return original(module, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(PlanError, match=f"pip install {package}"):
        open_loggers(run.plan.replace("report", loggers=(name,)), run.path)


def test_no_logger_imports_nothing(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def watched(name: str, *rest: Any, **named: Any) -> Any:
        assert name.split(".")[0] not in ("tensorboard", "mlflow")
        return original(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", watched)
    assert open_loggers(run.plan.replace("report", loggers=()), run.path) == []


def test_only_finite_numbers_are_logged() -> None:
    numbers = scalars_of(
        made_round(
            1, loss=float("inf"), accuracy=None, epsilon_spent=float("inf"), silo_scores=None
        )
    )
    assert not {"loss", "accuracy", "epsilon_spent", "silo_score/lowest"} & numbers.keys()
    assert numbers["survivors"] == 5.0
