"""Modules that users write: pure functions of one record in every style, and modules that carry
something from record to record.

Pure ones come with the form of their records; impure ones with the words that must stand in the
refusal.
"""

from __future__ import annotations

import functools
import logging
import os
import random
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

CLASSES = 3
VOCABULARY = 20
SCALE = torch.tensor([0.5, -1.0, 2.0])  # a public constant that a pure module reads
calls = 0
backward_calls = 0


@dataclass(frozen=True)
class Pure:
    """A module that must be accepted.

    Args:
        make: the module.
        shape: of a record.
        tokens: whether records are whole numbers below VOCABULARY.
        logits: the plan's key for modules that return more than logits.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...] = (8,)
    tokens: bool = False
    logits: str | None = None

    def records(self, count: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(5)
        if self.tokens:
            return torch.randint(0, VOCABULARY, (count, *self.shape), generator=generator)
        return torch.randn(count, *self.shape, generator=generator)


class Live:
    """A function as it is in the place of what was recorded of it."""

    looks_across = False
    peak_bytes = 0

    def __init__(self, function: Callable[..., object]) -> None:
        self.operators = function

    def __call__(self, *arguments: object) -> object:
        return self.operators(*arguments)

    def in_plain_layout(self) -> Live:
        return self

    def aligned(self, *arguments: object) -> object:
        return self.operators(*arguments)

    def with_factors(self) -> tuple[Live, dict[str, object]]:
        return self, {}


def own(forward: Callable[..., torch.Tensor], **layers: nn.Module) -> nn.Module:
    """A module with these layers and this forward(self, x)."""
    kind = type("Own", (nn.Module,), {"forward": forward, "__module__": __name__})
    module: nn.Module = kind()
    for name, layer in layers.items():
        module.add_module(name, layer)
    return module


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.head = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x + torch.tanh(self.norm(self.inner(x))))


class TokenLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.cell, self.head = (
            nn.Embedding(VOCABULARY, 6),
            nn.LSTM(6, 7, batch_first=True),
            nn.Linear(7, CLASSES),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(self.table(x))[0][:, -1])


class TokenTransformer(nn.Module):
    """With a padding mask and a table of positions; token 0 is padding, the first place is never
    masked.
    """

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.table, self.places = nn.Embedding(VOCABULARY, 8, padding_idx=0), nn.Embedding(6, 8)
        self.body, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padding = (x == 0) & (torch.arange(x.shape[1]) > 0)
        hidden = self.body(
            self.table(x) + self.places(torch.arange(x.shape[1])), src_key_padding_mask=padding
        )
        return self.head(hidden[:, 0])


class TiedWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Constants(nn.Module):
    """Reads a buffer, a plain tensor, a number, a closure and a global."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, CLASSES)
        self.register_buffer("table", torch.linspace(0.0, 1.0, 8))
        self.shift, self.factor = torch.ones(8), 0.5
        offset = [0.25]
        self.curve = lambda x: torch.sin(x + offset[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.curve(self.factor * x + self.table - self.shift)) * SCALE


class Cubed(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        ctx.save_for_backward(inputs[0])  # type: ignore[attr-defined]

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return 3 * ctx.saved_tensors[0] ** 2 * gradient  # type: ignore[attr-defined]


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = (
            nn.Linear(8, 4),
            nn.ModuleList(nn.Linear(8, CLASSES) for _ in range(4)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answers = torch.stack([expert(x) for expert in self.experts], dim=1)
        return torch.einsum("be,bec->bc", torch.softmax(self.gate(x), 1), answers)


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = torch.compile(nn.Linear(8, 8)), nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.inner(x)))


def frozen_trunk() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    model[0].requires_grad_(False)
    return model


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, CLASSES))
    model.register_forward_hook(lambda module, arguments, output: 0.5 * output)
    return model


def convolutions(*norms: nn.Module) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        *norms,
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


