"""A record wants to move the sum further than its clip norm by saying one word again and again.

A table's gradient of a record is added up from its positions. Whoever took the squares of the
positions for the square of their sum would clip a record of T equal tokens as if it were √T times
shorter than it is. The defence: positions of one token become one entry before anything is measured
(`Tokens.of`); and a token that no table holds silences its record, wherever it came from.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from sumus.gradients import PerRecordGradients
from sumus.gradients.parts import Tokens
from sumus.training import flat_parameters
from support.module_zoo import VOCABULARY

RESOLUTION = 1 << 16
POSITIONS = 16


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(VOCABULARY, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(x).sum(1))


def longest(tokens: torch.Tensor) -> float:
    """How far the longest of these records moves the sum, in clip norms."""
    torch.manual_seed(0)
    model = Bag()
    model.head.requires_grad_(False)
    gradients, theta = PerRecordGradients(model), 3.0 * flat_parameters(model)
    moved = []
    for record in range(len(tokens)):
        rows = tokens[record : record + 1]
        step = gradients.clipped_sum(
            theta, rows, torch.zeros(1), clip_norm=0.01, resolution=RESOLUTION
        )
        moved.append(float(step.integers.double().norm()) / RESOLUTION)
    return max(moved)


REPEATED = torch.arange(VOCABULARY)[:, None].expand(VOCABULARY, POSITIONS).contiguous()


def test_a_word_that_is_said_again_counts_for_one_record() -> None:
    assert 0.9 < longest(REPEATED) <= 1.0


def test_control_squares_of_positions_let_it_count_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unmerged(deltas: torch.Tensor, tokens: torch.Tensor, *, rows: int, padding: int) -> Tokens:
        return Tokens(deltas.contiguous(), tokens.contiguous(), rows)

    monkeypatch.setattr(Tokens, "of", unmerged)
    assert longest(REPEATED) > 2.0


@pytest.mark.parametrize("token", [-1, 5, 2**40])
def test_a_token_outside_of_the_table_silences_its_record_only(token: int) -> None:
    deltas = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    tokens = torch.tensor([[0, 1], [0, token], [4, 4]])
    part = Tokens.of(deltas, tokens, rows=5, padding=-2)
    norms2 = np.zeros(3)
    part.add_norms2(norms2)
    assert np.isfinite(norms2).tolist() == [True, False, True]
    assert bool(((part.places >= 0) & (part.places < 5)).all())
    total = np.zeros(20, np.int32)
    part.add_truncated(np.where(np.isfinite(norms2), 100.0, 0.0), 0, total)
    alone = np.zeros(20, np.int32)
    Tokens.of(deltas[::2], tokens[::2], rows=5, padding=-2).add_truncated(
        np.full(2, 100.0), 0, alone
    )
    assert np.array_equal(total, alone)
