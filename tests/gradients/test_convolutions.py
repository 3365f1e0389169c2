"""Convolutions as sums over tables of places, and whole trunks of them: against torch's own
convolutions and autograd, one record at a time.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from oracles.naive_gradients import record_gradients
from sumus.gradients import PerRecordGradients
from sumus.gradients.convolutions import Convolution
from sumus.gradients.layers import aligned
from sumus.gradients.parts import Rows, products
from sumus.gradients.tiles import Sums, write_products
from sumus.gradients.trunks import Trunk
from sumus.gradients.windows import Window
from sumus.training import flat_parameters, load_flat

WINDOWS = [
    Window((3,), (1,), (0,), (1,)),
    Window((5,), (2,), (3,), (2,)),
    Window((3, 3), (1, 1), (0, 0), (1, 1)),
    Window((8, 8), (2, 2), (2, 2), (1, 1)),
    Window((3, 2), (2, 1), (0, 1), (1, 3)),
    Window((1, 4), (3, 2), (0, 3), (1, 1)),
    Window((2, 3, 2), (1, 2, 1), (1, 0, 1), (1, 1, 2)),
]
TORCHS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
ATOL = {torch.float32: 2e-4, torch.float64: 1e-12}


def sides(window: Window) -> tuple[int, ...]:
    return (11, 9, 6)[: len(window.kernel)] if len(window.kernel) > 1 else (23,)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("channels", "outputs"), [(1, 16), (3, 5), (16, 32)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_convolution_and_its_gradients_are_torchs(
    window: Window, channels: int, outputs: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    images = torch.randn(3, channels, *sides(window), dtype=dtype)
    weight = torch.randn(outputs, channels, *window.kernel, dtype=dtype, requires_grad=True)
    bias = torch.randn(outputs, dtype=dtype)
    leaf = images.clone().requires_grad_()
    settings = (window.stride, window.padding, window.dilation)
    expected = TORCHS[len(window.kernel)](leaf, weight, bias, *settings)
    flow = torch.randn_like(expected)
    (back,) = torch.autograd.grad(expected, leaf, flow, retain_graph=True)
    rows = [
        torch.autograd.grad(expected[record], weight, flow[record], retain_graph=True)[0].flatten()
        for record in range(3)
    ]
    convolution = Convolution(window, channels, outputs)
    weights = convolution.weights(weight.detach(), bias)
    entered, made = convolution.forward(images, weights)
    shape, atol = tuple(images.shape[2:]), ATOL[dtype] * math.sqrt(weight[0].numel())
    assert torch.allclose(made, expected, atol=atol)
    assert torch.allclose(convolution.back(flow, weights, shape), back, atol=atol)
    stored = convolution.weight_rows(entered, flow, shape)
    assert torch.allclose(convolution.in_model_order(stored), torch.stack(rows), atol=10 * atol)
    patches = convolution.patches(entered, shape)
    deltas = flow.flatten(2).transpose(1, 2)
    summed = torch.einsum("npt,npo->nto", patches, deltas).flatten(1)
    assert torch.allclose(summed, stored, atol=10 * atol)


@pytest.mark.parametrize("rows", [1, 2, 4, 5, 6, 11])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_over_tables_are_sums_of_single_products(rows: int, dtype: type) -> None:
    generator = np.random.default_rng(rows)
    lanes = 2 * 64 // np.dtype(dtype).itemsize
    a = generator.integers(-8, 8, (2, 40)).astype(dtype)
    b = generator.integers(-8, 8, (2, 7 * lanes)).astype(dtype)
    start = generator.integers(-8, 8, lanes).astype(dtype)
    row, step = generator.integers(0, 20, rows), generator.integers(0, 20, 7)
    places, lines = generator.permutation(rows) * lanes, generator.permutation(7) * lanes
    c = np.zeros((2, rows * lanes), dtype)
    write_products(a, b, start, c, *Sums.of(row, places, step, lines))
    for record in range(2):
        for r in range(rows):
            expected = start + sum(
                a[record, row[r] + s] * b[record, line : line + lanes]
                for s, line in zip(step, lines, strict=True)
            )
            assert np.array_equal(c[record, places[r] : places[r] + lanes], expected)
    shared = np.zeros_like(c)
    write_products(a, b[:1], start, shared, *Sums.of(row, places, step, lines))
    assert np.array_equal(shared[0], c[0])
    assert (shared[1] != c[1]).any()


def chain(name: str) -> tuple[nn.Module, tuple[int, ...], int]:
    """A chain, the shape of its records, and how many of its layers are the trunk's."""
    makers = {
        "odd channels": (
            lambda: [
                nn.Conv2d(3, 5, 3, padding=1), nn.Sigmoid(), nn.MaxPool2d(3, 2),
                nn.Conv2d(5, 7, 2, padding=1, bias=False), nn.ReLU(), nn.Flatten(),
                nn.Linear(7 * 16, 4),
            ],
            (3, 8, 8), 5,
        ),
        "an activation first": (
            lambda: [
                nn.Tanh(), nn.Conv1d(2, 16, 5, 2, 2, 2), nn.MaxPool1d(2), nn.ReLU(),
                nn.Conv1d(16, 3, 3), nn.Flatten(), nn.Linear(12, 4),
            ],
            (2, 30), 5,
        ),
        "volumes": (
            lambda: [
                nn.Conv3d(1, 4, (3, 2, 3), (2, 1, 1), (1, 0, 1)), nn.ReLU(),
                nn.MaxPool3d((2, 2, 1)), nn.Flatten(), nn.Linear(4 * 1 * 3 * 5, 4),
            ],
            (1, 5, 7, 5), 3,
        ),
        "two activations": (
            lambda: [
                nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Sigmoid(), nn.MaxPool2d(2), nn.Flatten(),
                nn.Linear(16, 4),
            ],
            (1, 6, 6), 2,
        ),
        "layers that are not a trunk's": (
            lambda: [
                nn.Conv2d(1, 4, 3, padding=1), nn.GELU(), nn.AvgPool2d(2), nn.Conv2d(4, 6, 2),
                nn.MaxPool2d(2, padding=1), nn.Flatten(), nn.Linear(6, 4),
            ],
            (1, 4, 4), 1,
        ),
        "nothing but convolutions": (
            lambda: [nn.Conv2d(2, 3, 2), nn.Conv2d(3, 4, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()],
            (2, 4, 5), 2,
        ),
    }  # fmt: skip
    make, shape, behind = makers[name]
    torch.manual_seed(len(name))
    model = nn.Sequential(*make())
    load_flat(model, 0.4 * torch.randn(flat_parameters(model).numel()))
    return model, shape, behind


CHAINS = [
    "odd channels",
    "an activation first",
    "volumes",
    "two activations",
    "layers that are not a trunk's",
    "nothing but convolutions",
]


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_trunk_gives_the_gradients_of_autograd(name: str, dtype: torch.dtype) -> None:
    model, shape, behind = chain(name)
    model = model.to(dtype)
    assert Trunk.of(model, dtype)[1] == behind
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(5, *shape, generator=generator, dtype=dtype)
    x = x.transpose(-1, -2).contiguous().transpose(-1, -2)  # as a view of something else
    y = torch.arange(5) % 4
    expected = record_gradients(model, x, y)
    gradients, theta = PerRecordGradients(model), flat_parameters(model)
    assert gradients.path == "layers"
    digits = (1e-5 if dtype == torch.float32 else 1e-12) * np.abs(expected).max()
    for record in range(5):
        rows = gradients.mean(theta, x[record : record + 1], y[record : record + 1]).numpy()
        assert np.abs(rows - expected[record]).max() <= digits
    for rounding in ("record", "sum"):
        step = gradients.clipped_sum(
            theta, x, y, clip_norm=1.0, resolution=1 << 16, rounding=rounding
        )
        lengths = np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1.0)
        total = (expected / lengths * (1 << 16)).sum(0)
        assert np.abs(step.integers.numpy() - total).max() <= 5 * 1.3 + 1


