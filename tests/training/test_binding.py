"""A run goes on with the function that it began with: not with one of the same name, layers and
weights that computes something else.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sumus.cli import main
from sumus.data import load, write_patients
from sumus.errors import GuaranteeError
from sumus.features import feature_map
from sumus.plan import TrainingPlan
from sumus.purity.recording import record
from sumus.runs import RunOptions, TrainedRun, train

PLAN = """
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
rounds = 2
local_steps = 2
[training]
algorithm = "split-noise"
sampling_rate = 0.3
"""
WHOLE_SILOS = {"training.algorithm": "silo", "privacy.unit": "silo", "privacy.epsilon": 50.0}
TABLE = '[data]\npath = "patients.csv"\nsilo_column = "hospital"\nlabel_column = "readmitted"\n'
MODEL = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear({width}, 2)
    def forward(self, x):
        return self.head(x)
"""
MAP = """
import torch
class Pooled(torch.nn.Module):
    def forward(self, x):
        return x.mean((2, 3))
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))
    monkeypatch.syspath_prepend(tmp_path)


class Scaled(torch.nn.Module):
    """Two of these with different scales have the same name, layers and weights."""

    def __init__(self, scale: float = 1.0, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.head = torch.nn.Linear(6, 3)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.scale * x)


def shifted(self: Scaled, x: torch.Tensor) -> torch.Tensor:
    """Other logits, the same gradients up to rounding."""
    return self.head(self.scale * x) + 7.0


def arrays(silos: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(7)
    return [
        (rng.normal(size=(40, 6)).astype(np.float32), rng.integers(0, 3, 40)) for _ in range(silos)
    ]


def begin(plan: TrainingPlan, **keywords: Any) -> Path:
    """Train for one round and stop."""

    def stop(design: object, entry: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(plan, progress=stop, options=RunOptions(max_epsilon=math.inf, threads=1), **keywords)
    (path,) = Path("runs").iterdir()
    return path


def go_on(path: Path, model: torch.nn.Module) -> TrainedRun:
    return train(
        model=model,
        silos=arrays(),
        options=RunOptions(max_epsilon=math.inf, threads=1, resume=path),
    )


@pytest.mark.parametrize("overrides", [{}, WHOLE_SILOS], ids=["split-noise", "silo"])
def test_a_run_is_not_resumed_with_a_model_that_only_looks_the_same(
    overrides: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sumus.runs.secret.fresh_secret", lambda: b"\7" * 32)
    plan = TrainingPlan.from_toml(PLAN).with_overrides(overrides)
    whole = train(
        plan,
        model=Scaled(),
        silos=arrays(),
        options=RunOptions(max_epsilon=math.inf, threads=1, root=Path("whole")),
    )
    path = begin(plan, model=Scaled(), silos=arrays())
    assert str(Scaled(100.0)) == str(Scaled())
    with pytest.raises(GuaranteeError, match="another model"):
        go_on(path, Scaled(100.0))
    with pytest.raises(GuaranteeError, match="another model"):
        # no made-up record has another gradient, but the code is another
        go_on(path, Scaled(float(np.nextafter(1.0, 2.0))))
    with monkeypatch.context() as patch:
        patch.setattr(Scaled, "forward", shifted)
        with pytest.raises(GuaranteeError, match="another model"):
            go_on(path, Scaled())
    resumed = go_on(path, Scaled(seed=5))  # weights that are trained are the run's own
    for before, after in zip(whole.module.parameters(), resumed.module.parameters(), strict=True):
        assert torch.equal(before, after)


def test_a_recording_is_told_apart_by_its_operators_and_by_its_constants() -> None:
    table, other = torch.arange(4.0), torch.arange(1.0, 5.0)

    def digest(function: Callable[[torch.Tensor], torch.Tensor]) -> bytes:
        return record(function, torch.zeros(4)).digest()

    same = torch.arange(4.0)
    assert digest(lambda x: x * table) == digest(lambda x: x * same)
    others = [
        digest(lambda x: x * table),
        digest(lambda x: x * other),
        digest(lambda x: x + table),
        digest(lambda x: x * 3.0),
    ]
    assert len({*others, digest(lambda x: x * 3.0000000000000004)}) == 5


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a new process would not know."""
    monkeypatch.delitem(sys.modules, "mymodule", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    feature_map.cache_clear()


def test_a_run_is_not_resumed_after_the_file_of_its_model_was_edited(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_patients(Path("patients.csv"), records=300)
    width = load(TrainingPlan.from_toml(PLAN + TABLE)).shape[0]
    text = MODEL.format(width=width)
    Path("mymodule.py").write_text(text)
    forget(monkeypatch)
    path = begin(TrainingPlan.from_toml(PLAN + 'model = "mymodule:Net"\n' + TABLE))
    for edited, code in (
        (text.replace("self.head(x)", "self.head(3 * x)"), 3),
        (text + "# a comment is no code\n", 0),
    ):
        Path("mymodule.py").write_text(edited)
        forget(monkeypatch)
        capsys.readouterr()
        assert main(["train", "--resume", str(path), "--no-report", "--threads", "1"]) == code
        assert ("another model" in capsys.readouterr().err) == (code == 3)


def test_a_run_is_not_resumed_after_the_file_of_its_feature_map_was_edited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    images = [
        (rng.random((40, 3, 8, 8)).astype(np.float32), rng.integers(0, 2, 40)) for _ in range(3)
    ]
    Path("mymodule.py").write_text(MAP)
    forget(monkeypatch)
    plan = TrainingPlan.from_toml(
        PLAN + 'model = "softmax"\nfeatures = "mymodule:Pooled?pixels=8"\ndimension = 8\n'
    )
    path = begin(plan, silos=images)
    Path("mymodule.py").write_text(MAP.replace("mean", "amax"))
    forget(monkeypatch)
    with pytest.raises(GuaranteeError, match="another feature map"):
        train(silos=images, options=RunOptions(max_epsilon=math.inf, threads=1, resume=path))
    Path("mymodule.py").write_text(MAP)
    forget(monkeypatch)
    assert (
        len(
            train(
                silos=images, options=RunOptions(max_epsilon=math.inf, threads=1, resume=path)
            ).rounds
        )
        == 2
    )


def test_a_run_is_not_resumed_with_rows_of_other_persons() -> None:
    """The same rows, one of them another person's: the noise that was drawn must not meet them."""
    rng = np.random.default_rng(0)
    silos = [(rng.normal(size=(60, 4)).astype(np.float32), rng.integers(0, 2, 60)) for _ in "abc"]
    whose = [np.repeat(np.arange(20), 3) for _ in silos]
    text = PLAN.replace("[federation]", 'unit = "person"\n[federation]')
    plan = TrainingPlan.from_toml(text).with_overrides(
        {"data.test_fraction": 0.0, "evaluation.metrics": "none"}  # every row trains either way
    )
    path = begin(plan, silos=silos, groups=whose)
    others = [np.repeat(np.arange(20), [2, 4, *[3] * 18]), *whose[1:]]  # as many persons
    resume = RunOptions(max_epsilon=math.inf, threads=1, resume=path)
    with pytest.raises(GuaranteeError, match="other records"):
        train(silos=silos, groups=others, options=resume)
    assert len(train(silos=silos, groups=whose, options=resume).rounds) == 2
