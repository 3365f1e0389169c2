"""The compiled loop of linear models: right for every shape, in use wherever it may be, exact for
very long and very short records.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from sumus.gradients import PerRecordGradients
from sumus.gradients.linear import LinearModel
from sumus.gradients.totals import Totals
from sumus.noise import Grid
from sumus.tasks import TASKS, Link

RESOLUTION = 1 << 16


def exact_deltas(weights: np.ndarray, bias: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """softmax(W·x + b) − y, or σ(w·x + b) − y, in double precision."""
    logits = x.astype(np.float64) @ weights.T.astype(np.float64) + bias
    if len(weights) == 1:
        return 1.0 / (1.0 + np.exp(-logits)) - y[:, None]
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True) - np.eye(len(weights))[y]


@settings(max_examples=100, deadline=None)
@given(
    records=st.integers(1, 70),
    outputs=st.integers(1, 11),
    features=st.integers(1, 70),
    bias=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_every_shape_gives_the_exact_gradients(
    records: int, outputs: int, features: int, bias: bool, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(records, features)).astype(np.float32)
    y = generator.integers(0, max(outputs, 2), records)
    theta = generator.normal(scale=0.3, size=outputs * (features + bias)).astype(np.float32)
    linear = LinearModel(
        outputs, features, bias=bias, link=TASKS["classification"].link(outputs)
    ).at(torch.from_numpy(theta))
    integers = np.zeros(theta.size, np.int64)
    deltas, clipped, nonfinite = linear.add(
        torch.from_numpy(x), torch.from_numpy(y), grid=Grid(0.5, RESOLUTION), integers=integers
    )
    split = outputs * features
    exact = exact_deltas(
        theta[:split].reshape(outputs, features), theta[split:] if bias else np.zeros(outputs), x, y
    )
    assert np.abs(deltas - exact).max() < 1e-5
    inputs = np.concatenate([x, np.ones((records, int(bias)), np.float32)], axis=1).astype(
        np.float64
    )
    weights = exact[:, :, None] * inputs[:, None, :]
    rows = np.concatenate(
        [
            weights[:, :, :features].reshape(records, -1),
            *([weights[:, :, features]] if bias else []),
        ],
        axis=1,
    )
    norms = np.linalg.norm(rows, axis=1)
    on_grid = np.trunc(rows * (RESOLUTION / np.maximum(norms, 0.5))[:, None]).sum(axis=0)
    assert nonfinite == 0
    assert abs(clipped - int((norms > 0.5).sum())) <= int((np.abs(norms - 0.5) < 1e-4).sum())
    # single precision moves a coordinate by about 2e-6 · r a record
    assert np.abs(integers - on_grid).max() <= 0.3 * records + 2


@pytest.mark.parametrize(
    "model",
    [
        nn.Linear(33, 7),
        nn.Linear(33, 1),
        nn.Linear(33, 10, bias=False),
        nn.Sequential(nn.Flatten(), nn.Linear(33, 3)),
    ],
)
def test_the_loop_is_in_use(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that treated records unequally would be found out on the machine and left unused:
    right, but slow.
    """
    calls = []
    real = Totals.add_linear

    def counted(self: Totals, *arguments: object) -> None:
        calls.append(self)
        real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Totals, "add_linear", counted)
    theta = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    PerRecordGradients(model).clipped_sum(
        theta, torch.randn(9, 33), torch.zeros(9).long(), clip_norm=1.0, resolution=RESOLUTION
    )
    assert calls


@pytest.mark.parametrize("exponent", [-120, -100, -70, -61, -40, 0, 40, 61, 70, 100, 120])
def test_very_long_and_very_short_records_keep_their_digits(exponent: int) -> None:
    """One clipped record of length 2^exponent is a vector of length r in its own direction,
    whatever over- or underflows on the way.
    """
    direction = np.random.default_rng(1).normal(size=50)
    x = np.ldexp(direction / np.linalg.norm(direction), exponent).astype(np.float32)
    linear = LinearModel(2, 50, bias=False, link=Link.SOFTMAX).at(torch.zeros(100))
    integers = np.zeros(100, np.int64)
    clip_norm = float(np.ldexp(1e-3, exponent))
    linear.add(
        torch.from_numpy(x)[None],
        torch.tensor([0]),
        grid=Grid(clip_norm, RESOLUTION),
        integers=integers,
    )
    unit = x.astype(np.float64) / np.linalg.norm(x.astype(np.float64))
    expected = np.concatenate([-unit, unit]) * RESOLUTION / np.sqrt(2.0)
    assert np.abs(integers - expected).max() <= 1.1
    assert int((integers**2).sum()) <= RESOLUTION**2
