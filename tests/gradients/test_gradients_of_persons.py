"""A person's rows are added up, then clipped and truncated once, on every path and rounding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

from oracles.naive_gradients import integer_norm2, record_gradients
from oracles.naive_persons import person_sum
from sumus.errors import DataError
from sumus.gradients import PerRecordGradients, Units, unit_sums
from sumus.noise import Grid, Rounding
from sumus.randomness import RandomSource
from sumus.training import flat_parameters, load_flat
from sumus.training.models import build_model

RESOLUTION = 1 << 16


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Own(nn.Module):
    """A user's module, which is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.norm(x)))


MAKERS = {
    "softmax": (lambda: build_model("softmax", shape=(9,), outputs=4), (9,), 4, "linear"),
    "logistic": (lambda: build_model("logistic", shape=(9,), outputs=1), (9,), 2, "linear"),
    "mlp": (lambda: build_model("mlp", shape=(9,), outputs=4, hidden=(7,)), (9,), 4, "layers"),
    "strided": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, (3, 2), (2, 1)), nn.ReLU(), nn.Flatten(), nn.Linear(36, 4)
        ),
        (1, 9, 4),
        4,
        "layers",
    ),
    "tokens": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Flatten(), nn.Linear(18, 3)),
        (3, 4),
        3,
        "layers",
    ),
    "own": (Own, (6,), 3, "vmap"),
}


@cache
def gradients_of(name: str) -> tuple[nn.Module, PerRecordGradients]:
    torch.manual_seed(3)
    model = MAKERS[name][0]()
    load_flat(model, 0.3 * torch.randn(flat_parameters(model).numel()))
    return model, PerRecordGradients(model)


def case(name: str, counts: list[int], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, Units]:
    _, shape, classes, _ = MAKERS[name]
    generator = torch.Generator().manual_seed(seed)
    rows = sum(counts)
    x = torch.randn(rows, *shape, generator=generator)
    y = torch.randint(0, classes, (rows,), generator=generator)
    weights = np.repeat(1.0 / np.array(counts), counts)
    return x, y, Units(len(counts), np.repeat(np.arange(len(counts)), counts), weights)


def summed(name: str, x, y, units, **options):
    model, gradients = gradients_of(name)
    settings = {"clip_norm": 0.5, "resolution": RESOLUTION} | options
    return gradients.clipped_sum(flat_parameters(model), x, y, units=units, **settings)


COUNTS = [1, 3, 100, 2, 7, 1, 1, 40, 5]


@pytest.mark.parametrize("name", list(MAKERS))
@pytest.mark.parametrize("clip_norm", [0.05, 0.6, 50.0])
def test_every_path_is_the_rational_sum_of_persons(name: str, clip_norm: float) -> None:
    """A person of 100 rows spans chunks; the oracle has float64 gradients and exact arithmetic."""
    x, y, units = case(name, COUNTS)
    model, gradients = gradients_of(name)
    assert gradients.path == MAKERS[name][3]
    result = summed(name, x, y, units, clip_norm=clip_norm)
    rows = record_gradients(model, x, y)
    exact, _ = person_sum(
        rows, units.of_row, units.weights, clip_norm=clip_norm, resolution=RESOLUTION
    )
    assert (result.records, result.nonfinite) == (len(COUNTS), 0)
    # float32 gradients are off by 1e-6 of a clipped person, the scale is a 2^-20th short
    assert np.abs(result.integers.numpy() - np.array(exact)).max() <= len(COUNTS) * 1.5


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_person_gives_the_same_integers_in_any_company(name: str) -> None:
    """Bit for bit: alone, behind others, and split by other chunk borders."""
    x, y, units = case(name, COUNTS, seed=5)
    together = summed(name, x, y, units).integers
    edges = np.concatenate([[0], np.cumsum(COUNTS)])
    apart = torch.zeros_like(together)
    for person, (begin, end) in enumerate(itertools.pairwise(edges)):
        rows, one = units.take(np.array([person]))
        assert rows.tolist() == list(range(begin, end))
        apart += summed(name, x[rows], y[rows], one).integers
    assert torch.equal(together, apart)


@pytest.mark.parametrize("together", [1, 2, 3, 64])
def test_how_many_units_are_clipped_together_changes_nothing(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, units = case("mlp", COUNTS, seed=6)
    before = summed("mlp", x, y, units)
    monkeypatch.setattr(unit_sums, "_MOST_TOGETHER", together)
    after = summed("mlp", x, y, units)
    assert torch.equal(before.integers, after.integers)
    assert (before.clipped, before.nonfinite) == (after.clipped, after.nonfinite)


def test_threads_have_whole_persons(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, units = case("mlp", COUNTS, seed=6)
    before = summed("mlp", x, y, units).integers
    monkeypatch.setattr("sumus.gradients.per_record._WORTH_A_THREAD", 1)
    torch.set_num_threads(3)
    assert torch.equal(before, summed("mlp", x, y, units).integers)
    for parts in (1, 2, 3, 20):
        cuts = units.portions(parts)
        assert cuts[0] == 0
        assert cuts[-1] == units.rows
        assert set(cuts) <= {0, *np.cumsum(COUNTS).tolist()}


def test_persons_of_one_row_are_records() -> None:
    """The same records, one row a person: at most a truncation apart, path by path."""
    for name in MAKERS:
        x, y, units = case(name, [1] * 30)
        persons, records = summed(name, x, y, units), summed(name, x, y, None)
        assert (persons.integers - records.integers).abs().max() <= 30
        assert (persons.clipped, persons.records) == (records.clipped, records.records)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), repeats=st.integers(2, 10))
