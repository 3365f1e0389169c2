"""Per-record gradients: right values against independent code, on every path and in every rounding
mode.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from oracles.naive_gradients import clipped_on_grid, record_gradients
from sumus.errors import DataError, PlanError
from sumus.gradients import PerRecordGradients
from sumus.noise import Grid, Rounding
from sumus.paper.theorem.regression import LeastSquares
from sumus.randomness import RandomSource
from sumus.training import flat_parameters, load_flat
from sumus.training.models import build_model

RESOLUTION = 1 << 16


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small problems on a busy machine: a second thread only waits. `test_gradients_isolation` runs
    both.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Attention(nn.Module):
    """A small transformer block over the 6 tokens of one record; records do not see each other."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.feed = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.norm(x)
        weights = torch.softmax(
            self.query(tokens) @ self.key(tokens).transpose(1, 2) / math.sqrt(8), dim=-1
        )
        return self.head((x + self.feed(weights @ self.value(tokens))).mean(1))


def tokens_then_pool() -> nn.Module:
    """Fully connected layers over 5 tokens, then one over their concatenation: a chain with
    positions.
    """
    return nn.Sequential(
        nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 7, bias=False), nn.Flatten(), nn.Linear(35, 4)
    )


def case(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model with random parameters and a batch that is no multiple of any chunk."""
    makers = {
        "cnn": (lambda: build_model("cnn", shape=(1, 28, 28), outputs=10), (1, 28, 28), 10, 70),
        "strided": (
            lambda: nn.Sequential(
                nn.Conv2d(3, 5, (3, 2), (2, 1), (0, 1)), nn.ReLU(), nn.Flatten(), nn.Linear(160, 4)
            ),
            (3, 9, 7),
            4,
            67,
        ),
        "mlp": (lambda: build_model("mlp", shape=(20,), outputs=5, hidden=(16, 9)), (20,), 5, 131),
        "softmax": (lambda: build_model("softmax", shape=(33,), outputs=7), (33,), 7, 300),
        "no bias": (
            lambda: build_model("softmax", shape=(33,), outputs=7, bias=False),
            (33,),
            7,
            20,
        ),
        "logistic": (lambda: build_model("logistic", shape=(11,), outputs=1), (11,), 2, 300),
        "attention": (Attention, (6, 8), 3, 66),
        "tokens": (tokens_then_pool, (5, 12), 4, 70),
    }
    maker, shape, classes, records = makers[name]
    torch.manual_seed(len(name))
    model = maker()
    load_flat(model, 0.3 * torch.randn(flat_parameters(model).numel()))
    return model, torch.randn(records, *shape), torch.randint(0, classes, (records,))


CASES = ["cnn", "strided", "mlp", "softmax", "no bias", "logistic", "attention", "tokens"]
PATHS = {"attention": "vmap", "softmax": "linear", "no bias": "linear", "logistic": "linear"}


@pytest.mark.deep
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("share_clipped", ["all", "half", "none"])
def test_record_rounding_equals_naive_autograd(name: str, share_clipped: str) -> None:
    model, x, y = case(name)
    rows = record_gradients(model, x, y)
    norms = np.linalg.norm(rows, axis=1)
    clip_norm = {"all": norms.min() / 2, "half": float(np.median(norms)), "none": norms.max() * 2}[
        share_clipped
    ]
    gradients = PerRecordGradients(model)
    assert gradients.path == PATHS.get(name, "layers")
    result = gradients.clipped_sum(
        flat_parameters(model), x, y, clip_norm=clip_norm, resolution=RESOLUTION
    )
    exact = np.trunc(clipped_on_grid(rows, clip_norm=clip_norm, resolution=RESOLUTION)).sum(0)
    assert (result.records, result.nonfinite) == (len(x), 0)
    assert abs(result.clipped - int((norms > clip_norm).sum())) <= 1
    # float32 gradients move a coordinate by about 1e-6 · r per record; only a few of those cross an
    # integer
    difference = np.abs(result.integers.numpy() - exact)
    assert difference.max() <= 0.1 * len(x) + 3
    assert difference.mean() <= 0.03 * len(x)


class PlainLinear(nn.Module):
    """One output without bias in a module that is no known layer, so that its gradients take the
    general path.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(11))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weights)[:, None]


