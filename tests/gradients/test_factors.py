"""Gradients of modules that are no chains, from the factors of their last products: the numbers
that autograd gives, and nothing of one record in another's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.nn import functional

from sumus.gradients import PerRecordGradients
from sumus.gradients.parts import Rows, Tied, Tokens
from sumus.purity import Lookup, LookupAndProduct, Patches, Product, chunk_function, factor_names
from sumus.training import flat_parameters, lora
from support import module_zoo
from support.module_zoo import VOCABULARY, Residual, TiedWeights, TokenLSTM, TokenTransformer

RESOLUTION = 1 << 16


class Projected(nn.Module):
    """Attention with projections of its own over looked-up tokens; token 0 is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, 8, padding_idx=0)
        self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept, hidden = (x != 0).float(), self.table(x)
        scores = self.query(hidden) @ self.key(hidden).transpose(1, 2)
        mixed = (scores - 1e4 * (1.0 - kept[:, None])).softmax(2) @ self.value(hidden)
        hidden = self.norm(hidden + mixed) * kept[..., None]
        return self.head(hidden.sum(1) / kept.sum(1, keepdim=True).clamp_min(1.0))


class Filters(nn.Module):
    """Convolutions: one with holes, one of a bare parameter, one used twice, one in groups."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(2, 3, 2, padding=2, dilation=2)
        self.bare = nn.Parameter(0.3 * torch.randn(4, 3, 1, 2))
        self.twice = nn.Conv1d(4, 4, 3, padding=1, bias=False)
        self.groups = nn.Conv1d(4, 4, 2, 2, groups=2)
        self.norm, self.head = nn.GroupNorm(2, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x.unflatten(1, (2, 4))))
        hidden = functional.conv2d(hidden[:, :, None], self.bare, stride=(1, 2))[:, :, 0]
        hidden = self.norm(self.twice(torch.tanh(self.twice(hidden))))
        return self.head(self.groups(functional.pad(hidden, (0, 1))).mean(2))


class NextWord(nn.Module):
    """Words are compared with the table that they were looked up in."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.inner = nn.Embedding(VOCABULARY, 5, padding_idx=0), nn.Linear(5, 5)
        self.head = nn.Linear(5, VOCABULARY, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.inner(self.table(x).mean(1))))


def adapted() -> nn.Module:
    return lora(Projected(), rank=2, targets=["query", "value"], train=["head"])


MODULES: dict[str, tuple[Callable[[], nn.Module], bool, dict[type, int]]] = {
    "transformer": (TokenTransformer, True, {Lookup: 2, Product: 5}),
    "own attention": (Projected, True, {Lookup: 1, Product: 4}),
    "adapters": (adapted, True, {Product: 3}),
    "recurrence": (TokenLSTM, True, {Lookup: 1, Product: 3}),
    "weights used twice": (TiedWeights, False, {Product: 2}),
    "residual": (Residual, False, {Product: 2}),
    "next word": (NextWord, True, {LookupAndProduct: 1, Product: 1}),
    "filters": (Filters, False, {Patches: 2, Product: 1}),
}


def made(name: str) -> nn.Module:
    torch.manual_seed(3)
    return MODULES[name][0]()


def batch(name: str, count: int = 70) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(0, 5, (count, 6), generator=generator)  # most occur more than once
    numbers = torch.randn(count, 8, generator=generator)
    return (tokens if MODULES[name][1] else numbers), torch.arange(count) % 3