def test_repeating_everybodys_rows_moves_no_person_by_more_than_a_truncation(
    seed: int, repeats: int
) -> None:
    """Ten times the rows, in another order: neither the sum nor its clipping grows."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 6, 8)
    x, y, units = case("mlp", counts.tolist(), seed=seed % 1000)
    of_row = np.tile(units.of_row, repeats)
    order = rng.permutation(len(of_row))
    order = order[np.argsort(of_row[order], kind="stable")]
    weights = np.repeat(1.0 / (counts * repeats), counts * repeats)
    more = Units(8, of_row[order], weights)
    rows = torch.from_numpy(order % units.rows)
    once, again = summed("mlp", x, y, units), summed("mlp", x[rows], y[rows], more)
    assert (once.integers - again.integers).abs().max() <= 8
    assert again.records == 8


@pytest.mark.parametrize("rounding", ["stochastic", "sum"])
@pytest.mark.parametrize("name", ["softmax", "mlp", "tokens", "own"])
def test_other_roundings_clip_persons_too(name: str, rounding: str) -> None:
    x, y, units = case(name, COUNTS)
    truncated = summed(name, x, y, units).integers
    source = RandomSource.simulation(0, "rounding")
    other = summed(name, x, y, units, rounding=rounding, source=source).integers
    assert (truncated - other).abs().max() <= len(COUNTS) + 1
    worst = 1000.0 * x[:100]
    one = Units(1, np.zeros(100, np.int64), np.full(100, 0.01))
    alone = summed(name, worst, y[:100], one, rounding=rounding, source=source).integers.numpy()
    bound = Grid(0.5, RESOLUTION).sensitivity_grid(
        Rounding.STOCHASTIC if rounding == "stochastic" else Rounding.SUMMED, len(alone)
    )
    assert integer_norm2(alone) <= bound**2


EDGES = st.one_of(
    st.sampled_from([0.0, 1e38, -3.4028235e38, 1e-45, 1e-30, 1.0, -1.0, math.nan, math.inf]),
    st.floats(width=32),
)


@cache
def gradient_is_the_row(size: int) -> PerRecordGradients:
    """A model whose gradient is the row itself: an attacker chooses any gradients he likes."""
    return PerRecordGradients(nn.Linear(size, 1, bias=False), loss=lambda logits, y: logits.sum())


@settings(max_examples=200, deadline=None)
@given(
    rows=hnp.arrays(np.float32, st.tuples(st.integers(1, 70), st.integers(1, 5)), elements=EDGES),
    clip_norm=st.sampled_from([1e-30, 1e-3, 0.7, 1.0, 1e30]),
    resolution_bits=st.integers(0, 24),
    weighting=st.sampled_from(["mean", "sum"]),
)
def test_no_person_moves_the_sum_further_than_the_resolution(
    rows: np.ndarray, clip_norm: float, resolution_bits: int, weighting: str
) -> None:
    """However many rows an attacker has and whatever they are."""
    count, size = rows.shape
    weight = 1.0 / count if weighting == "mean" else 1.0 / 100
    units = Units(1, np.zeros(count, np.int64), np.full(count, weight))
    result = gradient_is_the_row(size).clipped_sum(
        torch.zeros(size),
        torch.from_numpy(rows),
        torch.zeros(count),
        clip_norm=clip_norm,
        resolution=1 << resolution_bits,
        units=units,
    )
    integers = result.integers.numpy()
    assert integer_norm2(integers) <= 4**resolution_bits
    exact, nonfinite = person_sum(
        rows, units.of_row, units.weights, clip_norm=clip_norm, resolution=1 << resolution_bits
    )
    assert result.nonfinite == nonfinite
    if nonfinite:
        assert not integers.any()
    else:
        slack = 1.0 + 2.0**-18 * (1 << resolution_bits)
        assert all(abs(int(a) - b) <= slack for a, b in zip(integers, exact, strict=True))


def test_one_row_that_is_not_finite_silences_its_person_only() -> None:
    x, y, units = case("mlp", [3, 4, 2])
    broken = x.clone()
    broken[4, 0] = math.nan
    with_nan = summed("mlp", broken, y, units)
    rows, others = units.take(np.array([0, 2]))
    assert with_nan.nonfinite == 1
    assert torch.equal(with_nan.integers, summed("mlp", x[rows], y[rows], others).integers)


def test_units_that_do_not_fit_the_batch_are_refused() -> None:
    x, y, units = case("mlp", [3, 4, 2])
    with pytest.raises(DataError, match="units must group 5 rows, got 9"):
        summed("mlp", x[:5], y[:5], units)
