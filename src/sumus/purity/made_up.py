"""Made-up records: what a model is tried on before it sees a real one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import nn

__all__ = ["Form", "InputKind", "made_up_labels"]


@final
@dataclass(frozen=True)
class Form:
    """The form of records.

    Args:
        shape: of one record.
        whole: whether it reaches the model as whole numbers.
        labels: shape of one record's label.
    """

    shape: tuple[int, ...]
    whole: bool = False
    labels: tuple[int, ...] = ()


@final
@dataclass(frozen=True)
class InputKind:
    """What a model takes: real numbers in its own precision, or whole numbers such as tokens.

    Args:
        dtype: of the model's parameters.
        vocabulary: made-up whole numbers lie in 0 … vocabulary − 1; None: the model takes real
            numbers only.
        limit: every whole number of a real record must lie below it.
    """

    dtype: torch.dtype
    vocabulary: int | None = None
    limit: int | None = None

    @classmethod
    def of(cls, model: nn.Module, vocabulary: int | None = None) -> InputKind:
        """Read off a model: a declared vocabulary counts, else the sizes of its embeddings, which
        are as public as the model.
        """
        dtype = next(
            (parameter.dtype for parameter in model.parameters() if parameter.requires_grad),
            torch.float32,
        )
        sizes = [
            module.num_embeddings
            for module in model.modules()
            if isinstance(module, nn.Embedding | nn.EmbeddingBag)
        ]
        if vocabulary is not None:
            return cls(dtype, vocabulary, vocabulary)
        return cls(dtype, min(sizes), max(sizes)) if sizes else cls(dtype)

    def cast(self, x: torch.Tensor) -> torch.Tensor:
        """Records as the model takes them: whole numbers stay whole if it knows what to do with
        them.
        """
        return x.to(self.dtype) if x.is_floating_point() or self.vocabulary is None else x.long()

    def form(self, x: torch.Tensor, y: torch.Tensor | None = None) -> Form:
        """The form in which these records reach the model."""
        whole = self.vocabulary is not None and not x.is_floating_point()
        return Form(tuple(x.shape[1:]), whole, () if y is None else tuple(y.shape[1:]))

    def records(self, count: int, form: Form, *, seed: int = 0) -> torch.Tensor:
        """Made-up records; for a model with embeddings real ones hold whole numbers too, which it
        may look up.
        """
        generator = torch.Generator().manual_seed(seed)
        if self.vocabulary is None:
            return torch.randn(count, *form.shape, generator=generator, dtype=self.dtype)
        numbers = torch.randint(0, self.vocabulary, (count, *form.shape), generator=generator)
        return numbers if form.whole else numbers.to(self.dtype)

    def company(self) -> tuple[float, ...]:
        """Values of neighbours that would show if records saw each other."""
        return (
            (0.0, 1e30, float("nan")) if self.vocabulary is None else (0.0, self.vocabulary - 1.0)
        )


def made_up_labels(count: int, form: Form, outputs: int) -> torch.Tensor:
    """Labels of made-up records, one class after the other."""
    classes = torch.arange(count) % max(outputs, 2)
    return (
        classes.reshape(count, *(1 for _ in form.labels)).expand(count, *form.labels).contiguous()
    )