IMAGE = (1, 7, 7)
PURE: dict[str, Pure] = {
    "a chain with an inplace activation": Pure(lambda: nn.Sequential(nn.Linear(8, 6), nn.ReLU(inplace=True), nn.Linear(6, CLASSES))),
    "convolutions with an inplace activation": Pure(lambda: convolutions(), IMAGE),
    "an activation that overwrites the record": Pure(
        lambda: own(lambda self, x: self.head(functional.relu_(x)), head=nn.Linear(8, CLASSES))
    ),
    "double precision": Pure(lambda: Residual().double()),
    "a chain in double precision": Pure(lambda: nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, CLASSES)).double()),
    "tables of positions made when first needed": Pure(lambda: Positions(), (5, 4)),
    "a frozen trunk": Pure(frozen_trunk),
    "batch norm with frozen statistics": Pure(lambda: convolutions(nn.BatchNorm2d(4)).eval(), IMAGE),
    "dropout in evaluation mode": Pure(lambda: nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.5), nn.Linear(6, CLASSES)).eval()),
    "dropout at rate 0": Pure(lambda: nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.0), nn.Linear(6, CLASSES))),
    "group norm": Pure(lambda: convolutions(nn.GroupNorm(2, 4)), IMAGE),
    "instance norm": Pure(lambda: convolutions(nn.InstanceNorm2d(4)), IMAGE),
    "layer norm in a residual block": Pure(Residual),
    "a bag of words": Pure(
        lambda: own(lambda self, x: self.head(self.table(x).mean(1)), table=nn.Embedding(VOCABULARY, 5), head=nn.Linear(5, CLASSES)),
        (6,), tokens=True,
    ),
    "an LSTM on tokens": Pure(TokenLSTM, (6,), tokens=True),
    "a transformer with masks on tokens": Pure(TokenTransformer, (6,), tokens=True),
    "a transformer with dropout in evaluation mode": Pure(lambda: TokenTransformer(0.1).eval(), (6,), tokens=True),
    "a GRU on a series": Pure(
        lambda: own(lambda self, x: self.head(self.cell(x)[0][:, -1]), cell=nn.GRU(2, 5, batch_first=True), head=nn.Linear(5, CLASSES)),
        (4, 2),
    ),
    "a GRU cell": Pure(lambda: own(lambda self, x: self.head(self.cell(x)), cell=nn.GRUCell(8, 5), head=nn.Linear(5, CLASSES))),
    "attention": Pure(
        lambda: own(
            lambda self, x: self.head(self.attend(x, x, x)[0].mean(1)),
            attend=nn.MultiheadAttention(4, 2, batch_first=True), head=nn.Linear(4, CLASSES),
        ),
        (5, 4),
    ),
    "a compiled module": Pure(lambda: torch.compile(Residual())),
    "a module with a compiled part": Pure(Nested),
    "tied weights": Pure(TiedWeights),
    "spectral norm in evaluation mode": Pure(
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 6)), nn.Tanh(), nn.Linear(6, CLASSES)).eval()
    ),
    "weight norm": Pure(lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 6)), nn.Linear(6, CLASSES))),
    "constants in every place": Pure(Constants),
    "a derivative of one's own": Pure(lambda: own(lambda self, x: self.head(Cubed.apply(x)), head=nn.Linear(8, CLASSES))),
    "one logit": Pure(lambda: own(lambda self, x: self.head(torch.sin(x)), head=nn.Linear(8, 1))),
    "a series through a convolution": Pure(
        lambda: own(lambda self, x: self.head(torch.tanh(self.filter(x)).amax(2)), filter=nn.Conv1d(2, 5, 3), head=nn.Linear(5, CLASSES)),
        (2, 9),
    ),
    "a mixture of experts": Pure(Experts),
    "a forward hook": Pure(hooked),
    "a module for single records": Pure(lambda: own(lambda self, x: self.head(x.view(1, 8)), head=nn.Linear(8, CLASSES))),
    "a dictionary with a stated key": Pure(
        lambda: own(lambda self, x: {"hidden": x, "scores": self.head(x)}, head=nn.Linear(8, CLASSES)), logits="scores"  # type: ignore[dict-item, return-value, arg-type]
    ),
    "a tuple with a stated place": Pure(
        lambda: own(lambda self, x: (x, self.head(x)), head=nn.Linear(8, CLASSES)), logits="1"  # type: ignore[return-value, arg-type]
    ),
}  # fmt: skip


