"""A user's loss that carries something from record to record, compares records or draws random
numbers: refused before it sees a record, and harmless even if nobody noticed.

The control takes the defences away: then one record moves the sum by more than ten clip norms,
where one is accounted for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from sumus.errors import DataError, GuaranteeError
from sumus.gradients import PerRecordGradients, examination
from sumus.plan import TrainingPlan
from sumus.purity import certified, chunks as chunk_function
from sumus.runs import RunOptions, train
from sumus.training import flat_parameters
from support.module_zoo import Live

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
RESOLUTION = 1 << 16
PLAN = """
[privacy]
epsilon = 1.0
delta = 1e-4
[federation]
rounds = 1
local_steps = 1
[training]
algorithm = "split-noise"
sampling_rate = 0.5
"""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Alternating:
    """Flips its sign at every call: a record less turns all that follow."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, outputs: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        loss = functional.cross_entropy(outputs, label)
        return loss if self.calls % 2 else -loss


class OneByOne(Live):
    """The function itself, called with one record after the other."""

    looks_across = True


def clip_norms_moved(loss: Callable[[], Loss]) -> float:
    """How far the first record moves the clipped sum of 100 records, in clip norms."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(100, 4, generator=generator)
    y = torch.randint(0, 3, (100,), generator=generator)

    def total(first: int) -> np.ndarray:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3))
        step = PerRecordGradients(model, loss=loss()).clipped_sum(
            flat_parameters(model).double(),
            x[first:],
            y[first:],
            clip_norm=0.5,
            resolution=RESOLUTION,
        )
        return step.integers.numpy() / RESOLUTION

    return float(np.linalg.norm(total(0) - total(1)))


def without_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certified, "require_pure_loss", lambda *values, **words: None)
    monkeypatch.setattr(
        certified, "require_pure", lambda compute, **words: [compute(record) for record in range(3)]
    )
    monkeypatch.setattr(certified, "require_apart", lambda *values, **words: None)
    monkeypatch.setattr(examination, "_require_repeatable", lambda *values: None)


def without_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        chunk_function, "record", lambda function, *examples, what: OneByOne(function)
    )


def test_control_without_checks_and_recording_one_record_moves_the_sum_by_ten_clip_norms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_the_checks(monkeypatch)
    without_the_recording(monkeypatch)
    assert clip_norms_moved(Alternating) > 10.0


def test_a_sign_that_no_check_saw_moves_nothing_through_the_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_the_checks(monkeypatch)
    assert clip_norms_moved(Alternating) <= 1.0


def test_an_honest_loss_moves_the_sum_by_a_clip_norm_at_most() -> None:
    assert 0.0 < clip_norms_moved(lambda: functional.cross_entropy) <= 1.0


def _noisy(outputs: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs + 0.1 * torch.randn_like(outputs), label)


def _centred(outputs: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs - outputs.mean(dim=0), label)


def _compared(outputs: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Cox's likelihood: everybody against all who were at risk."""
    risk = outputs[:, 0]
    return torch.logsumexp(risk, dim=0) * len(risk) - (risk * (label > 0)).sum()


_SEEN: list[torch.Tensor] = []


def _remembering(outputs: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    _SEEN.append(outputs.detach().clone())
    return functional.cross_entropy(outputs, label)


IMPURE: dict[str, tuple[Callable[[], Loss], type[Exception], str]] = {
    "keeps a sign": (Alternating, GuaranteeError, r"loss changes calls"),
    "keeps a list": (lambda: _remembering, GuaranteeError, "loss changes .*_SEEN"),
    "draws": (lambda: _noisy, GuaranteeError, "loss draws from"),
    "subtracts the others' mean": (lambda: _centred, GuaranteeError, "loss mixes records"),
    "compares records": (lambda: _compared, GuaranteeError, "loss mixes records"),
    "weighs by the batch": (
        lambda: nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.1])),
        GuaranteeError,
        "loss mixes records",
    ),
    "one number a record": (
        lambda: lambda outputs, label: functional.cross_entropy(outputs, label, reduction="none"),
        DataError,
        "one number for one record",
    ),
    "a Python number": (lambda: lambda outputs, label: 0.0, DataError, "one number"),
    "hangs on nothing": (
        lambda: lambda outputs, label: torch.tensor(1.0),
        DataError,
        "no gradient at the model's outputs",
    ),
    "fails": (lambda: lambda outputs: outputs.sum(), DataError, "cannot take outputs"),
    "branches on values": (
        lambda: (
            lambda outputs, label: outputs.sum() * (1 if float(outputs.detach().max()) > 0 else 2)
        ),
        GuaranteeError,
        "depends on a record's values",
    ),
}


@pytest.mark.parametrize("case", IMPURE)
def test_an_impure_loss_is_refused_before_it_sees_a_record(case: str) -> None:
    loss, error, words = IMPURE[case]
    with pytest.raises(error, match=words):
        clip_norms_moved(loss)


def test_sumus_train_refuses_it_too_and_nothing_is_entered(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    silos = [(rng.random((30, 4), dtype=np.float32), np.arange(30) % 3) for _ in range(3)]
    options = RunOptions(root=tmp_path / "runs", state=tmp_path / "state", threads=1)
    with pytest.raises(GuaranteeError, match="loss changes calls"):
        train(TrainingPlan.from_toml(PLAN), silos=silos, loss=Alternating(), options=options)
    assert not list(tmp_path.glob("**/*.jsonl"))