@pytest.mark.parametrize(
    ("model", "path"), [(nn.Linear(11, 1, bias=False), "linear"), (PlainLinear(), "vmap")]
)
def test_least_squares_equals_the_closed_form(model: nn.Module, path: str) -> None:
    generator = np.random.default_rng(3)
    x, y, theta = (
        generator.normal(size=(300, 11)),
        generator.integers(0, 2, 300),
        generator.normal(size=11),
    )
    rows = (x @ theta - y)[:, None] * x
    clip_norm = float(np.median(np.linalg.norm(rows, axis=1)))
    gradients = PerRecordGradients(model.double(), loss=LeastSquares())
    assert gradients.path == path
    tensors = torch.from_numpy(theta), torch.from_numpy(x), torch.from_numpy(y)
    found = gradients.clipped_sum(*tensors, clip_norm=clip_norm, resolution=RESOLUTION)
    exact = np.trunc(clipped_on_grid(rows, clip_norm=clip_norm, resolution=RESOLUTION)).sum(0)
    assert found.clipped == pytest.approx(150, abs=1)
    # the clip norm is shortened by 2^-20: 1/16 step a record
    assert np.abs(found.integers.numpy() - exact).max() <= 0.1 * len(x)


def test_least_squares_needs_one_output() -> None:
    model, x, y = case("softmax")
    with pytest.raises(PlanError, match="one output"):
        PerRecordGradients(model, loss=LeastSquares()).clipped_sum(
            flat_parameters(model), x, y, clip_norm=1.0, resolution=RESOLUTION
        )


@pytest.mark.deep
@pytest.mark.parametrize("name", ["cnn", "mlp", "softmax", "attention"])
def test_equals_opacus(name: str) -> None:
    from opacus.grad_sample import GradSampleModule

    model, x, y = case(name)
    theta = flat_parameters(model)
    gradients = PerRecordGradients(model)
    result = gradients.clipped_sum(theta, x, y, clip_norm=0.5, resolution=RESOLUTION)
    sampled = GradSampleModule(model, loss_reduction="sum")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about hooks on modules whose inputs need no gradient
        functional.cross_entropy(sampled(x), y, reduction="sum").backward()
    rows = torch.cat(
        [parameter.grad_sample.flatten(1) for parameter in sampled.parameters()], dim=1
    ).double()
    factors = (0.5 / rows.norm(dim=1)).clamp(max=1.0)
    total_grid = (rows * factors[:, None]).sum(0) * (RESOLUTION / 0.5)
    # truncation takes less than one step per record and coordinate
    assert (result.integers - total_grid).abs().max() < len(x) + 1
    relative = (result.integers - total_grid).norm() / total_grid.norm()
    assert relative < math.sqrt(len(theta)) * len(x) / total_grid.norm() + 1e-5


@pytest.mark.deep
@pytest.mark.parametrize("name", CASES)
def test_a_sum_rounded_once_equals_naive_autograd(name: str) -> None:
    model, x, y = case(name)
    rows = record_gradients(model, x, y)
    clip_norm = float(np.median(np.linalg.norm(rows, axis=1)))
    result = PerRecordGradients(model).clipped_sum(
        flat_parameters(model), x, y, clip_norm=clip_norm, resolution=RESOLUTION, rounding="sum"
    )
    exact = clipped_on_grid(rows, clip_norm=clip_norm, resolution=RESOLUTION).sum(0)
    error = np.abs(result.integers.numpy() - exact)
    assert error.max() < 1.0 + 4e-6 * RESOLUTION * math.sqrt(len(x))