class Layer(nn.Module):
    """Between eight numbers and eight numbers."""


class Normaliser(Layer):
    """A running mean in a plain attribute: batch norm as users write it once batch norm is
    refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.zeros(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.95 * self.mean + 0.05 * x.detach().mean(0)
        return x - self.mean


class Alternating(Layer):
    """Flips a sign every second call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x if self.calls % 2 else -x


class Echo(Layer):
    """Adds the last record's activation to the next one's."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(1, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x + 0.5 * self.last[-1:]
        self.last = x.detach()
        return hidden


class WarmUp(Layer):
    """Grows over its first thousand calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * min(1.0, self.calls / 1000)


class LayerDrop(Layer):
    """Leaves itself out in two calls of a hundred, by python's own generator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if random.random() < 0.02 else torch.tanh(x)


class NumpyNoise(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + float(np.random.normal())


class TorchDropout(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x, 0.1)


class OwnGenerator(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.source = np.random.default_rng(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * float(self.source.random())


class SecretNoise(Layer):
    """Randomness that no state betrays."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + secrets.randbelow(1 << 40) / (1 << 40)


class GlobalCounter(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global calls
        calls += 1
        return x if calls < 1000 else -x


class ClassCounter(Layer):
    seen = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        type(self).seen += 1
        return x if self.seen < 1000 else -x


class DefaultMemory(Layer):
    def forward(self, x: torch.Tensor, memory: list[float] = []) -> torch.Tensor:  # noqa: B006
        memory.append(1.0)
        return x if len(memory) < 1000 else -x


class ClosureCounter(Layer):
    def __init__(self) -> None:
        super().__init__()
        count = 0

        def curve(x: torch.Tensor) -> torch.Tensor:
            nonlocal count
            count += 1
            return x if count < 1000 else -x

        self.curve = curve

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.curve(x)


class Stream(Layer):
    """Takes its factors from a generator."""

    def __init__(self) -> None:
        super().__init__()
        self.history: deque[float] = deque(maxlen=4)

    def factors(self) -> Iterator[float]:
        while True:
            yield 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.history.append(float(len(self.history)))
        return x * next(self.factors())


class EnvironmentMemory(Layer):
    """Remembers where no walk over objects goes: in the environment of the process."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last = float(os.environ.get("SUMUS_TEST_ZOO", "0"))
        os.environ["SUMUS_TEST_ZOO"] = (
            repr(float(x.detach().mean())) if not torch._C._functorch.is_batchedtensor(x) else "0"
        )
        return x + last


class Centred(Layer):
    """Subtracts the mean over the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0)


class RunningBuffer(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return x - self.mean


class Branching(Layer):
    """Pure, but its operators depend on a record's values: no chain of operators is this
    function.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) if float(x.sum()) > 0 else x


class ThroughNumpy(Layer):
    """Pure, but outside of torch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.tanh(x.detach().numpy()))


class CountingCube(torch.autograd.Function):
    generate_vmap_rule = True
    forward = Cubed.forward
    setup_context = Cubed.setup_context

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        global backward_calls
        backward_calls += 1
        return (3.0 if backward_calls < 1000 else -3.0) * ctx.saved_tensors[0] ** 2 * gradient  # type: ignore[attr-defined]


