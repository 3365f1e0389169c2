"""Public maps in front of clipping: the same sums as with the matrix written out, bounded and kept
apart whatever the map is.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from sumus.gradients import Block, KroneckerMap, PerRecordGradients, SecondMoments, blocks_of
from sumus.training.models import build_model, flat_parameters

_RESOLUTION = 1 << 16


class _Attention(nn.Module):
    """Tokens, an embedding, attention and a norm: layers that no chain has."""

    def __init__(self) -> None:
        super().__init__()
        self.look_up = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.look_up(tokens)
        mixed, _ = self.attention(hidden, hidden, hidden, need_weights=False)
        return self.head(self.norm(hidden + mixed).mean(1))


def _network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(2, 3, 3),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(48, 5),
            nn.Tanh(),
            nn.Linear(5, 3),
        )


def _random_map(blocks: tuple[Block, ...], seed: int = 0) -> tuple[KroneckerMap, torch.Tensor]:
    """A map with matrices on both sides of every block, and the same as one matrix."""
    generator = torch.Generator().manual_seed(seed)

    def symmetric(size: int) -> torch.Tensor:
        matrix = torch.randn(size, size, generator=generator, dtype=torch.float64)
        return (matrix + matrix.T) / math.sqrt(8.0 * size) + torch.eye(size).double()

    sides = [(symmetric(block.outputs), symmetric(block.columns)) for block in blocks]
    size = sum(block.size for block in blocks)
    dense = torch.zeros(size, size, dtype=torch.float64)
    for block, (left, right) in zip(blocks, sides, strict=True):
        stretch = slice(block.start, block.start + block.size)
        unit = block.matrices(torch.eye(block.size, dtype=torch.float64))
        dense[stretch, stretch] = (left @ unit @ right).flatten(1).T
    return KroneckerMap(blocks, sides), dense


def _records(tokens: bool, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    y = torch.randint(0, 3, (count,), generator=generator)
    if tokens:
        return torch.randint(0, 11, (count, 6), generator=generator), y
    return torch.randn(count, 2, 6, 6, generator=generator), y


@pytest.mark.parametrize("tokens", [False, True], ids=["layers", "vmap"])
def test_sum_is_that_of_the_matrix_written_out(tokens: bool) -> None:
    model = _Attention() if tokens else _network()
    gradients = PerRecordGradients(model)
    mapped, dense = _random_map(blocks_of(model))
    parameters = flat_parameters(model)
    x, y = _records(tokens, 5)
    got = torch.zeros(gradients.dimension, dtype=torch.float64)
    for record in range(5):
        one = slice(record, record + 1)
        plain = gradients.clipped_sum(
            parameters, x[one], y[one], clip_norm=100.0, resolution=1 << 24
        ).integers.double()
        gradient = dense @ (plain * 100.0 / (1 << 24))
        got += gradient * min(1.0, 0.5 / float(gradient.norm()))
    together = gradients.clipped_sum(
        parameters, x, y, clip_norm=0.5, resolution=_RESOLUTION, mapped=mapped
    )
    found = together.integers.double() * 0.5 / _RESOLUTION
    assert gradients.path == ("vmap" if tokens else "layers")
    assert float((found - got).norm()) < 0.02 * float(got.norm())


def test_transpose_is_the_transpose() -> None:
    blocks = blocks_of(_network())
    mapped, dense = _random_map(blocks)
    vector = np.random.default_rng(1).normal(size=len(dense))
    expected = dense.T.numpy() @ vector
    assert np.allclose(mapped.transpose(vector), expected, atol=1e-10)


def test_blocks_tile_the_flat_vector_with_biases_beside_their_weights() -> None:
    blocks = blocks_of(_Attention())
    assert [block.start for block in blocks] == list(
        np.cumsum([0, *(block.size for block in blocks)])[:-1]
    )
    shapes = [(block.outputs, block.width, block.bias) for block in blocks]
    norm = [(1, 8, False), (1, 8, False)]
    assert shapes == [(11, 8, False), (24, 8, True), (8, 8, True), *norm, (3, 8, True)]


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_no_map_makes_a_record_longer_than_the_clip_norm(scale: float) -> None:
    model = _network()
    blocks = blocks_of(model)
    generator = torch.Generator().manual_seed(2)
    sides = [
        (
            scale * torch.randn(block.outputs, block.outputs, generator=generator).double(),
            torch.randn(block.columns, generator=generator).double(),
        )
        for block in blocks
    ]
    x, y = _records(False, 1)
    integers = (
        PerRecordGradients(model)
        .clipped_sum(
            flat_parameters(model),
            100.0 * x,
            y,
            clip_norm=1e-3,
            resolution=_RESOLUTION,
            mapped=KroneckerMap(blocks, sides),
        )
        .integers
    )
    assert int((integers**2).sum()) <= _RESOLUTION**2


def test_the_cnn_of_the_paper_is_computed_in_chunks_behind_a_map() -> None:
    """A record's bits do not depend on its company there, so no record has to be computed alone."""
    model = build_model("cnn", shape=(1, 28, 28), outputs=10)
    gradients = PerRecordGradients(model)
    blocks = blocks_of(model)
    sides = [(torch.eye(block.outputs), torch.eye(block.columns)) for block in blocks]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 1, 28, 28, generator=generator)
    y = torch.zeros(2, dtype=torch.int64)
    mapped = KroneckerMap(blocks, [(left.double(), right.double()) for left, right in sides])
    form = gradients._kind.form(x, y)
    assert gradients._examined.chunk_for(form, mapped)[0] > 1


