"""Attacks on the sensitivity: what one record can do to the integer sum, in exact integers."""

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

from oracles.naive_gradients import integer_norm2
from sumus.errors import GuaranteeError, PlanError
from sumus.gradients import PerRecordGradients, examination, per_record as gradients_module
from sumus.gradients.parts import Positions
from sumus.noise import summation_slack_grid
from sumus.plan import float_sum_terms
from sumus.purity import Form, certified, is_isolated
from sumus.training import flat_parameters, load_flat
from sumus.training.models import build_model


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small problems on a busy machine: a second thread only waits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


FLOAT32_EDGES = [
    0.0,
    -0.0,
    1e38,
    -3.4028235e38,
    1e-45,
    -1.1754944e-38,
    1e-30,
    1.0,
    -1.0,
    0.3,
    65504.0,
    1e20,
]
EDGES = st.one_of(
    st.sampled_from([*FLOAT32_EDGES, float("nan"), float("inf"), float("-inf")]),
    st.floats(width=32),
)


@cache
def gradient_is_the_record(size: int) -> PerRecordGradients:
    """A model whose gradient is the record itself, so that an attacker chooses any gradient he
    likes.
    """
    return PerRecordGradients(nn.Linear(size, 1, bias=False), loss=lambda logits, y: logits.sum())


@pytest.mark.deep
@settings(max_examples=300, deadline=None)
@given(
    record=hnp.arrays(np.float32, st.integers(1, 40), elements=EDGES),
    clip_norm=st.sampled_from([1e-30, 1e-3, 0.7, 1.0, 3.0, 1e6, 1e30]),
    resolution_bits=st.integers(0, 24),
)
def test_no_record_moves_the_sum_further_than_the_resolution(
    record: np.ndarray, clip_norm: float, resolution_bits: int
) -> None:
    resolution = 1 << resolution_bits
    result = gradient_is_the_record(len(record)).clipped_sum(
        torch.zeros(len(record)),
        torch.from_numpy(record)[None],
        torch.zeros(1),
        clip_norm=clip_norm,
        resolution=resolution,
    )
    integers = result.integers.numpy()
    assert integer_norm2(integers) <= resolution**2
    finite = bool(np.isfinite(record).all())
    assert result.nonfinite == (0 if finite else 1)
    if not finite:
        assert not integers.any()
        return
    norm = math.sqrt(math.fsum(float(value) ** 2 for value in record))
    exact = record.astype(np.float64) * (resolution / max(norm, clip_norm))
    # nothing is lost beyond truncation and the documented shrinking
    assert (np.abs(integers - exact) < 1.0 + 2.0**-19 * resolution).all()
    assert (np.abs(integers) <= np.abs(exact)).all()


@pytest.mark.parametrize("size", [1, 2, 3, 10, 1000, 65_537])
@pytest.mark.parametrize("value", [1.0, 1e38, 1e-45, 0.1, 3.0e-39])
def test_equal_coordinates_cannot_round_their_way_past_the_bound(size: int, value: float) -> None:
    """Equal coordinates round alike, so a scale that is too large by one last bit would show in
    every one of them.
    """
    gradients = gradient_is_the_record(size)
    record = torch.full((1, size), value)
    for resolution in (1 << 4, 1 << 16, 1 << 24):
        clip_norm = float(record.double().norm())
        integers = gradients.clipped_sum(
            torch.zeros(size), record, torch.zeros(1), clip_norm=clip_norm, resolution=resolution
        ).integers.numpy()
        assert integer_norm2(integers) <= resolution**2


@pytest.mark.deep
@settings(max_examples=150, deadline=None)
@given(
    x=hnp.arrays(np.float32, 6, elements=EDGES),
    logits=hnp.arrays(np.float32, 3, elements=st.floats(-100, 100, width=32)),
    label=st.integers(0, 2),
    clip_norm=st.sampled_from([1e-20, 0.5, 1.0, 1e20]),
    resolution_bits=st.integers(0, 24),
)
def test_closed_form_records_stay_below_the_bound(
    x: np.ndarray, logits: np.ndarray, label: int, clip_norm: float, resolution_bits: int
) -> None:
    gradients = PerRecordGradients(build_model("softmax", shape=(6,), outputs=3))
    theta = torch.cat([torch.zeros(18), torch.from_numpy(logits)])
    result = gradients.clipped_sum(
        theta,
        torch.from_numpy(x)[None],
        torch.tensor([label]),
        clip_norm=clip_norm,
        resolution=1 << resolution_bits,
    )
    assert gradients.path == "linear"
    assert integer_norm2(result.integers.numpy()) <= 4**resolution_bits
    if not np.isfinite(x).all():
        assert result.nonfinite == 1
        assert not result.integers.any()