@pytest.mark.parametrize("name", ["odd channels", "volumes"])
def test_a_record_in_a_trunk_sees_nothing_of_its_company(name: str) -> None:
    model, shape, _behind = chain(name)
    trunk, _ = Trunk.of(model, torch.float32)
    assert trunk is not None
    weights = trunk.weights(flat_parameters(model))
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(6, *shape, generator=generator)

    def rows_of(records: torch.Tensor, flow: torch.Tensor) -> torch.Tensor:
        kept, _ = trunk.forward(records, weights)
        return trunk.rows(kept, flow, weights, records.shape)

    _, made = trunk.forward(x, weights)
    flow = torch.randn(made.shape, generator=generator)
    together = rows_of(x, flow)
    for record in range(6):
        assert torch.equal(
            rows_of(x[record : record + 1], flow[record : record + 1])[0], together[record]
        )
    for value in (float("nan"), float("inf"), 1e38, 0.0):
        mixed, mixed_flow = x.clone(), flow.clone()
        mixed[1::2], mixed_flow[1::2] = value, value
        assert torch.equal(rows_of(mixed, mixed_flow)[::2], together[::2])
    assert torch.equal(rows_of(x.flip(0), flow.flip(0)), together.flip(0))
    assert rows_of(x[:0], flow[:0]).shape == (0, trunk.size)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", [nn.Tanh, nn.Sigmoid, nn.ReLU])