@pytest.mark.parametrize("name", ["cnn", "softmax", "tokens"])
def test_stochastic_rounding_is_unbiased_and_short(name: str) -> None:
    model, x, y = case(name)
    gradients = PerRecordGradients(model)
    source = RandomSource.simulation(1)
    resolution, repeats = 64, 256
    exact = clipped_on_grid(
        record_gradients(model, x[:1], y[:1]), clip_norm=0.1, resolution=resolution
    )[0]
    copies_x, copies_y = x[:1].expand(repeats, *x.shape[1:]), y[:1].expand(repeats)
    options = {
        "clip_norm": 0.1,
        "resolution": resolution,
        "rounding": "stochastic",
        "source": source,
    }
    total = gradients.clipped_sum(
        flat_parameters(model), copies_x, copies_y, **options
    ).integers.numpy()
    # A coordinate's mean deviates by at most 0.5/√repeats (standard deviation); over d ≤ 26,010
    # coordinates 7 deviations are exceeded with probability below 1e-7. Keeping short vectors only
    # moves a mean by far less than 0.05 steps here.
    error = total / repeats - exact
    assert np.abs(error).max() < 7 * 0.5 / math.sqrt(repeats) + 0.05
    assert abs(error.mean()) < 7 * 0.5 / math.sqrt(repeats * len(exact)) + 0.01
    bound = Grid(0.1, resolution).sensitivity_grid(Rounding.STOCHASTIC, gradients.dimension)
    one = gradients.clipped_sum(flat_parameters(model), x[:1], y[:1], **options).integers.numpy()
    assert np.square(one).sum() <= bound**2
    assert np.abs(one - exact).max() < 1.001
    assert (one != np.trunc(exact)).any()


def test_too_long_roundings_are_drawn_again() -> None:
    """All coordinates are fair coins, so one draw in 44 is longer than accounted; 300 kept draws
    must all be short enough.
    """
    dimension, resolution = 4096, 32
    gradients = PerRecordGradients(
        nn.Linear(dimension, 1, bias=False), loss=lambda logits, y: logits.sum()
    )
    source = RandomSource.simulation(2)
    bound = Grid(1.0, resolution).sensitivity_grid(Rounding.STOCHASTIC, dimension)
    coins = np.random.default_rng(0).integers(0, 2, (300, dimension)).sum(1)
    assert (coins > bound**2).any()  # what rounding without a second try would do
    for _ in range(300):
        integers = gradients.clipped_sum(
            torch.zeros(dimension),
            torch.ones(1, dimension),
            torch.zeros(1),
            clip_norm=1.0,
            resolution=resolution,
            rounding="stochastic",
            source=source,
        ).integers
        assert int(integers.square().sum()) <= bound**2


def test_empty_batch_is_zero() -> None:
    model, x, y = case("mlp")
    result = PerRecordGradients(model).clipped_sum(
        flat_parameters(model), x[:0], y[:0], clip_norm=1.0, resolution=RESOLUTION
    )
    assert (result.records, result.clipped, result.nonfinite) == (0, 0, 0)
    assert result.integers.dtype == torch.int64
    assert not result.integers.any()


def test_parameters_are_an_argument_not_a_state() -> None:
    model, x, y = case("mlp")
    gradients = PerRecordGradients(model)
    theta = flat_parameters(model)
    moved = gradients.clipped_sum(theta + 0.1, x, y, clip_norm=1.0, resolution=RESOLUTION).integers
    assert torch.equal(flat_parameters(model), theta)
    load_flat(model, theta + 0.1)
    assert torch.equal(
        PerRecordGradients(model)
        .clipped_sum(theta + 0.1, x, y, clip_norm=1.0, resolution=RESOLUTION)
        .integers,
        moved,
    )


def test_frozen_parameters_are_not_in_the_vector() -> None:
    model, x, y = case("mlp")
    for parameter in model[1].parameters():
        parameter.requires_grad_(False)
    gradients = PerRecordGradients(model)
    assert gradients.dimension == flat_parameters(model).numel() == 16 * 9 + 9 + 9 * 5 + 5
    result = gradients.clipped_sum(
        flat_parameters(model), x, y, clip_norm=1e9, resolution=RESOLUTION, rounding="sum"
    )
    assert result.integers.shape == (gradients.dimension,)


