"""Progress in tools people already use, behind one small interface: `[report] loggers =
["tensorboard", "mlflow"]`.

    for logger in open_loggers(plan, run.path):
        logger.log_round(record)
        logger.close()

Both write below the run folder and talk to nobody: `tensorboard --logdir RUN/tensorboard`,
`MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri RUN/mlruns`. Who sets
MLFLOW_TRACKING_URI has MLflow write there instead. What they show is what `journal.jsonl` holds; the
record stays the original.
"""

from __future__ import annotations

import importlib
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final

from sumus.books import RoundEntry, RunFolder
from sumus.errors import PlanError
from sumus.report.words import statement_of

if TYPE_CHECKING:
    from sumus.plan import TrainingPlan

__all__ = ["Logger", "MlflowLogger", "TensorboardLogger", "open_loggers"]


class Logger(Protocol):
    """Takes one record after another, then is closed."""

    def log_round(self, record: RoundEntry) -> None:
        """Write the numbers of one round."""

    def close(self) -> None:
        """Write whatever is still held back."""


def open_loggers(plan: TrainingPlan, run_path: Path) -> list[Logger]:
    """The loggers that the plan names; an error names the package to install where one is
    missing.
    """
    kinds: dict[str, Callable[[TrainingPlan, Path], Logger]] = {
        "tensorboard": TensorboardLogger,
        "mlflow": MlflowLogger,
    }
    return [kinds[name](plan, run_path) for name in dict.fromkeys(plan.report.loggers)]


def scalars_of(record: RoundEntry) -> dict[str, float]:
    """The finite numbers of a round by name; a stage's seconds as `seconds/stage`."""
    scalars: dict[str, float | None] = {
        **record.metrics,
        **{f"{name}_plus_minus": width for name, width in record.metrics_plus_minus.items()},
        "epsilon_spent": record.epsilon_spent,
        "clipped_fraction": record.clipped_fraction,
        "headroom_bits": record.headroom_bits,
        "update_norm": record.update_norm,
        "noise_norm_expected": record.noise_norm_expected,
        "survivors": float(len(record.survivors)),
        "dropped": float(len(record.dropped)),
        "nonfinite": record.nonfinite,
        "saturated": record.saturated,
        "bytes_up": float(record.bytes_up),
        "bytes_down": float(record.bytes_down),
    }
    scalars |= {f"seconds/{stage}": value for stage, value in record.seconds.items()}
    if known := record.known_silo_scores:
        scalars |= {"silo_score/lowest": min(known), "silo_score/highest": max(known)}
    return {
        name: float(value)
        for name, value in scalars.items()
        if value is not None and math.isfinite(value)
    }


def guarantee_text(run_path: Path) -> str:
    """What must stand beside every ε that a tool plots."""
    statement = statement_of(RunFolder.open(run_path))
    used = "epsilon_spent is the part of it that the rounds so far have used."
    return f"{statement.headline}: {statement.brief}." + (
        "" if statement.verdict in ("none", "void") else f" {used}"
    )


@final
class TensorboardLogger:
    """Event files in `RUN/tensorboard`, written without TensorFlow or torch."""

    def __init__(self, plan: TrainingPlan, run_path: Path) -> None:
        self._event = _imported("tensorboard.compat.proto.event_pb2", "tensorboard").Event
        self._summary = _imported("tensorboard.compat.proto.summary_pb2", "tensorboard").Summary
        self._writer = _imported(
            "tensorboard.summary.writer.event_file_writer", "tensorboard"
        ).EventFileWriter(str(run_path / "tensorboard"))
        self._add_text("guarantee", guarantee_text(run_path))
        self._add_text("plan", "```\n" + plan.to_toml() + "```")

    def log_round(self, record: RoundEntry) -> None:
        """One scalar per number, at the step of the round."""
        values = [
            self._summary.Value(tag=name, simple_value=value)
            for name, value in scalars_of(record).items()
        ]
        self._add(record.round, self._summary(value=values))
        self._writer.flush()

    def close(self) -> None:
        """Write the rest."""
        self._writer.close()

    def _add_text(self, name: str, content: str) -> None:
        """A text beside the plots."""
        summary = self._summary()
        value = summary.value.add(tag=name)
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.dtype = _imported(
            "tensorboard.compat.proto.types_pb2", "tensorboard"
        ).DT_STRING
        value.tensor.string_val.append(content.encode())
        value.tensor.tensor_shape.dim.add(size=1)
        self._add(0, summary)

    def _add(self, step: int, summary: Any) -> None:
        self._writer.add_event(self._event(step=step, summary=summary, wall_time=time.time()))


@final
class MlflowLogger:
    """A local store in `RUN/mlruns`: plan as parameters, rounds as metrics."""

    def __init__(self, plan: TrainingPlan, run_path: Path) -> None:
        # before the import: nothing leaves this machine unasked
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        # a folder inside the run; the data base would take many seconds to set up
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        client = _imported("mlflow.tracking", "mlflow-skinny").MlflowClient
        self._metric = _imported("mlflow.entities", "mlflow-skinny").Metric
        self._param = _imported("mlflow.entities", "mlflow-skinny").Param
        self._client = client(
            tracking_uri=os.environ.get("MLFLOW_TRACKING_URI")
            or (run_path / "mlruns").resolve().as_uri()
        )
        known = self._client.get_experiment_by_name("sumus")
        experiment = (
            known.experiment_id if known is not None else self._client.create_experiment("sumus")
        )
        known_runs = self._client.search_runs([experiment], f"tags.plan_hash = '{plan.hash}'")
        # a resumed run goes on
        self._run = next(
            (run.info.run_id for run in known_runs if run.info.run_name == run_path.name), None
        )
        if self._run is None:
            tags = {"guarantee": guarantee_text(run_path), "plan_hash": plan.hash}
            self._run = self._client.create_run(
                experiment, run_name=run_path.name, tags=tags
            ).info.run_id
            self._log_plan(plan)

    def log_round(self, record: RoundEntry) -> None:
        """One metric per number, at the step of the round."""
        now = int(1000 * time.time())
        metrics = [
            self._metric(name, value, now, record.round)
            for name, value in scalars_of(record).items()
        ]
        self._client.log_batch(self._run, metrics=metrics)

    def _log_plan(self, plan: TrainingPlan) -> None:
        keys = [
            (f"{section}.{key}", str(value)[:500])
            for section, table in plan.as_table().items()
            for key, value in table.items()
        ]
        for start in range(0, len(keys), 100):  # the store takes at most a hundred at once
            self._client.log_batch(
                self._run,
                params=[self._param(name, value) for name, value in keys[start : start + 100]],
            )

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._run)


def _imported(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        name = "mlflow" if package.startswith("mlflow") else package
        raise PlanError(
            "report.loggers",
            name,
            "needs a package that is not installed",
            f"pip install {package}",
        ) from None
