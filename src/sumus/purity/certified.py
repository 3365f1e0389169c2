"""A user's module, certified: tried on made-up records, refused unless it is a pure function of one
record, and recorded.

    outputs = examine(model, kind, Form((12,)), cross_entropy)      # numbers that it returns for a record
    logits = certified_logits(model, kind, Form((12,)))
    logits(weights, chunk)["logits"]

What was found out about a module is kept with it as long as nothing that it holds is replaced.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeAlias, TypeVar, cast, final
from weakref import WeakKeyDictionary

import torch
from torch import nn

from sumus.errors import DataError
from sumus.purity.checks import RECORDS, require_apart, require_pure
from sumus.purity.chunks import ChunkFunction, chunk_function
from sumus.purity.held_state import held
from sumus.purity.isolation import refuse_mixing_layers
from sumus.purity.made_up import Form, InputKind, made_up_labels
from sumus.purity.own_loss import require_pure_loss
from sumus.purity.recording import first_line, operators_only
from sumus.purity.stateless import call_with, copy_of, named_parameters, renew_copies
from sumus.purity.warm_up import warm_up

__all__ = [
    "CHUNK",
    "certified_gradients",
    "certified_logits",
    "examine",
    "examine_loss",
    "made_up_weights",
    "try_out",
    "verdict",
]

CHUNK = 64
"""Records that a recorded function takes at once."""

RecordLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Weights = Mapping[str, torch.Tensor]
T = TypeVar("T")
_Entry: TypeAlias = "tuple[bytes, _Same, bytes, Hashable]"
_verdicts: WeakKeyDictionary[nn.Module, dict[_Entry, object]] = WeakKeyDictionary()
_examining = threading.RLock()


def try_out(model: nn.Module, x: torch.Tensor, weights: Weights | None = None) -> torch.Tensor:
    """The model's outputs for made-up records; whatever goes wrong in its code becomes one line."""
    try:
        outputs: Any = call_with(model, made_up_weights(model) if weights is None else weights, x)
    except Exception as error:
        where = f"records of shape {tuple(x.shape[1:])} do not fit the model"
        raise DataError(
            f"{where}: {first_line(error)}. Check the data or the feature map."
        ) from None
    if isinstance(outputs, dict | tuple | list):
        names = list(outputs) if isinstance(outputs, dict) else list(range(len(outputs)))
        rule = f"model returns a {type(outputs).__name__} of {', '.join(map(str, names[:8]))}"
        raise DataError(
            f"{rule}. Say which one holds the logits, for example training.logits = "
            f'"{names[0] if names else 0}".'
        )
    if not isinstance(outputs, torch.Tensor):
        raise DataError(
            f"model must return a tensor (records, classes), got {type(outputs).__name__}. Return "
            "its logits."
        )
    if outputs.dim() != 2 or len(outputs) != len(x):
        raise DataError(
            f"model must return (records, classes), got {tuple(outputs.shape)}. Flatten its output."
        )
    return outputs


def examine_loss(
    model: nn.Module,
    kind: InputKind,
    form: Form,
    loss: RecordLoss,
    label_type: torch.dtype,
) -> None:
    """Refuse a loss of a user's own that is no pure function of one record's outputs and label
    (`require_pure_loss`).

    Args:
        label_type: of labels, as they are stored.
    """

    def make() -> bool:
        outputs = try_out(model, kind.records(1, form)).shape[1]
        require_pure_loss(loss, outputs=outputs, form=form, dtype=kind.dtype, label_type=label_type)
        return True

    _kept(model, ("loss", kind, form, label_type), make, loss)


def examine(
    model: nn.Module,
    kind: InputKind,
    form: Form,
    loss: RecordLoss,
    label_type: torch.dtype = torch.int64,
) -> int:
    """The number of outputs of a model that is a pure function of one record.

    Guarantee: forward pass and gradient of made-up records, computed one by one in changing order,
        have the same bits every time; nothing that the module, its code or the loss can remember
        changes, no random generator moves, and records in company get what they get alone. Anything
        else is refused.

    Args:
        kind: of its input.
        form: of a record.
        loss: whose gradient is taken.
        label_type: of the labels that it is called with.
    """
    return _kept(
        model,
        ("examine", kind, form, label_type),
        lambda: _examine(model, kind, form, loss, label_type),
        loss,
    )