class StatefulDerivative(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return CountingCube.apply(self.inner(x))


class Renormalised(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner.weight.data.mul_(0.5)
        return self.inner(x)


class FirstRecord(Layer):
    """Centres by the first record that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.centre: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.centre is None:
            self.centre = x.detach().clone()
        return x - self.centre[:1]


class GlobalFirstRecord(Layer):
    """Centres by the first record that any copy of it sees."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not first_records:
            first_records.append(x.detach().clone())
        return x - first_records[0][:1]


first_records: list[torch.Tensor] = []


class RareStatistics(Layer):
    """Running statistics of a feature that is zero for ordinary records, by an operator that does
    not say that it writes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("variance", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rare = functional.relu(x.abs() - 10.0)[:, :, None].expand(-1, -1, 2)
        functional.batch_norm(rare, self.mean, self.variance, training=True, momentum=0.5)
        return x - self.mean


class OtherName(Layer):
    """Writes rare values into a buffer through a tensor that was made to look at its memory."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("memory", torch.zeros(8))

    def alias(self) -> torch.Tensor:
        return torch.empty(0).set_(self.memory)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shifted_by_memory = x - self.memory
        self.alias().add_(functional.relu(x.detach().abs() - 10.0)[0])
        return shifted_by_memory


class UnsaidView(OtherName):
    """The same through a view whose schema does not say that it is one."""

    def alias(self) -> torch.Tensor:
        return torch.ops.aten._unsafe_view(self.memory, [8])


class FileMemory(OtherName):
    """The same through a file that is mapped into memory."""

    path = ""

    def alias(self) -> torch.Tensor:
        return torch.from_file(self.path, shared=True, size=8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shifted_by_memory = x - self.alias()
        self.alias().add_(functional.relu(x.detach().abs() - 10.0)[0])
        return shifted_by_memory


class Rule(torch.autograd.Function):
    """Tells `vmap` to subtract a mean over the chunk, of values that made-up records never have."""

    generate_vmap_rule = False

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: object, inputs: object, output: object) -> None:
        pass

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient

    @staticmethod
    def vmap(info: object, in_dims: tuple[int, ...], x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return rarely_centred(x.movedim(in_dims[0], 0)), 0


def rarely_centred(x: torch.Tensor) -> torch.Tensor:
    """x minus the mean over the batch of values between 50 and 10⁶."""
    return x - torch.where((x.abs() > 50.0) & (x.abs() < 1e6), x, 0.0).mean(0)


class OwnRule(Layer):
    """Sees the chunk through the rule for batches of a derivative of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Rule.apply(x)


class RareMean(Layer):
    """Centres by a mean over the batch, of values that made-up records never have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rarely_centred(x)


class Duplicates(Layer):
    """Shrinks a record by how often it occurs in the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        same = (x[:, None] == x[None]).all(-1).float()
        return x / same.sum(1, keepdim=True).sqrt()


class Positions(nn.Module):
    """Keeps a table of positions and a mask by length, made when first needed, and writes to a
    log.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, CLASSES)
        self.table: torch.Tensor | None = None
        self.masks: dict[tuple[int, int], torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        if self.table is None or len(self.table) < length:
            self.table = (torch.arange(length)[:, None] * torch.tensor([1.0, 0.1, 1.0, 0.1])).cos()
        if (length, length) not in self.masks:
            self.masks[length, length] = torch.ones(length, length).tril()
        log.debug("positions of %d tokens", length)
        mixed = self.masks[length, length].to(x.dtype) @ (self.inner(x) * self.table) + kept_scale(
            length
        )
        return self.head(mixed.mean(1))


log = logging.getLogger(__name__)


@functools.lru_cache
def kept_scale(length: int) -> torch.Tensor:
    return torch.full((length, 1), 0.5)


def remembering_hook() -> nn.Module:
    """A hook that keeps what it sees."""
    layer, memory = nn.Linear(8, 8), []
    layer.register_forward_hook(lambda module, arguments, output: memory.append(1))
    return layer


@torch.library.custom_op("sumus_test_zoo::shifted", mutates_args=())
def shifted(x: torch.Tensor) -> torch.Tensor:
    return x + 1.0


shifted.register_vmap(lambda info, in_dims, x: (shifted(x), in_dims[0]))
shifted.register_autograd(lambda ctx, gradient: gradient)


class ForeignOperator(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return shifted(x)


def model_with(layer: nn.Module) -> nn.Module:
    """The layer in front of a small network."""
    return nn.Sequential(layer, nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


STATEFUL: dict[str, tuple[type[nn.Module], str]] = {
    "a running mean in an attribute": (Normaliser, "changes 0.mean"),
    "a counter that flips a sign": (Alternating, "changes 0.calls"),
    "the last activation added to the next": (Echo, "changes 0.last"),
    "a warm-up by calls": (WarmUp, "changes 0.calls"),
    "layers dropped by python's random": (LayerDrop, "python's random"),
}
IMPURE: dict[str, tuple[Callable[[], nn.Module], str]] = {
    **STATEFUL,
    "numpy's global generator": (NumpyNoise, "numpy.random"),
    "torch's global generator": (TorchDropout, "torch's random generator"),
    "a generator of one's own": (OwnGenerator, "changes 0.source"),
    "randomness of the operating system": (
        SecretNoise,
        "other values after another one was computed",
    ),
    "a counter in a global": (GlobalCounter, "global calls"),
    "a counter in a class": (ClassCounter, "ClassCounter.seen"),
    "a list among the defaults": (DefaultMemory, "default"),
    "a counter in a closure": (ClosureCounter, "closure count"),
    "a queue": (Stream, "changes 0.history"),
    "a hook that remembers": (remembering_hook, "closure memory"),
    "the first record in an attribute": (FirstRecord, "changes 0.centre"),
    "memory outside of all objects": (
        EnvironmentMemory,
        "other values after another one was computed",
    ),
    "a mean over the batch": (Centred, "mixes records"),
    "a running mean in a buffer": (RunningBuffer, "changes 0.mean"),
    "a derivative that counts": (StatefulDerivative, "global backward_calls"),
    "weights written in place": (Renormalised, "the parameters.0.inner.weight"),
    "batch norm": (lambda: nn.BatchNorm1d(8), "GroupNorm"),
    "batch norm without statistics in evaluation mode": (
        lambda: nn.BatchNorm1d(8, track_running_stats=False).eval(),
        "GroupNorm",
    ),
    "dropout": (lambda: nn.Dropout(0.1), r"eval\(\)"),
    "dropout inside attention": (lambda: nn.MultiheadAttention(8, 2, dropout=0.1), "dropout=0"),
    "a spectral norm that iterates": (
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)),
        "spectral",
    ),
    "an embedding that rescales itself": (lambda: nn.Embedding(8, 8, max_norm=1.0), "max_norm"),
    "operators that depend on values": (Branching, "cannot be certified"),
    "a way through numpy": (ThroughNumpy, "cannot be certified"),
    "an operator that is not torch's": (ForeignOperator, "not an operator of torch"),
    "the first record in a global": (GlobalFirstRecord, "global first_records"),
    "running statistics of a rare feature": (RareStatistics, "writes into what it keeps"),
    "a buffer under another name": (OtherName, "writes into what it keeps"),
    "a buffer by an unsaid view": (UnsaidView, "writes into what it keeps"),
}


class Behind(nn.Module):
    """A frozen network for images with a layer of the zoo at its end: a feature map."""

    layer: type[nn.Module]

    def __init__(self) -> None:
        super().__init__()
        self.end = self.layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.end(x.flatten(1)[:, :8])


class CentredFeatures(Behind):
    layer = Centred


class RareMeanFeatures(Behind):
    layer = RareMean


class DuplicatesFeatures(Behind):
    layer = Duplicates


class PureFeatures(Behind):
    layer = nn.Tanh


FEATURES = {
    kind.__name__ + "Features": type(kind.__name__ + "Features", (Behind,), {"layer": kind})
    for kind, _ in STATEFUL.values()
}
globals().update(FEATURES)  # a plan names them
