"""A function of one record, recorded for chunks of records of one shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import final

import torch
from torch.func import functionalize, vmap

from sumus.errors import GuaranteeError
from sumus.purity.recording import Recorded, record
from sumus.purity.undone import Undone

__all__ = ["ChunkFunction", "chunk_function"]

Weights = Mapping[str, torch.Tensor]
Single = Callable[..., dict[str, torch.Tensor]]
"""(weights, one record's tensors …) → named tensors."""


@final
class ChunkFunction:
    """What a recorded function makes of every record of a chunk, records first.

    Guarantee: a record's share is a function of the weights and of that record, up to the company
        that `isolation` tests for. A record at which an operator fails (a token that no table
        holds) has NaN everywhere; it stops nobody and changes nobody else's share.

    Args:
        recorded: of a whole chunk.
        chunk: records in it.
        rows: the made-up chunk that it was recorded on.
        undone: results of which the factors are returned.
    """

    def __init__(
        self,
        recorded: Recorded,
        weights: Weights,
        rows: tuple[torch.Tensor, ...],
        undone: Undone | None = None,
    ) -> None:
        self._recorded, self._rows = recorded, rows
        self.chunk, self.undone = len(rows[0]), undone or {}
        self._blank = {
            name: torch.full_like(part[:1], torch.nan if part.is_floating_point() else 0)
            for name, part in recorded(dict(weights), *rows).items()
        }

    def __call__(self, weights: Weights, *rows: torch.Tensor) -> dict[str, torch.Tensor]:
        shared = dict(weights)
        try:
            return self._whole(shared, rows)
        except (RuntimeError, IndexError, ValueError):
            # what fails on made-up records, too, is no record's fault
            self._whole(shared, self._rows)
            shares = [self._alone(shared, rows, place) for place in range(self.chunk)]
            return {name: torch.cat([share[name] for share in shares]) for name in self._blank}

    def digest(self) -> bytes:
        """Of the operators and constants that run."""
        return self._recorded.digest()

    def _whole(self, weights: Weights, rows: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = self._recorded(weights, *rows)
        return found

    def _alone(
        self, weights: Weights, rows: tuple[torch.Tensor, ...], place: int
    ) -> dict[str, torch.Tensor]:
        """One record's share from a chunk that is filled with it."""
        filled = tuple(row[place : place + 1].expand_as(row).clone() for row in rows)
        try:
            return {name: part[:1] for name, part in self._whole(weights, filled).items()}
        except (RuntimeError, IndexError, ValueError):
            return self._blank


def chunk_function(
    single: Single,
    weights: Weights,
    *rows: torch.Tensor,
    what: str = "model",
    factors: bool = False,
    most_bytes: int | None = None,
    aligned: bool = False,
) -> ChunkFunction:
    """Record a function of one record for chunks like the made-up one; for single records if `vmap`
    cannot take its operators together.

    Guarantee: the function itself is called with one record, once. Chunks are made of what was
        recorded then, so that no code of its own can tell a chunk from a record.

    Args:
        single: (weights, one record's tensors without the batch) → tensors.
        rows: a made-up chunk, one tensor for each argument of `single` after the weights.
        what: the function's name in messages.
        factors: whether factors are returned where the last operator is a product (`undone`).
        most_bytes: that a chunk's results may take while it runs; a smaller chunk is recorded if
            the made-up one would need more.
        aligned: whether products are filled up to widths at which rows are treated alike.
    """

    def untouched(shared: Weights, *parts: torch.Tensor) -> dict[str, torch.Tensor]:
        # it may write into its input, or look at the memory beside it
        return single(shared, *(part.clone() for part in parts))

    one = record(untouched, dict(weights), *(row[0].clone() for row in rows), what=what)
    undone: Undone = {}
    if factors:
        one, undone = one.with_factors()
    if most_bytes is not None:
        fitting = _power_of_two(most_bytes // max(one.peak_bytes, 1))
        rows = tuple(row[:fitting].clone() for row in rows)
    plain = one.in_plain_layout().operators

    def together(
        operators: Single, shared: Weights, *batch: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        by_record = vmap(operators, in_dims=(None, *(0 for _ in batch)), randomness="error")
        found: dict[str, torch.Tensor] = by_record(shared, *batch)
        return found

    def alone(shared: Weights, *batch: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            name: part[None]
            for name, part in one.operators(shared, *(row[0] for row in batch)).items()
        }

    # operators that write into what is shared by all records (a recurrence into its first state)
    # have no rule for batches; the same ones without writing have
    for operators in () if one.looks_across else (plain, functionalize(plain, remove="mutations")):
        try:
            recorded = record(partial(together, operators), dict(weights), *rows, what=what)
            if aligned:
                recorded = record(recorded.aligned, dict(weights), *rows, what=what)
            return ChunkFunction(recorded, weights, rows, undone)
        except GuaranteeError:
            continue  # an operator without a rule for batches
    first = tuple(row[:1].clone() for row in rows)
    return ChunkFunction(record(alone, dict(weights), *first, what=what), weights, first, undone)


def _power_of_two(most: int) -> int:
    """The largest one up to a number, at least 1: kernels like round sizes."""
    return 1 << max(most, 1).bit_length() - 1
