"""Stored Jacobians are the derivatives that torch computes, whichever way they are kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

from sumus.gradients import StoredChunk, Tangents, stored_tangents
from sumus.gradients.stored_tangents import Product, Table
from sumus.purity import Form, InputKind
from sumus.tasks import TASKS


class Gated(nn.Module):
    """No chain: everything is kept as a table."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.first(x)
        outputs: torch.Tensor = self.second(hidden.tanh() * hidden.sigmoid())
        return outputs


def _frozen_first() -> nn.Module:
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    return _unfrozen(model, ("2", "4"))


def _unfrozen(model: nn.Sequential, names: tuple[str, ...]) -> nn.Module:
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith(names))
    return model


MODELS = {
    "factors": (
        lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3, bias=False)),
        {2},
    ),
    "frozen first layer": (_frozen_first, {2}),
    "weights without their bias": (
        lambda: _unfrozen(nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), ("0.w", "2")),
        {1},
    ),
    "no chain": (Gated, {0}),
}


def _all_of(
    tangents: Tangents, flat: np.ndarray, x: torch.Tensor
) -> tuple[np.ndarray, list[Product | Table]]:
    """Of all records, chunk by chunk."""
    chunks = [tangents.of(flat, each) for each in x.split(min(tangents.chunk, 2))]
    joined: list[Product | Table] = []
    for same in zip(*(parts for _, parts in chunks), strict=True):
        first = same[0]
        if isinstance(first, Product):
            left, right = (np.concatenate([getattr(p, n) for p in same]) for n in ("left", "right"))
            joined.append(Product(first.start, left, right, first.bias))
        else:
            joined.append(Table(first.start, np.concatenate([p.rows for p in same])))
    return np.concatenate([outputs for outputs, _ in chunks]), joined


@pytest.mark.parametrize("name", MODELS)
def test_a_jacobian_is_what_torch_says(name: str) -> None:
    torch.manual_seed(0)
    make, factored = MODELS[name]
    model = make()
    kind = InputKind.of(model)
    tangents = Tangents(model, TASKS["classification"], kind, Form((5,)))
    trained = {key: each for key, each in model.named_parameters() if each.requires_grad}
    flat = torch.cat([each.detach().reshape(-1) for each in trained.values()]).double().numpy()
    flat = flat + 0.1
    x = torch.randn(3, 5)
    outputs, parts = _all_of(tangents, flat, x)
    assert {sum(isinstance(part, Product) for part in parts)} == factored
    assert sum(part.size for part in parts) == len(flat) == tangents.dimension

    def of_flat(vector: torch.Tensor) -> torch.Tensor:
        pieces = vector.split([each.numel() for each in trained.values()])
        named = {key: p.view_as(trained[key]) for key, p in zip(trained, pieces, strict=True)}
        result: torch.Tensor = functional_call(model, named, (x,))
        return result

    point = torch.from_numpy(flat).float()
    np.testing.assert_allclose(outputs, of_flat(point).detach().numpy(), rtol=1e-5, atol=1e-6)
    expected = jacrev(of_flat)(point).detach().double().numpy()
    units = np.eye(len(flat))
    ours = np.stack([sum(part.apply(u, slice(0, 3)) for part in parts) for u in units], axis=2)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6)
    residuals, gradient = np.random.default_rng(0).normal(size=(3, 3)), np.zeros(len(flat))
    for part in parts:
        part.add_pulled(residuals, slice(0, 3), gradient)
    np.testing.assert_allclose(gradient, np.einsum("rk,rkd->d", residuals, ours), atol=1e-9)
    gram = sum(part.gram() for part in parts)
    np.testing.assert_allclose(gram, ours @ ours.transpose(0, 2, 1), atol=1e-9)


def test_a_table_and_its_factors_are_the_same_map() -> None:
    rng = np.random.default_rng(1)
    left, right = rng.normal(size=(4, 3, 2)), rng.normal(size=(4, 5))
    rows = np.einsum("rko,ri->rkoi", left, right)
    table = Table(0, rows.reshape(4, 3, 10))
    product = Product(0, left, right, bias=False)
    move = rng.normal(size=10)
    every = slice(0, 4)
    np.testing.assert_allclose(product.apply(move, every), table.apply(move, every), atol=1e-12)
    np.testing.assert_allclose(product.gram(), table.gram(), atol=1e-12)


def test_what_is_stored_of_a_record_has_the_same_bits_in_any_company() -> None:
    rng = np.random.default_rng(4)
    left, right = rng.normal(size=(40, 10, 33)), rng.normal(size=(40, 65))
    rows, z = rng.normal(size=(40, 10, 71)), rng.normal(size=(40, 10))

    def stored(chosen: np.ndarray) -> StoredChunk:
        parts = (Product(0, left[chosen], right[chosen], bias=True), Table(2145, rows[chosen]))
        return StoredChunk.within(
            z[chosen],
            parts,
            compared=True,
            jacobian_norm=1.0,
            whole_norm=6.0,
            outputs_norm=4.0,
        )

    whole = stored(np.arange(40))
    for chosen in (np.arange(7), np.array([39, 3]), np.array([17])):
        some = stored(chosen)
        assert np.array_equal(some.scales, whole.scales[chosen])
        assert np.array_equal(some.outputs, whole.outputs[chosen])
        for part, every in zip(some.parts, whole.parts, strict=True):
            if isinstance(part, Product) and isinstance(every, Product):
                assert np.array_equal(part.left, every.left[chosen])
            elif isinstance(part, Table) and isinstance(every, Table):
                assert np.array_equal(part.rows, every.rows[chosen])


@pytest.mark.parametrize("seen", ["company", "length"])
def test_where_bounds_of_a_record_depend_on_company_records_are_taken_one_by_one(
    seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matrix products of another library might sum otherwise in a longer chunk, or beside others."""
    reach = stored_tangents._jacobian_reach

    def mixed(gram: np.ndarray, **bounds: object) -> np.ndarray:
        other = np.nan_to_num(gram).sum() % 1.0 if seen == "company" else float(len(gram))
        return reach(gram, **bounds) * (1.0 + 1e-9 * other)

    def chunk(width: int) -> int:
        """Of a model that was not looked at before."""
        model, form = nn.Sequential(nn.Linear(width, 3)), Form((width,))
        return Tangents(model, TASKS["classification"], InputKind.of(model), form).chunk

    width = 16 if seen == "company" else 48
    assert chunk(width) > 1
    monkeypatch.setattr(stored_tangents, "_jacobian_reach", mixed)
    assert chunk(width + 16) == 1