def test_a_picture_that_is_not_finite_contributes_nothing(kind: type, value: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), kind(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    )
    x, y = torch.randn(4, 1, 6, 6), torch.arange(4) % 3
    theta = flat_parameters(model)
    gradients = PerRecordGradients(model)
    good = gradients.clipped_sum(theta, x[:3], y[:3], clip_norm=1.0, resolution=1 << 16)
    x[3, 0, 2, 2] = value
    step = gradients.clipped_sum(theta, x, y, clip_norm=1.0, resolution=1 << 16)
    assert (step.nonfinite, step.records) == (1, 4)
    assert torch.equal(step.integers, good.integers)


@pytest.mark.parametrize("place", range(4))
def test_a_maximum_is_no_number_wherever_one_below_it_is_none(place: int) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.MaxPool2d(2))
    trunk, _ = Trunk.of(model, torch.float32)
    assert trunk is not None
    x = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    x[1, 0, 2 + place // 2, place % 2] = float("nan")
    _, made = trunk.forward(x, trunk.weights(flat_parameters(model)))
    exact = model(x).detach()
    assert exact.isnan().sum() == 2
    assert torch.allclose(made.reshape(exact.shape), exact, atol=1e-6, equal_nan=True)


def test_the_curve_of_a_trunk_is_tanh() -> None:
    """To a few units of the last place, monotone enough never to leave [−1, 1]."""
    x = torch.cat([torch.linspace(-12, 12, 200_001), torch.logspace(-30, 30, 1001), torch.zeros(1)])
    model = nn.Sequential(nn.Conv1d(1, 1, 1, bias=False), nn.Tanh())
    trunk, _ = Trunk.of(model, torch.float32)
    assert trunk is not None
    _, made = trunk.forward(x[None, None], trunk.weights(torch.ones(1)))
    exact = x.double().tanh()
    assert (made[0, 0].double() - exact).abs().max() <= 5e-7
    near = x.abs() < 1e-2
    assert ((made[0, 0].double() - exact).abs() <= 1e-6 * exact.abs())[near].all()
    assert made.abs().max() <= 1.0


@pytest.mark.parametrize("ties", [True, False])
def test_a_maximum_gives_its_gradient_to_the_first_of_the_largest(ties: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 1), nn.MaxPool2d(2, 1), nn.Conv2d(3, 2, 2), nn.MaxPool2d((3, 2), 1)
    ).double()
    x = torch.randint(0, 3, (4, 1, 7, 6)).double() if ties else torch.randn(4, 1, 7, 6).double()
    flat = flat_parameters(model)
    load_flat(model, flat.round() if ties else flat)
    trunk, _ = Trunk.of(model, torch.float64)
    assert trunk is not None
    weights = trunk.weights(flat_parameters(model))
    kept, made = trunk.forward(x, weights)
    expected = model(x)
    assert torch.allclose(made, expected, atol=1e-12)
    flow = torch.randn_like(expected)
    rows = trunk.rows(kept, flow, weights, x.shape)
    parameters = list(model.parameters())
    for record in range(4):
        gradients = torch.autograd.grad(
            expected[record], parameters, flow[record], retain_graph=True
        )
        turned = [
            each.flatten(2).permute(2, 1, 0) if each.dim() > 1 else each for each in gradients
        ]
        assert torch.allclose(
            rows[record], torch.cat([each.flatten() for each in turned]), atol=1e-12
        )


def test_sums_of_stored_rows_are_those_of_single_products() -> None:
    """Widths that fill no line, and more positions than outputs."""
    generator = torch.Generator().manual_seed(0)
    for records, positions, outputs, width in ((1, 1, 1, 1), (3, 9, 2, 7), (2, 3, 17, 33)):
        deltas = torch.randn(records, positions, outputs, generator=generator).transpose(0, 1)
        deltas = deltas.contiguous().transpose(0, 1)  # not in order in memory
        inputs = torch.randn(records, positions, width, generator=generator)
        first, bias = products(deltas, inputs, bias=True, ghost=False)
        assert isinstance(first, Rows)
        expected = torch.einsum("npo,npi->noi", deltas.double(), inputs.double()).flatten(1)
        assert torch.allclose(first.values.double(), expected, atol=1e-5)
        assert torch.allclose(bias.as_rows(), deltas.sum(1))


def test_aligned_widths_are_multiples_of_64_bytes_and_leave_results_alone() -> None:
    weight, bias = torch.randn(5, 19), torch.randn(5)
    filled, filled_bias = aligned(weight, bias)
    assert filled.shape == (16, 32)
    assert filled_bias is not None
    assert torch.equal(filled[:5, :19], weight)
    assert not filled[5:].any()
    assert not filled[:, 19:].any()
    assert torch.equal(filled_bias[:5], bias)
    same, none = aligned(torch.ones(16, 32), None)
    assert same.shape == (16, 32)
    assert none is None
