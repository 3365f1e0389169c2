"""Convolution and maximum of our own against torch's, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from sumus.gradients.images import Convolution, Maximum, Window, aligned

WINDOWS = [
    Window((3, 3), (1, 1), (0, 0)),
    Window((8, 8), (2, 2), (2, 2)),
    Window((3, 2), (2, 1), (0, 1)),
    Window((1, 4), (3, 2), (0, 3)),
    Window((4, 4), (2, 2), (3, 3)),
]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("channels", "outputs"), [(1, 16), (3, 5), (16, 32)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_convolution_equals_torch(
    window: Window, channels: int, outputs: int, channels_last: bool
) -> None:
    torch.manual_seed(0)
    images = torch.randn(4, channels, 11, 9, dtype=torch.float64)
    images = images.contiguous(memory_format=torch.channels_last) if channels_last else images
    images.requires_grad_()
    weight, bias = (
        torch.randn(outputs, channels, *window.kernel, dtype=torch.float64),
        torch.randn(outputs, dtype=torch.float64),
    )
    expected = functional.conv2d(images, weight, bias, window.stride, window.padding)
    flow = torch.randn_like(expected)
    (expected_back,) = torch.autograd.grad(expected, images, flow)
    matrix, filled_bias = aligned(weight.permute(0, 2, 3, 1).flatten(1), bias)
    made, _ = Convolution.apply(images, matrix, filled_bias, window)
    (back,) = torch.autograd.grad(made[:, :outputs], images, flow)
    assert torch.allclose(made[:, :outputs], expected, atol=1e-12)
    assert torch.allclose(back, expected_back, atol=1e-12)


@pytest.mark.deep
@pytest.mark.parametrize(
    "window",
    [
        Window((2, 2), (1, 1), (0, 0)),
        Window((3, 2), (2, 3), (0, 0)),
        Window((2, 2), (2, 2), (0, 0)),
    ],
)
def test_maximum_equals_torch(window: Window) -> None:
    torch.manual_seed(0)
    images = torch.randint(0, 4, (5, 3, 10, 9)).double().requires_grad_()  # many ties
    expected = functional.max_pool2d(images, window.kernel, window.stride)
    flow = torch.randn_like(expected)
    (expected_back,) = torch.autograd.grad(expected, images, flow)
    made = Maximum.apply(images, window)
    (back,) = torch.autograd.grad(made, images, flow)
    assert torch.equal(made, expected)
    assert torch.allclose(back, expected_back, atol=1e-12)


def test_maximum_passes_nan_on() -> None:
    images = torch.zeros(1, 1, 3, 3)
    images[0, 0, 1, 1] = float("nan")
    assert Maximum.apply(images, Window((2, 2), (1, 1), (0, 0))).isnan().all()


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