def test_where_bits_depend_on_company_behind_a_map_records_are_taken_one_by_one() -> None:
    """A map whose sums run over the chunk, as a matrix kernel's might by its blocks: the model alone
    keeps records apart, and must not be believed.
    """

    class Mixing:
        def part(self, start, part):
            for tensor in part.tensors():
                tensor += 1e-3 * tensor.nan_to_num().sum()
            return part

        def transpose(self, released):
            return released

    gradients = PerRecordGradients(_network())
    form = gradients._kind.form(*_records(False, 2))
    assert gradients._examined.chunk_for(form)[0] > 1
    assert gradients._examined.chunk_for(form, Mixing())[0] == 1


def test_nothing_moved_means_no_map() -> None:
    """Sides without a second moment stay as they are: a layer that no gradient reaches yet."""
    blocks = blocks_of(nn.Linear(3, 2))
    moments = [(torch.zeros(2, 2), torch.full((4, 4), float("nan")))]
    mapped = KroneckerMap.of_moments(blocks, moments, damping=0.1)
    vector = np.arange(8.0)
    assert set(mapped.transpose(vector)) == set(vector)


def test_a_map_of_nothing_takes_the_products_of_any_other() -> None:
    """Isolation is looked at with the first round's map and holds for kernels of its shapes."""
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    blocks = blocks_of(model)
    nothing = SecondMoments(blocks).sides()
    generator = torch.Generator().manual_seed(0)
    something = [
        tuple(torch.rand(side.shape, generator=generator, dtype=torch.float64) for side in sides)
        for sides in nothing
    ]
    silent = KroneckerMap.of_moments(blocks, nothing, damping=1.0)
    loud = KroneckerMap.of_moments(blocks, [(a @ a.T, b @ b.T) for a, b in something], damping=1.0)
    assert [[side.shape for side in sides] for sides in silent._sides] == [
        [side.shape for side in sides] for sides in loud._sides
    ]
    vector = np.arange(39.0)
    np.testing.assert_array_equal(silent.transpose(_in_order(blocks, vector)), vector)


def _in_order(blocks: tuple[Block, ...], vector: np.ndarray) -> np.ndarray:
    """The flat vector in the map's order: matrices with their bias as a column."""
    pieces = [
        block.matrices(torch.from_numpy(vector[block.start : block.start + block.size])).reshape(-1)
        for block in blocks
    ]
    return torch.cat(pieces).numpy()