@pytest.mark.deep
@pytest.mark.parametrize("rounding", ["record", "sum"])
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf"), 3e38])
@pytest.mark.parametrize("name", ["cnn", "mlp", "softmax", "attention"])
def test_a_poisoned_record_changes_nothing_but_itself(
    name: str, poison: float, rounding: str
) -> None:
    model, x, y = make(name)
    gradients = PerRecordGradients(model)
    theta = flat_parameters(model)
    options = {"clip_norm": 0.5, "resolution": 1 << 16, "rounding": rounding}
    clean = gradients.clipped_sum(theta, x[1:], y[1:], **options)
    x[0] = poison
    poisoned = gradients.clipped_sum(theta, x, y, **options)
    moved = (poisoned.integers - clean.integers).numpy()
    if math.isfinite(poison):
        slack = 0.0
        if rounding == "sum":
            slack = math.sqrt(len(moved)) + summation_slack_grid(
                terms=float_sum_terms(len(x)), resolution=1 << 16
            )
        assert math.isqrt(integer_norm2(moved)) <= (1 << 16) + slack
    else:
        assert poisoned.nonfinite == 1
        assert not moved.any()


class Attention(nn.Module):
    """Attention among the tokens of one record."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.head = nn.Linear(8, 24), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project(x).chunk(3, dim=-1)
        return self.head((torch.softmax(query @ key.transpose(1, 2), dim=-1) @ value).mean(1))


def make(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model with random parameters and a batch of 75 records."""
    torch.manual_seed(5)
    shape = {"cnn": (1, 28, 28), "mlp": (30,), "softmax": (30,), "attention": (5, 8)}[name]
    model = Attention() if name == "attention" else build_model(name, shape=shape, outputs=3)
    load_flat(model, 0.2 * torch.randn(flat_parameters(model).numel()))
    return model, torch.randn(75, *shape), torch.randint(0, 3, (75,))