def _examine(
    model: nn.Module, kind: InputKind, form: Form, loss: RecordLoss, label_type: torch.dtype
) -> int:
    refuse_mixing_layers(model)
    x, weights = kind.records(RECORDS, form), made_up_weights(model)
    leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}

    def compute(record: int) -> list[torch.Tensor]:
        with torch.enable_grad():
            logits = try_out(model, x[record : record + 1].clone(), leaves)
            y = made_up_labels(RECORDS, form, logits.shape[1])[record : record + 1].to(label_type)
            try:
                gradients = torch.autograd.grad(
                    loss(logits, y), list(leaves.values()), allow_unused=True
                )
            except Exception as error:
                fix = "Return logits that depend on them"
                raise DataError(
                    f"model has no gradient at its parameters: {first_line(error)}. {fix}."
                ) from None
        return [logits.detach(), *(gradient for gradient in gradients if gradient is not None)]

    with operators_only():
        warm_up(model, weights, x)
        alone = require_pure(
            compute,
            watched={"": copy_of(model), "the loss": loss, "the parameters": leaves},
            what="model",
        )
        logits = torch.cat([outcome[0] for outcome in alone])
        _require_same(certified_logits(model, kind, form), weights, x, logits)
        why = (
            "gives a record other values in the company of others: its forward pass mixes records. "
            "Normalise within one record"
        )
        try:
            together = call_with(model, weights, x.clone())
        except Exception:  # a module for single records needs no batches
            together = logits
        require_apart([logits], [together], what="model", why=why)
    return logits.shape[1]


def _require_same(
    recorded: ChunkFunction, weights: Weights, x: torch.Tensor, logits: torch.Tensor
) -> None:
    """The recording must be the module that it was made of."""
    places = [index % len(x) for index in range(recorded.chunk)]
    rows = [x[places]] if recorded.chunk > 1 else [x[index : index + 1] for index in range(len(x))]
    values = torch.cat([recorded(weights, row)["logits"] for row in rows])[: len(x)]
    why = (
        "cannot be certified: the operators that it runs change from call to call. Compute "
        "everything from input and parameters"
    )
    require_apart([logits], [values], what="model", why=why)


def certified_logits(
    model: nn.Module, kind: InputKind, form: Form, *, chunk: int = CHUNK
) -> ChunkFunction:
    """The recorded outputs of a model for chunks of so many records, or of one; call `examine`
    first.
    """

    def single(weights: Weights, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": call_with(model, weights, x[None])[0]}

    def make() -> ChunkFunction:
        with operators_only():
            warm_up(model, made_up_weights(model), kind.records(RECORDS, form))
        return chunk_function(single, made_up_weights(model), kind.records(chunk, form, seed=1))

    return _kept(model, ("logits", kind, form.shape, form.whole, chunk), make)


def certified_gradients(
    model: nn.Module,
    loss: RecordLoss,
    single: Callable[..., dict[str, torch.Tensor]],
    weights: Weights,
    *rows: torch.Tensor,
    most_bytes: int | None = None,
    aligned: bool = False,
) -> ChunkFunction:
    """The recorded per-record gradients of a model for chunks like the made-up one, in factors where
    they are products (`undone`); call `examine` first.

    Args:
        most_bytes: that a chunk's results may take while it runs; a smaller chunk is recorded if
            the made-up one would need more.
        aligned: whether products are filled up to widths at which rows are treated alike.
    """
    key = ("gradients", tuple((row.shape, row.dtype) for row in rows), most_bytes, aligned)
    return _kept(
        model,
        key,
        lambda: chunk_function(
            single, weights, *rows, factors=True, most_bytes=most_bytes, aligned=aligned
        ),
        loss,
    )


def verdict(model: nn.Module, key: Hashable, make: Callable[[], T], *, loss: RecordLoss) -> T:
    """What a test on this machine says about a model and its loss, which it need not take twice."""
    return _kept(model, ("verdict", key, torch.get_num_threads()), make, loss)


def made_up_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """The trainable parameters of a model, moved a little: a model at zero would hide what it
    does.
    """
    generator = torch.Generator().manual_seed(2)
    trainable = [parameter.detach() for parameter in model.parameters() if parameter.requires_grad]
    moved = [
        parameter.reshape(-1)
        + 0.1 * torch.randn(parameter.numel(), generator=generator, dtype=parameter.dtype)
        for parameter in trainable
    ]
    return named_parameters(model, torch.cat(moved)) if moved else {}


@final
class _Same:
    """One object, by identity: a loss need not be hashable. It lives as long as what is known about
    it.
    """

    def __init__(self, loss: RecordLoss | None) -> None:
        self.loss = loss

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.loss is self.loss

    def __hash__(self) -> int:
        return id(self.loss)


def _kept(
    model: nn.Module, key: Hashable, make: Callable[[], T], loss: RecordLoss | None = None
) -> T:
    """What was made for a module and a loss before, unless something that they hold has been
    replaced since.
    """
    with _examining:
        trainable = frozenset(
            id(parameter) for parameter in model.parameters() if parameter.requires_grad
        )
        stamp, setting = _stamp(model, trainable), _stamp(loss, trainable)
        known = _verdicts.setdefault(model, {})
        if any(entry[0] != stamp for entry in known):
            known.clear()
            renew_copies(model)
        entry = (stamp, _Same(loss), setting, key)
        if entry not in known:
            known[entry] = make()
        return cast(T, known[entry])


def _stamp(value: object, skip: frozenset[int]) -> bytes:
    """A digest of everything that a value holds."""
    return hashlib.blake2b(
        repr(sorted(held(value, tensors_by_value=False, skip=skip).items())).encode()
    ).digest()