@pytest.mark.deep
@pytest.mark.parametrize("name", ["cnn", "mlp", "attention"])
def test_a_small_memory_cap_gives_the_same_sum(name: str) -> None:
    model, x, y = case(name)
    theta = flat_parameters(model)
    wide = PerRecordGradients(model).clipped_sum(theta, x, y, clip_norm=0.3, resolution=RESOLUTION)
    narrow = PerRecordGradients(model, memory_cap_bytes=1 << 20).clipped_sum(
        theta, x, y, clip_norm=0.3, resolution=RESOLUTION
    )
    # other chunk shapes may call other kernels, so last bits may differ: a step here and there
    assert (wide.integers - narrow.integers).abs().max() <= len(x) // 10 + 1


def test_double_precision_models_are_clipped_in_double_precision() -> None:
    model, x, y = case("mlp")
    rows = record_gradients(model, x, y)
    model.double()
    result = PerRecordGradients(model).clipped_sum(
        flat_parameters(model), x, y, clip_norm=1.0, resolution=RESOLUTION, rounding="sum"
    )
    exact = clipped_on_grid(rows, clip_norm=1.0, resolution=RESOLUTION).sum(0)
    # the shrinking by 2^-20 is all that is left
    assert np.abs(result.integers.numpy() - exact).max() < 1.0 + 1e-6 * RESOLUTION * len(x)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rounding": "nearest"}, PlanError, "rounding"),
        ({"rounding": "stochastic"}, PlanError, "RandomSource"),
        ({"clip_norm": 0.0}, PlanError, "clip_norm"),
        ({"clip_norm": float("nan")}, PlanError, "clip_norm"),
        ({"resolution": 1 << 25}, PlanError, "resolution"),
        ({"y": torch.tensor([0, 5])}, DataError, "labels must lie in 0 … 4"),
        ({"y": torch.tensor([0, -1])}, DataError, "labels"),
        ({"y": torch.zeros(2, 1).long()}, DataError, "one integer a record"),
        ({"y": torch.zeros(2, 0).long()}, DataError, "one integer a record"),
        ({"y": torch.tensor([0])}, DataError, "same length"),
        ({"x": torch.zeros(2, 21)}, DataError, "do not fit the model"),
        ({"parameters": torch.zeros(3)}, PlanError, "one vector"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(
    change: dict[str, object], error: type[Exception], message: str
) -> None:
    model, x, y = case("mlp")
    arguments: dict[str, object] = {
        "parameters": flat_parameters(model),
        "x": x[:2],
        "y": y[:2],
        "clip_norm": 1.0,
        "resolution": 64,
    }
    with pytest.raises(error, match=message) as caught:
        PerRecordGradients(model).clipped_sum(**(arguments | change))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_loss_of_ones_own_may_have_several_labels_a_record() -> None:
    """∇ of Σ_k (z_k − y_k)² at z = 0: −2·y_k·[x, 1], below the clip norm."""
    x, y = (
        torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0]]),
        torch.tensor([[1, 0], [0, 1], [1, 1]]),
    )
    model = nn.Linear(2, 2)
    gradients = PerRecordGradients(model, loss=lambda logits, label: ((logits - label) ** 2).sum())
    found = gradients.clipped_sum(torch.zeros(6), x, y, clip_norm=64.0, resolution=RESOLUTION)
    weights, bias = -2.0 * y.T.double() @ x.double(), -2.0 * y.sum(0).double()
    exact = torch.cat([weights.flatten(), bias]) * RESOLUTION / 64.0
    assert (found.integers - exact).abs().max() <= 3 + 2e-6 * exact.abs().max()
    assert found.clipped == 0


def test_a_cap_below_one_record_is_refused() -> None:
    with pytest.raises(PlanError, match="one record's gradient"):
        PerRecordGradients(case("cnn")[0], memory_cap_bytes=1000)
