"""A user's function must be pure: what it makes of a record may depend on that record and on public
numbers alone.

Made-up records a, b, a, … are computed one by one. The function is refused if a's bits change, if
anything that it can remember has another value afterwards (`held_state`), if one of the process's
random generators has moved, or if records in company get other values. These checks say what is
wrong while it can be mended; that nothing is carried between real records rests on `recording`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from sumus.errors import GuaranteeError
from sumus.purity.held_state import changed, generator_states, held

__all__ = ["RECORDS", "bits_of", "refuse_state", "require_apart", "require_pure", "same_bits"]

RECORDS = 3
"""Made-up records that the checks need."""
_CALLS = (0, 1, 0, 2, 1, 0, 0, 2, 2, 1, 0, 1)
_TRIES = 3  # another thread of the process may draw from a generator meanwhile
# of the largest value: far above rounding, far below what a mean over records does
_TOLERANCE = 1e-2

Outcome = list[torch.Tensor]


def require_pure(
    compute: Callable[[int], Outcome], *, watched: Mapping[str, object], what: str
) -> list[Outcome]:
    """Raise unless a function keeps nothing between calls; returns what it makes of each made-up
    record.

    Args:
        compute: what the function makes of the made-up record with this number, alone.
        watched: where it could keep something, by name; the function itself under "".
        what: the function's name in messages.
    """
    drawn: str | None = None
    for _ in range(_TRIES):
        before, generators = held(watched), generator_states()
        outcomes = [bits_of(compute(record)) for record in _CALLS]
        place, drawn = changed(before, held(watched)), changed(generators, generator_states())
        refuse_state(place, what)
        if drawn is None:
            break
    if drawn is not None:
        fix = "Remove the random numbers or call eval() on the layer that draws them"
        raise GuaranteeError(
            f"{what} draws from {drawn} in its forward pass, which records would share. {fix}."
        )
    _refuse_memory(outcomes, what)
    return [compute(record) for record in range(RECORDS)]


def refuse_state(place: str | None, what: str) -> None:
    """What a function can reach must have the values that it had."""
    if place is not None:
        rule = "so what a record contributes would depend on the records before it"
        fix = "Compute everything from the input and the parameters"
        raise GuaranteeError(f"{what} changes {place} in its forward pass, {rule}. {fix}.")


def _refuse_memory(outcomes: Sequence[bytes], what: str) -> None:
    """A record must have the same bits whatever was computed before it."""
    first: dict[int, bytes] = {}
    if any(
        first.setdefault(record, outcome) != outcome
        for record, outcome in zip(_CALLS, outcomes, strict=True)
    ):
        rule = "other values after another one was computed, so records would see each other"
        raise GuaranteeError(
            f"{what} gives a record {rule}. Compute everything from the input and the parameters."
        )


def require_apart(
    alone: Sequence[torch.Tensor], together: Sequence[torch.Tensor], *, what: str, why: str
) -> None:
    """Raise if values differ by more than rounding can explain."""
    for expected, actual in zip(alone, together, strict=True):
        scale = (
            float(torch.nan_to_num(expected.detach().double()).abs().max())
            if expected.numel()
            else 0.0
        )
        same = torch.isclose(
            expected.double(),
            actual.double(),
            rtol=_TOLERANCE,
            atol=_TOLERANCE * (scale + 1e-30),
            equal_nan=True,
        )
        if expected.shape != actual.shape or not bool(same.all()):
            raise GuaranteeError(f"{what} {why}.")


def same_bits(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether two lists of tensors hold the same bits, NaNs and signs of zeros included."""
    return bits_of(first) == bits_of(second)


def bits_of(tensors: Sequence[torch.Tensor]) -> bytes:
    """A digest of shapes, types and bits."""
    digest = hashlib.blake2b()
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
        row = tensor.detach().clone(memory_format=torch.contiguous_format).flatten()
        digest.update(row.view(torch.uint8).numpy().data)
    return digest.digest()
