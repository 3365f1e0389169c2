"""Public features: the declared sizes, each record apart, nothing learned from records, and norms
that hold for every input.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

from sumus.errors import DataError, PlanError
from sumus.features import bounded, feature_map, maps as features_module
from sumus.features.filters import GaborBank, gabor_filters
from sumus.features.pictures import made_up_pictures
from sumus.plan import feature_shape
from sumus.plan.sizes import FEATURES

GREY, COLOUR = (1, 12, 10), (3, 9, 8)
IMAGE_MAPS = ["gabor", "phases", "scatter", "random"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small problems on a busy machine: a second thread only waits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def images(count: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(1).random((count, *shape), dtype=np.float32)


@pytest.mark.deep
@pytest.mark.parametrize("shape", [GREY, COLOUR])
@pytest.mark.parametrize("name", ["none", *IMAGE_MAPS])
def test_sizes_without_torch_are_the_real_ones(name: str, shape: tuple[int, ...]) -> None:
    mapping = feature_map(name, shape)
    out = mapping(images(3, shape))
    assert out.dtype == np.float32
    assert out.shape == (3, *feature_shape(name, shape)) == (3, *mapping.shape)
    assert np.isfinite(out).all()


def test_gabor_of_28_by_28_pixels_has_980_numbers() -> None:
    assert feature_shape("gabor", (1, 28, 28)) == (980,)
    assert GaborBank((1, 28, 28))(torch.rand(2, 1, 28, 28)).shape == (2, 980)


@pytest.mark.parametrize(
    ("name", "shape"), [*((name, GREY) for name in IMAGE_MAPS), ("random", (13,)), ("none", (5,))]
)
def test_a_record_changes_no_other_records_features(name: str, shape: tuple[int, ...]) -> None:
    """Bit for bit: neither company nor place matters, so a map in front of a model leaves its
    sensitivity as it is.
    """
    mapping = feature_map(name, shape)
    records = images(205, shape)
    together = mapping(records)
    assert np.array_equal(together[::-1], mapping(records[::-1]))
    assert np.array_equal(together[150:151], mapping(records[150:151]))
    records[0] = np.nan
    assert np.array_equal(together[1:], mapping(records)[1:])


def test_a_map_whose_bits_depend_on_company_is_applied_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        features_module, "_transform", lambda name, shape, *more: (lambda x: x - x.mean(0), shape)
    )
    mapping = feature_map("none", (7,), seed=12345)
    assert mapping.batch == 1
    assert not mapping(images(4, (7,))).any()
    feature_map.cache_clear()


@pytest.mark.deep
@pytest.mark.parametrize("shape", [(40,), GREY])
def test_random_maps_depend_on_the_public_seed_only(shape: tuple[int, ...]) -> None:
    records = images(4, shape)
    first = feature_map("random", shape, seed=1)(records)
    feature_map.cache_clear()
    assert np.array_equal(first, feature_map("random", shape, seed=1)(records))
    assert not np.allclose(first, feature_map("random", shape, seed=2)(records))


def test_random_projection_estimates_a_gaussian_kernel() -> None:
    """⟨z(x), z(x')⟩/1024 estimates exp(−|x − x'|²/2); each product has variance below 2, so
    7·√(2/1024) fails with < 1e-11.
    """
    records = images(6, (30,)).astype(np.float64) - 0.5
    unit = records / np.linalg.norm(records, axis=1, keepdims=True)
    kernel = np.exp(-np.square(unit[:, None] - unit[None]).sum(-1) / 2)
    mapped = feature_map("random", (30,))(records)
    assert np.abs(mapped @ mapped.T / mapped.shape[1] - kernel).max() < 7 * math.sqrt(
        2 / mapped.shape[1]
    )


def test_gabor_filters_have_norm_one_and_no_constant_part() -> None:
    filters = gabor_filters(orientations=8, wavelength=4.0, spread=1.6, size=7)
    assert filters.shape == (16, 1, 7, 7)
    assert torch.allclose(filters.flatten(1).norm(dim=1), torch.ones(16), atol=1e-6)
    assert filters.flatten(1).sum(1).abs().max() < 1e-5


def test_stripes_excite_the_filters_across_them() -> None:
    """Vertical stripes of the filters' wavelength: orientation 0 answers most, orientation 4 (a
    right angle) least.
    """
    stripes = (0.5 + 0.5 * torch.sin(2 * math.pi * torch.arange(28) / 4)).expand(1, 1, 28, 28)
    fine = (
        GaborBank((1, 28, 28))(stripes)[0, 196 : 196 + 8 * 49]
        .view(8, 7, 7)[:, 2:5, 2:5]
        .mean((1, 2))
    )
    assert int(fine.argmax()) == 0
    assert fine[4] < 0.2 * fine[0]


def test_made_up_pictures_are_the_same_for_everybody() -> None:
    pictures = made_up_pictures(50, (3, 20, 24))
    assert pictures.shape == (50, 3, 20, 24)
    assert 0.0 <= float(pictures.min()) < 0.05
    assert 0.9 < float(pictures.max()) <= 1.0
    assert torch.equal(pictures, made_up_pictures(50, (3, 20, 24)))
    assert not torch.equal(pictures, made_up_pictures(50, (3, 20, 24), seed=1))
    assert torch.equal(pictures[:, 0], pictures[:, 2])


def test_whitening_takes_away_what_pictures_have_in_common() -> None:
    """Cosines between different pictures that the whitening has never seen, before and after."""
    pictures = made_up_pictures(200, GREY, seed=7)
    before = GaborBank(GREY)(pictures).numpy()
    after = feature_map("gabor", GREY)(pictures.numpy())

    def mean_cosine(features: np.ndarray) -> float:
        unit = features / np.linalg.norm(features, axis=1, keepdims=True)
        return float((unit @ unit.T - np.eye(len(unit))).mean())

    assert mean_cosine(before) > 0.5
    assert abs(mean_cosine(after)) < 0.05


@settings(max_examples=300, deadline=None)
@given(
    features=hnp.arrays(
        np.float32, st.tuples(st.integers(1, 4), st.integers(1, 12)), elements=st.floats(width=32)
    ),
    bound=st.floats(1e-6, 1e6),
)
def test_no_record_is_longer_than_the_bound(features: np.ndarray, bound: float) -> None:
    out = bounded(features, bound)
    assert out.shape == (len(features), features.shape[1] + 1)
    for record, row in zip(features, out, strict=True):
        exact2 = sum((Fraction(float(value)) ** 2 for value in row), Fraction(0))
        assert exact2 <= Fraction(bound) ** 2
        assert row[-1] == pytest.approx(bound / 4, rel=1e-5)
        if not np.isfinite(record).all() or not record.any():
            assert not row[:-1].any()
        else:
            assert exact2 >= Fraction(bound * 0.9999) ** 2
            direction = record.astype(np.float64) / np.abs(record).max()
            assert np.allclose(
                row[:-1] / np.linalg.norm(row[:-1]),
                direction / np.linalg.norm(direction),
                atol=1e-5,
            )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_and_tiny_records_keep_their_direction(dtype: type) -> None:
    largest = np.finfo(dtype).max
    out = bounded(np.array([[largest, -largest], [np.finfo(dtype).tiny, 0.0]], dtype), 1.0)
    assert np.allclose(np.linalg.norm(out, axis=1), 1.0, atol=1e-5)
    assert out[0, 0] == -out[0, 1]


def test_no_records_give_no_features() -> None:
    assert feature_map("gabor", GREY)(images(0, GREY)).shape[0] == 0
    assert bounded(np.zeros((0, 5)), 1.0).shape == (0, 6)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf])
def test_a_bound_must_be_a_positive_number(bound: float) -> None:
    with pytest.raises(PlanError, match="feature_bound"):
        bounded(np.zeros((1, 2)), bound)


def test_images_must_be_flattened_before_they_are_bounded() -> None:
    with pytest.raises(DataError, match="Flatten"):
        bounded(images(2, GREY), 1.0)


class Pooled(nn.Module):
    """A frozen network of a user: colour means through a fixed matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(3, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mix(x.mean((2, 3)))


def test_a_users_frozen_network_reads_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nn, "Pooled", Pooled, raising=False)
    network = Pooled()
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    mapping = feature_map(
        f"torch.nn:Pooled?pixels=16&weights={tmp_path / 'weights.pt'}", (3, 16, 16)
    )
    records = images(3, (3, 16, 16))
    with torch.no_grad():
        expected = network((torch.from_numpy(records) * 255 - 127) / 128)
    assert np.allclose(mapping(records), expected.numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("gabr", GREY, "must be one of none, centred, gabor"),
        ("gabor", (64,), "image shape"),
        ("torch.nn:NoSuchLayer", COLOUR, "importable"),
        ("torch.nn:Identity?pixels=many", COLOUR, "pixels as a number"),
        ("torch.nn:Identity?size=3", COLOUR, "Remove size"),
    ],
)
def test_unknown_maps_are_refused_in_one_line(
    name: str, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        feature_map(name, shape)
    assert "\n" not in str(caught.value)


def test_every_named_map_has_a_size() -> None:
    for name in FEATURES:
        assert math.prod(feature_shape(name, (3, 32, 32))) > 0


@pytest.mark.parametrize("shape", [(5,), (1, 28, 28)])
def test_centred_records_keep_their_shape_and_lie_between_minus_one_and_one(
    shape: tuple[int, ...],
) -> None:
    records = np.random.default_rng(0).random((7, *shape), dtype=np.float32)
    records.reshape(7, -1)[0, :2] = [0.0, 1.0]
    found = feature_map("centred", shape)(records)
    assert found.shape == records.shape
    assert found.reshape(7, -1)[0, :2].tolist() == [-1.0, 1.0]
    assert np.array_equal(found, 2 * records - 1)


def test_components_are_the_strongest_directions_of_made_up_pictures() -> None:
    """Of pictures that nobody has drawn yet the kept directions come in falling strength, and all
    of them together hold what the map holds that keeps every direction.
    """
    pictures = made_up_pictures(600, GREY, seed=5).numpy()
    whole = feature_map("gabor", GREY)(pictures)
    every = feature_map("gabor", GREY, components=whole.shape[1])(pictures)
    few = feature_map("gabor", GREY, components=20)(pictures)
    assert few.shape == (600, 20)
    assert np.allclose(few, every[:, :20], atol=1e-4)
    # a turn keeps every length
    assert np.allclose(np.linalg.norm(every, axis=1), np.linalg.norm(whole, axis=1), rtol=1e-3)
    spread = feature_map("gabor", GREY, components=20, whitening=0.0)(pictures).std(0)
    assert spread[:5].min() > spread[-5:].max()


def test_components_do_not_hang_on_which_way_a_machine_turns_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An eigenvector is as good as its opposite; silos that took different ones would each learn
    what the other unlearns.
    """
    pictures, eigh = made_up_pictures(5, GREY, seed=5).numpy(), torch.linalg.eigh
    anew = feature_map.__wrapped__
    here = anew("gabor", GREY, components=8)(pictures)

    def elsewhere(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        spread, directions = eigh(matrix)
        return spread, directions * (1.0 - 2.0 * (torch.arange(len(spread)) % 2))

    monkeypatch.setattr(torch.linalg, "eigh", elsewhere)
    np.testing.assert_allclose(anew("gabor", GREY, components=8)(pictures), here, atol=1e-6)


def test_whitening_evens_directions_out() -> None:
    pictures = made_up_pictures(600, GREY, seed=5).numpy()
    ratios = []
    for degree in (0.0, 0.5, 1.0):
        spread = feature_map("gabor", GREY, components=50, whitening=degree)(pictures).std(0)
        ratios.append(float(spread.max() / spread.min()))
    assert ratios[0] > ratios[1] > ratios[2]


@pytest.mark.parametrize(
    ("features", "shape", "components", "message"),
    [
        ("none", (64,), 3, "is for training.features"),
        ("efficientnet-lite0", COLOUR, 3, "is for training.features"),
        ("random", (64,), 3, "is for training.features"),
        ("torch.nn:Identity", COLOUR, 3, "is for training.features"),
        ("gabor", GREY, 10**6, "must not exceed"),
    ],
)
def test_components_that_are_not_there_are_refused(
    features: str, shape: tuple[int, ...], components: int, message: str
) -> None:
    for refused in (
        lambda: feature_shape(features, shape, components),
        lambda: feature_map(features, shape, components=components),
    ):
        with pytest.raises(PlanError, match=message):
            refused()
