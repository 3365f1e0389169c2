"""Models and records of one's own through `sumus.train`: what users bring is trained, or refused in
one line.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sumus.data import from_arrays
from sumus.errors import SumusError
from sumus.plan import TrainingPlan
from sumus.runs import RunOptions, TrainedRun, train
from support import module_zoo
from support.module_zoo import own

PLAN = """
[privacy]
epsilon = 5.0
delta = 1e-3
[federation]
rounds = 1
[training]
algorithm = "split-noise"
sampling_rate = 0.5
"""
NUMBERS, TOKENS = (8,), (6,)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def silos(
    shape: tuple[int, ...] = NUMBERS, *, tokens: bool = False, classes: int = 3
) -> list[tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(0)
    records = [
        generator.integers(0, 20, (60, *shape)) if tokens else generator.normal(size=(60, *shape))
        for _ in range(3)
    ]
    return [(x, np.arange(60) % classes) for x in records]


def run(
    model: nn.Module,
    tmp_path: Path,
    records: list[tuple[np.ndarray, np.ndarray]] | None = None,
    *,
    compare: bool = False,
    **changes: object,
) -> TrainedRun:
    plan = TrainingPlan.from_toml(PLAN).with_overrides(changes)
    options = RunOptions(root=tmp_path / "runs", threads=1, ledger=False, compare=compare)
    return train(plan, model=model, silos=from_arrays(records or silos()), options=options)


@pytest.mark.parametrize(
    "name",
    [
        "a bag of words",
        "an LSTM on tokens",
        "a transformer with masks on tokens",
        "double precision",
        "a chain with an inplace activation",
        "a compiled module",
        "a GRU cell",
        "a dictionary with a stated key",
        "a tuple with a stated place",
        "batch norm with frozen statistics",
        "a frozen trunk",
    ],
)
def test_what_users_bring_is_trained_and_measured(name: str, tmp_path: Path) -> None:
    entry = module_zoo.PURE[name]
    torch.manual_seed(0)
    stated = {"training.logits": entry.logits} if entry.logits else {}
    records = silos(entry.shape, tokens=entry.tokens)
    result = run(entry.make(), tmp_path, records, compare=True, **stated)
    assert result.account is not None
    assert result.account.proved
    assert 0.0 <= (result.accuracy or 0.0) <= 1.0
    saved = torch.load(result.path / "model.pt", weights_only=True)
    assert all(torch.equal(saved[key], value) for key, value in result.module.state_dict().items())


@pytest.mark.parametrize(
    "name", ["a chain with an inplace activation", "a compiled module", "double precision"]
)
def test_the_module_that_was_passed_stays_as_it_is(name: str, tmp_path: Path) -> None:
    model = module_zoo.PURE[name].make()
    before = copy.deepcopy(model.state_dict())
    result = run(model, tmp_path)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert result.module is not model
    trained = result.module.state_dict()
    assert any(
        not torch.equal(before[key], trained[key.removeprefix("_orig_mod.")]) for key in before
    )
    assert {value.dtype for value in trained.values()} == {value.dtype for value in before.values()}


def test_the_released_model_returns_what_its_user_wrote(tmp_path: Path) -> None:
    entry = module_zoo.PURE["a dictionary with a stated key"]
    result = run(entry.make(), tmp_path, **{"training.logits": "scores"})
    assert set(result.module(torch.zeros(1, 8))) == {"hidden", "scores"}


def test_a_declared_vocabulary_serves_a_model_without_embeddings(tmp_path: Path) -> None:
    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return self.head((x[..., None] == torch.arange(20)).float().mean(1))

    run(
        own(forward, head=nn.Linear(20, 3)),
        tmp_path,
        silos(TOKENS, tokens=True),
        **{"training.vocabulary": 20},
    )


def test_whole_numbers_are_numbers_for_a_model_without_embeddings(tmp_path: Path) -> None:
    run(nn.Sequential(nn.Linear(6, 3)), tmp_path, silos(TOKENS, tokens=True))


def raising(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    raise KeyError("there is no such\nkey")


def frozen() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 3)).requires_grad_(False)


@pytest.mark.parametrize(
    ("make", "records", "words", "code"),
    [
        (
            lambda: own(lambda self, x: (x, self.head(x)), head=nn.Linear(8, 3)),
            None,
            r'training.logits = "0"',
            2,
        ),
        (
            lambda: own(lambda self, x: {"scores": self.head(x)}, head=nn.Linear(8, 3)),
            None,
            r'training.logits = "scores"',
            2,
        ),
        (lambda: own(lambda self, x: "logits", head=nn.Linear(8, 3)), None, "got str", 2),
        (lambda: own(raising, head=nn.Linear(8, 3)), None, "there is no such", 2),
        (
            lambda: own(lambda self, x: self.head(x)[0], head=nn.Linear(8, 3)),
            None,
            r"\(records, classes\)",
            2,
        ),
        (lambda: own(lambda self, x: x[:, :3], head=nn.Linear(8, 3)), None, "gradient", 2),
        (lambda: nn.Sequential(nn.Linear(7, 3)), None, "do not fit the model", 2),
        (lambda: nn.Sequential(nn.Linear(8, 5)), silos(classes=2), "each of 2 classes, got 5", 2),
        (frozen, None, "no parameter that takes a gradient", 3),
        (lambda: torch.compile(frozen()), None, "no parameter that takes a gradient", 3),
        (
            lambda: nn.Sequential(
                nn.Embedding(20, 4, max_norm=1.0), nn.Flatten(), nn.Linear(24, 3)
            ),
            silos(TOKENS, tokens=True),
            "max_norm",
            3,
        ),
        (lambda: nn.Sequential(nn.Linear(8, 3), nn.Dropout(0.5)), None, r"eval\(\)", 3),
        (lambda: nn.Sequential(nn.Linear(8, 3)).half(), None, "float32", 2),
        (lambda: nn.Sequential(nn.LazyLinear(3)), None, "has no size yet", 2),
        (
            lambda: own(
                lambda self, x: self.head(nn.functional.one_hot(x, 20).float().mean(1)),
                head=nn.Linear(20, 3),
            ),
            silos(TOKENS, tokens=True),
            "depends on a record's values",
            3,
        ),
        (
            lambda: own(lambda self, x: x.tolist(), head=nn.Linear(8, 3)),
            None,
            "training.logits|got list",
            2,
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(
    make: Callable[[], nn.Module],
    records: list[tuple[np.ndarray, np.ndarray]] | None,
    words: str,
    code: int,
    tmp_path: Path,
) -> None:
    with pytest.raises(SumusError, match=words) as refusal:
        run(
            make(),
            tmp_path,
            records,
            **({"training.vocabulary": 20} if records and code == 3 else {}),
        )
    assert refusal.value.exit_code == code
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("key", ["nothing", "7"])
def test_a_key_that_names_no_output_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(SumusError, match=r"training\.logits") as refusal:
        run(
            module_zoo.PURE["a tuple with a stated place"].make(),
            tmp_path,
            **{"training.logits": key},
        )
    assert "\n" not in str(refusal.value)


def test_a_table_of_columns_as_a_silo_is_refused_in_one_line() -> None:
    class Frame:
        """Indexed by column names, as a pandas frame."""

        def __len__(self) -> int:
            return 3

        def __getitem__(self, name: str) -> list[int]:
            return {"age": [1, 2, 3]}[name]

    with pytest.raises(SumusError, match="must be a table, a pair") as refusal:
        from_arrays([Frame()])
    assert "\n" not in str(refusal.value)