def clipped_by_autograd(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Σ_j clip(∇f_j) in grid steps, one record after the other in float64."""
    model = model.double()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    total = torch.zeros(sum(parameter.numel() for parameter in trained), dtype=torch.float64)
    for record in range(len(x)):
        rows = x[record : record + 1]
        logits = model(rows.double() if rows.is_floating_point() else rows)
        loss = functional.cross_entropy(logits, y[record : record + 1])
        gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, trained)])
        total += gradient * RESOLUTION / max(1.0, float(gradient.norm()))
    return total


REPEATED = ("own attention", "residual")  # layers that other modules have too


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name in REPEATED)) for name in MODULES],
)
def test_factors_give_the_gradients_of_autograd(name: str) -> None:
    model, (x, y) = made(name), batch(name)
    if name == "adapters":  # at B = 0 the adapters' own gradients are all that moves
        torch.manual_seed(1)
        for parameter in model.parameters():
            parameter.data.add_(0.3 * torch.randn_like(parameter) * parameter.requires_grad)
    gradients, theta = PerRecordGradients(model), flat_parameters(model)
    sums = {
        rounding: gradients.clipped_sum(
            theta, x, y, clip_norm=1.0, resolution=RESOLUTION, rounding=rounding
        ).integers
        for rounding in ("record", "sum")
    }
    assert gradients.path == "vmap"
    (recorded,) = gradients._path._recorded.values()  # type: ignore[union-attr]
    kinds = [type(how) for how in recorded.undone.values()]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == MODULES[name][2]
    expected = clipped_by_autograd(model, x, y)
    # a step of truncation a record, and float32's digits
    assert (sums["record"] - expected).abs().max() <= len(x) * 1.2
    assert (sums["sum"] - expected).abs().max() <= len(x) * 0.2 + 1


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([-1, 0, 3]))
def test_a_table_that_is_used_twice_has_no_coordinate_in_both_parts(
    seed: int, padding: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    entries = torch.randn(3, 7, 2, generator=generator, dtype=torch.float64)
    tokens = torch.randint(0, 4, (3, 7), generator=generator)
    delta = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    head = torch.randn(3, 2, generator=generator, dtype=torch.float64)
    part = Tied.of((entries, tokens), (delta, head), padding=padding)
    dense = torch.einsum("nr,nw->nrw", delta, head)
    for record in range(3):
        for position in range(7):
            if tokens[record, position] != padding:
                dense[record, tokens[record, position]] += entries[record, position]
    assert torch.allclose(part.as_rows(), dense.flatten(1), atol=1e-12)
    assert not (part.product.as_rows() * part.tokens.as_rows()).any()
    norms2, scale = np.zeros(3), np.array([0.0, 50.0, 70.0])
    part.add_norms2(norms2)
    assert np.allclose(norms2, dense.square().sum((1, 2)), rtol=1e-12)
    grid, total = np.zeros(part.size, np.int32), torch.zeros(part.size, dtype=torch.float64)
    part.add_truncated(scale, 0, grid)
    rows = dense.flatten(1).numpy() * scale[:, None]
    assert (
        np.abs(grid - np.trunc(rows).sum(0)).max() <= 1
    )  # products that are whole but for rounding
    part.add_weighted(scale, total)
    assert np.allclose(total, rows.sum(0))
    sums = np.zeros((2, 1 + part.size))
    part.add_to_units(slice(0, 3), scale, np.array([0, 1, 1]), 1, sums)
    assert np.allclose(sums[1, 1:], rows.sum(0))
    assert not sums[0].any()


def test_a_token_outside_of_a_table_that_is_used_twice_makes_its_record_not_finite() -> None:
    entries, tokens = torch.ones(2, 3, 2), torch.tensor([[1, 0, 9], [1, 0, 2]])
    part = Tied.of((entries, tokens), (torch.ones(2, 4), torch.ones(2, 2)), padding=-1)
    norms2 = np.zeros(2)
    part.add_norms2(norms2)
    assert np.isfinite(norms2).tolist() == [False, True]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64]))
def test_touched_rows_are_the_dense_gradient(seed: int, kind: type) -> None:
    generator = np.random.default_rng(seed)
    deltas = generator.standard_normal((3, 7, 2)).astype(kind)
    tokens = generator.integers(0, 4, (3, 7))
    part = Tokens.of(torch.from_numpy(deltas), torch.from_numpy(tokens), rows=5, padding=3)
    dense = np.zeros((3, 5, 2))
    for record in range(3):
        for position in range(7):
            if tokens[record, position] != 3:
                dense[record, tokens[record, position]] += deltas[record, position]
    rows = part.as_rows()
    assert np.array_equal(rows.numpy(), dense.astype(kind).reshape(3, -1))
    stored, scale = Rows(rows), generator.random(3) * 1000
    integers = _of(lambda out: part.add_truncated(scale, 0, out), 10, np.int32)
    assert np.array_equal(
        integers, np.trunc(rows.double().numpy() * scale[:, None]).sum(0).astype(np.int32)
    )
    weighted = [torch.zeros(10, dtype=torch.float64) for _ in range(2)]
    part.add_weighted(scale, weighted[0])
    stored.add_weighted(scale, weighted[1])
    assert torch.equal(*weighted)
    units = [np.zeros((2, 13)) for _ in range(2)]
    slots, weights = np.array([0, 0, 1]), generator.random(3) / 2
    part.add_to_units(slice(0, 3), weights, slots, 2, units[0])
    stored.add_to_units(slice(0, 3), weights, slots, 2, units[1])
    assert np.array_equal(*units)
    norms = [_of(p.add_norms2, 3, np.float64) for p in (part, stored)]
    assert np.allclose(*norms, rtol=1e-12)


def _of(fill: Callable[[np.ndarray], None], size: int, kind: type) -> np.ndarray:
    out = np.zeros(size, kind)
    fill(out)
    return out


def test_a_factor_that_is_written_into_later_is_the_one_of_its_product() -> None:
    def single(weights: dict[str, torch.Tensor], x: torch.Tensor) -> dict[str, torch.Tensor]:
        delta, entered = x[:, :2] * 1.0, x[:, 2:] * 1.0
        product = delta.t().mm(entered)
        delta.add_(1.0)
        return {"product": product, "later": delta}

    x = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    recorded = chunk_function(single, {}, x, factors=True)
    assert recorded.undone == {"product": Product()}
    results = recorded({}, x)
    deltas, entered = (results[name] for name in factor_names("product"))
    assert torch.equal(deltas, x[..., :2])
    assert torch.equal(entered, x[..., 2:])
    assert torch.equal(results["later"], x[..., :2] + 1.0)


def test_a_product_that_is_turned_round_has_its_factors_exchanged() -> None:
    def single(weights: dict[str, torch.Tensor], x: torch.Tensor) -> dict[str, torch.Tensor]:
        left, right = x[:, :2] * 1.0, x[:, 2:] * 1.0
        return {"product": left.t().mm(right).t()}

    x = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    recorded = chunk_function(single, {}, x, factors=True)
    deltas, entered = (recorded({}, x)[name] for name in factor_names("product"))
    assert torch.equal(deltas, x[..., 2:])
    assert torch.equal(entered, x[..., :2])


def test_a_chunk_holds_as_many_records_as_memory_allows() -> None:
    torch.manual_seed(0)
    model = lora(Projected(), rank=1, targets=["value"])
    x = torch.randint(1, VOCABULARY, (10, 160))
    y = torch.arange(10) % 3
    chunks = {}
    for cap in (1 << 21, 1 << 30):
        gradients = PerRecordGradients(model, memory_cap_bytes=cap)
        step = gradients.clipped_sum(
            flat_parameters(model), x, y, clip_norm=1.0, resolution=RESOLUTION
        )
        chunks[cap] = (gradients._examined._chunks.popitem()[1][0], step.integers)
    # scores of 160 × 160 positions a record, several of them alive at once
    assert 1 <= chunks[1 << 21][0] <= (1 << 21) // (4 * 160 * 160)
    assert chunks[1 << 30][0] == 64
    assert torch.allclose(chunks[1 << 21][1].double(), chunks[1 << 30][1].double(), atol=10)


def test_the_zoo_has_factors_wherever_a_layer_is_torchs_own() -> None:
    entry = module_zoo.PURE["a transformer with masks on tokens"]
    model = entry.make()
    gradients = PerRecordGradients(model)
    gradients.digest(entry.records(2), torch.arange(2))
    (recorded,) = gradients._path._recorded.values()  # type: ignore[union-attr]
    matrices = [name for name, part in model.named_parameters() if part.dim() == 2]
    assert set(recorded.undone) == set(matrices)