@pytest.mark.deep
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", ["cnn", "mlp", "softmax", "attention"])
def test_a_batch_is_exactly_the_sum_of_its_records(
    name: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: no record's integers depend on its company or its place, so neighbours differ by
    one record's integers.

    Whole batches are shared out between the threads here and the smaller ones are not, so that
    crossing the limit shows.
    """
    torch.set_num_threads(threads)
    model, x, y = make(name)
    gradients = PerRecordGradients(model)
    monkeypatch.setattr(gradients_module, "_WORTH_A_THREAD", 75 * gradients.dimension)
    theta = flat_parameters(model)

    def integers(rows: slice | torch.Tensor) -> torch.Tensor:
        return gradients.clipped_sum(
            theta, x[rows], y[rows], clip_norm=0.4, resolution=1 << 20
        ).integers

    everything = integers(slice(0, 75))
    alone = [integers(slice(index, index + 1)) for index in (0, 1, 2, 37, 63, 64, 74)]
    between = [integers(slice(*ends)) for ends in ((3, 37), (38, 63), (65, 74))]
    assert torch.equal(everything, sum(alone + between))
    assert torch.equal(everything, integers(torch.arange(74, -1, -1)))
    assert torch.equal(everything, integers(slice(1, 75)) + alone[0])


@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_very_long_and_short_neighbours_leave_a_record_its_integers(name: str) -> None:
    """Records of extreme length take another road through the loops; those next to them must
    not.
    """
    model, x, y = make(name)
    x *= torch.tensor([1.0, 1e-30, 1e30, 0.0, 1e-12])[torch.arange(75) * 7 % 5][:, None]
    gradients, theta = PerRecordGradients(model), flat_parameters(model)

    def integers(rows: slice) -> torch.Tensor:
        return gradients.clipped_sum(
            theta, x[rows], y[rows], clip_norm=1e-3, resolution=1 << 20
        ).integers

    alone = [integers(slice(index, index + 1)) for index in range(75)]
    assert sum(bool(one.any()) for one in alone) > 60  # a saturated softmax has gradient zero
    assert torch.equal(integers(slice(0, 75)), sum(alone))
    assert torch.equal(integers(slice(1, 75)), sum(alone[1:]))


@pytest.mark.parametrize("width", [3, 30, 79, 981])
@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_odd_widths_do_not_need_single_records(name: str, width: int, classes: int) -> None:
    """Unaligned rows make matrix kernels depend on a row's place; widths are filled up so that they
    do not.
    """
    torch.manual_seed(0)
    model = build_model(name, shape=(width,), outputs=classes, hidden=(7, 20))
    gradients = PerRecordGradients(model)
    x, y = torch.randn(70, width), torch.randint(0, classes, (70,))
    theta = torch.randn(gradients.dimension)
    options = {"clip_norm": 0.4, "resolution": 1 << 20}
    total = gradients.clipped_sum(theta, x, y, **options).integers
    halves = [
        gradients.clipped_sum(theta, x[rows], y[rows], **options).integers
        for rows in (slice(0, 33), slice(33, 70))
    ]
    assert torch.equal(total, halves[0] + halves[1])
    assert gradients._examined._chunks[Form((width,)), False][0] > 1


def test_many_records_on_one_coordinate_do_not_overflow() -> None:
    """300 records that all use their whole norm on the same number, at the finest grid: 300 · 2^24
    does not fit 32 bits.
    """
    gradients = PerRecordGradients(build_model("logistic", shape=(1,), outputs=1, bias=False))
    options = {"clip_norm": 0.1, "resolution": 1 << 24}
    one = gradients.clipped_sum(torch.zeros(1), torch.ones(1, 1), torch.ones(1), **options).integers
    many = gradients.clipped_sum(
        torch.zeros(1), torch.ones(300, 1), torch.ones(300), **options
    ).integers
    assert int(one[0]) < -(1 << 24) * 0.999
    assert int(many[0]) == 300 * int(one[0]) < -(1 << 31)


def test_a_model_that_peeks_at_its_neighbours_is_refused_and_would_see_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Peeking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x * (1.0 + x.mean(0, keepdim=True)))

    torch.manual_seed(0)
    model, x, y = Peeking(), torch.randn(20, 4), torch.randint(0, 2, (20,))
    gradients = PerRecordGradients(model)
    theta = flat_parameters(model)
    options = {"clip_norm": 0.5, "resolution": 1 << 16}
    with pytest.raises(GuaranteeError, match="mixes records"):
        gradients.clipped_sum(theta, x, y, **options)
    monkeypatch.setattr(certified, "require_apart", lambda *values, **words: None)
    total = gradients.clipped_sum(theta, x, y, **options).integers
    apart = sum(
        gradients.clipped_sum(theta, x[index : index + 1], y[index : index + 1], **options).integers
        for index in range(20)
    )
    assert torch.equal(total, apart)


def test_isolation_test_sees_leaks_of_place_and_company() -> None:
    x, y = torch.randn(8, 3), torch.zeros(8, dtype=torch.long)
    assert is_isolated(lambda a, b: [a * 2], x, y)
    assert not is_isolated(lambda a, b: [a - a.mean(0)], x, y)
    assert not is_isolated(lambda a, b: [a + 1e-6 * torch.arange(8)[:, None]], x, y)
    assert not is_isolated(lambda a, b: [a + 0.0 * a.sum()], x, y)  # a NaN elsewhere spreads
    assert is_isolated(lambda a, b: [a - a.mean(0)], x[:1], y[:1])


def test_a_machine_that_leaks_gets_single_records(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y = make("mlp")
    wide = PerRecordGradients(model).clipped_sum(
        flat_parameters(model), x, y, clip_norm=0.4, resolution=1 << 16
    )
    monkeypatch.setattr(examination, "is_isolated", lambda compute, x, y, **options: False)
    careful = PerRecordGradients(make("mlp")[0])  # what is known about a model is kept with it
    narrow = careful.clipped_sum(flat_parameters(model), x, y, clip_norm=0.4, resolution=1 << 16)
    assert careful._examined._chunks[Form((30,)), False][0] == 1
    assert (wide.integers - narrow.integers).abs().max() <= 8


def test_neighbouring_float_sums_differ_by_no_more_than_the_accounted_slack() -> None:
    """rounding = "sum": remove any one record; the truncated sums differ by at most r + √d +
    slack.
    """
    resolution = 1 << 10
    for name, removed in itertools.product(("cnn", "softmax"), (0, 40)):
        model, x, y = make(name)
        gradients = PerRecordGradients(model)
        kept = torch.arange(75) != removed
        # every record is clipped: the worst case
        options = {"clip_norm": 1e-3, "resolution": resolution, "rounding": "sum"}
        with_record = gradients.clipped_sum(flat_parameters(model), x, y, **options).integers
        without = gradients.clipped_sum(
            flat_parameters(model), x[kept], y[kept], **options
        ).integers
        bound = (
            resolution
            + math.sqrt(gradients.dimension)
            + summation_slack_grid(terms=float_sum_terms(75), resolution=resolution)
        )
        distance = math.sqrt(integer_norm2((with_record - without).numpy()))
        assert distance <= bound
        assert distance > 0.9 * resolution


def test_ghost_norms_never_fall_below_the_true_norm() -> None:
    """Positions that cancel almost completely are where a difference of large products loses its
    digits.
    """
    generator = torch.Generator().manual_seed(3)
    for cancel in (0.0, 1e-3, 1e-6, 1e-7):
        half_delta, half_input = (
            torch.randn(4, 3, 5, generator=generator),
            torch.randn(4, 3, 6, generator=generator),
        )
        deltas = torch.cat([half_delta, -half_delta * (1 - cancel)], dim=1)
        inputs = torch.cat([half_input, half_input], dim=1)
        part = Positions(deltas, inputs, bias=True)
        norms2 = np.zeros(4)
        part.add_norms2(norms2)
        exact = (
            Positions(deltas.double(), inputs.double(), bias=True).as_rows().square().sum(1).numpy()
        )
        assert (norms2 >= exact).all()
        if cancel == 0.0:
            assert (norms2 > 0.0).all()


@pytest.mark.parametrize(
    ("layer", "fix"),
    [
        (nn.BatchNorm1d(4), "GroupNorm"),
        (nn.SyncBatchNorm(4), "GroupNorm"),
        (nn.InstanceNorm1d(4, track_running_stats=True), "GroupNorm"),
        (nn.LazyBatchNorm1d(), "GroupNorm"),
        (nn.Dropout(0.1), "Remove"),
        (nn.AlphaDropout(0.1), "Remove"),
        (nn.RReLU(), "LeakyReLU"),
        (nn.TransformerEncoderLayer(4, 2, 8), "dropout=0"),
        (nn.MultiheadAttention(4, 2, dropout=0.1), "dropout=0"),
        (nn.LSTM(4, 4, num_layers=2, dropout=0.1), "dropout=0"),
        (nn.utils.spectral_norm(nn.Linear(4, 4)), "spectral"),
        (nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), "spectral"),
    ],
)
def test_layers_that_mix_records_are_refused_with_the_fix(layer: nn.Module, fix: str) -> None:
    with pytest.raises(GuaranteeError, match=fix) as caught:
        PerRecordGradients(nn.Sequential(nn.Linear(4, 4), layer, nn.Linear(4, 2)))
    assert "\n" not in str(caught.value)


def test_layers_within_one_record_are_accepted() -> None:
    PerRecordGradients(
        nn.Sequential(
            nn.Linear(4, 4),
            nn.GroupNorm(2, 4),
            nn.LayerNorm(4),
            nn.Dropout(0.0),
            nn.InstanceNorm1d(4),
        )
    )


def test_nothing_to_train_is_refused() -> None:
    with pytest.raises(GuaranteeError, match="no parameter"):
        PerRecordGradients(nn.Tanh())


class Counting(nn.Module):
    """Keeps a running mean of what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.head(x - self.mean)


class Random(nn.Module):
    """Draws its own noise."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x + torch.randn_like(x))


@pytest.mark.parametrize("model", [Counting(), Random()])
def test_hidden_state_and_randomness_in_forward_are_refused(model: nn.Module) -> None:
    gradients = PerRecordGradients(model)
    with pytest.raises(GuaranteeError) as caught:
        gradients.clipped_sum(
            flat_parameters(model), torch.randn(3, 4), torch.zeros(3), clip_norm=1.0, resolution=64
        )
    assert "\n" not in str(caught.value)


@pytest.mark.deep
@pytest.mark.parametrize("logit", [300.0, 366.0, 368.3, 371.0, 372.0, 373.5, 380.0])
@pytest.mark.parametrize("clip_norm", [1e-12, 1e-9, 1e-7])
@pytest.mark.parametrize("rounding", ["record", "sum"])
def test_a_residual_that_underflows_beside_a_huge_activation_counts(
    logit: float, clip_norm: float, rounding: str
) -> None:
    """A server picks weights of a float64 model so that ‖δ‖² underflows while ‖δ‖·‖a‖ is far above
    the clip norm.
    """
    model = nn.Sequential(
        *(
            nn.Linear(1 if first else 2, 2, bias=False)
            for first in (True, False, False, False, False)
        )
    ).double()
    grow = torch.tensor([[3e37, 0.0], [0.0, 1.0]])
    # a = (8e149·x, x), z = (x, 0)
    layers = [
        torch.tensor([[3e37], [1.0]]),
        grow,
        grow,
        grow,
        torch.tensor([[0.0, 1.0], [0.0, 0.0]]),
    ]
    theta = torch.cat([layer.reshape(-1).double() for layer in layers])
    options = {"clip_norm": clip_norm, "resolution": 1 << 16, "rounding": rounding}
    x = torch.tensor([[logit]], dtype=torch.float64)
    found = PerRecordGradients(model).clipped_sum(theta, x, torch.tensor([0]), **options)
    assert np.linalg.norm(found.integers.double().numpy()) <= 1 << 16


def test_a_clip_norm_below_the_proved_range_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(PlanError, match="at least 1e-100"):
        PerRecordGradients(model).clipped_sum(
            torch.zeros(6), torch.zeros(1, 2), torch.zeros(1), clip_norm=1e-200, resolution=16
        )
