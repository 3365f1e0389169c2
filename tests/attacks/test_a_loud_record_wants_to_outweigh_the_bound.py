"""A record with a Jacobian as long as it likes wants to move the linearised model further than is
accounted, to make other records move it, or to stop its silo, which shows that it is there.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from sumus.gradients import Tangents
from sumus.purity import Form, InputKind
from sumus.tasks import TASKS, Link
from support.tangents import Raw, bounds_for, labels_for, matrices, moved

STEP = 0.05


def _shift(*, bounded: bool) -> float:
    """How far the loud record moves the pass, in units of γC/b."""
    rng = np.random.default_rng(1)
    raw, y = Raw(rng, 21, Link.SOFTMAX), labels_for(rng, Link.SOFTMAX, 21)
    raw.rows[:-1], raw.left[:-1] = raw.rows[:-1] / 1e3, raw.left[:-1] / 1e9
    raw.rows[-1], raw.left[-1] = 1e2 * rng.normal(size=(3, 3)), 0.0
    bounds = bounds_for(Link.SOFTMAX, cap=40)
    options = {"bins": 4, "step": STEP, "bounds": bounds, "bounded": bounded}
    assigned = [rng.integers(0, 4, 21)]
    apart = moved(raw, y, assigned, **options) - moved(raw, y[:-1], assigned, **options)
    return float(np.linalg.norm(apart)) / (STEP * bounds.convex.gradient_norm)


def test_it_moves_the_pass_by_no_more_than_any_record() -> None:
    assert 0.5 < _shift(bounded=True) <= 1.0 + 1e-9


def test_without_a_bound_on_its_jacobian_it_would() -> None:
    assert _shift(bounded=False) > 10.0


@pytest.mark.parametrize("link", [Link.SOFTMAX, Link.HUBER])
def test_its_length_changes_nothing_that_is_stored_of_others(link: Link) -> None:
    rng = np.random.default_rng(2)
    raw = Raw(rng, 6, link)
    before = raw(np.arange(6))
    raw.rows[-1] *= 1e12
    raw.z[-1] = np.nan
    after = raw(np.arange(6))
    np.testing.assert_array_equal(before.scales[:-1], after.scales[:-1])
    np.testing.assert_array_equal(before.outputs[:-1], after.outputs[:-1])
    np.testing.assert_array_equal(matrices(before, 5)[:-1], matrices(after, 5)[:-1])


def test_what_its_outputs_have_in_common_cannot_hide_what_tells_them_apart() -> None:
    """Rows of length 10^12 that differ by 10^3: squares of their lengths agree in all digits."""
    rng = np.random.default_rng(3)
    raw = Raw(rng, 2, Link.SOFTMAX)
    raw.left[:] = 0.0
    raw.rows[:] = 1e12 + 1e3 * rng.normal(size=(2, 3, 3))
    for table in matrices(raw(np.arange(2)), 2):
        apart = max(np.linalg.norm(a - b) for a in table for b in table)
        assert apart <= np.sqrt(2.0) * (1 + 2.0**-20)


class Loud(nn.Module):
    """Outputs and derivatives that are numbers as float64 and none as float32."""

    def __init__(self, *, whole: bool) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.gains = nn.Parameter(torch.ones(3, dtype=torch.float64 if whole else torch.float32))
        if whole:
            self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shouted: torch.Tensor = self.head(x).double() + torch.exp(x[:, :1].double()) * self.gains
        return shouted


@pytest.mark.parametrize("whole", [True, False], ids=["float64", "float64 outputs of float32"])
def test_a_number_that_overflows_when_it_is_squared_is_no_number(whole: bool) -> None:
    """Its square would be infinite, the difference of two squares no number, and so the sum."""
    torch.manual_seed(0)
    model = Loud(whole=whole)
    kind = InputKind.of(model)
    tangents = Tangents(model, TASKS["classification"], kind, Form((4,)))
    flat = torch.cat([each.detach().double().reshape(-1) for each in model.parameters()]).numpy()
    x = torch.zeros(1, 4)
    for loudness, heard in ((1.0, True), (500.0, False), (709.5, False)):
        x[0, 0] = loudness
        outputs, parts = tangents.of(flat, x)
        finite = bool(np.isfinite(outputs).all() and all(part.finite().all() for part in parts))
        assert finite is heard
        if finite:
            with np.errstate(over="raise"):
                assert all(np.isfinite(part.gram()).all() for part in parts)
