"""A record's gradient must not depend on the other records of its batch: refusals before training,
and a test of the machine.

Sensitivity is the most that one record can change the integer sum. It is at most r only if every
*other* record contributes the same integers with and without that record. Three things could break
this: a layer that mixes records (refused by name, with the fix), a forward pass that is no pure
function (`certified`), and a numerical kernel whose last bits depend on a row's place in the batch.
Chunks have a fixed shape, so kernels are always called alike; `is_isolated` runs the bound model on
made-up records in different places and company and compares bit by bit. A model or a machine that
fails the test gets chunks of a single record, where nothing can leak.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from sumus.errors import GuaranteeError

__all__ = ["is_isolated", "refuse_mixing_layers"]

_EVALUATE = "or call eval() on it"
_MIXING: dict[type[nn.Module], str] = {
    nn.modules.batchnorm._NormBase: "Use nn.GroupNorm or nn.LayerNorm, which normalise within a record, or freeze its statistics by eval()",
    nn.modules.dropout._DropoutNd: f"Remove it, since clipping and noise regularise already, {_EVALUATE}",
    nn.RReLU: f"Use nn.LeakyReLU, which is not random, {_EVALUATE}",
}


def refuse_mixing_layers(model: nn.Module) -> None:
    """Raise if a layer lets records see each other, keeps statistics over records or draws random
    numbers.

    Guarantee: BatchNorm, SyncBatchNorm and InstanceNorm that follow their batch, spectral norm's
        power iteration, renormalised embeddings and active dropout in any layer are refused. In
        evaluation mode these layers compute within one record and are accepted. Code inside a
        user's own `forward` is examined by `certified`.
    """
    for name, module in model.named_modules():
        where = name or type(model).__name__
        for kind, fix in _MIXING.items():
            if isinstance(module, kind) and not _harmless(module):
                raise GuaranteeError(
                    f"model layer {where} is a {type(module).__name__}, which breaks record-level "
                    f"privacy. {fix}."
                )
        rate = getattr(module, "dropout", 0.0)
        if isinstance(rate, float) and rate > 0.0 and module.training:
            fix = f"Build it with dropout=0 {_EVALUATE}"
            raise GuaranteeError(
                f"model layer {where} draws dropout masks inside {type(module).__name__}. {fix}."
            )
        hooks = (module, *module._forward_pre_hooks.values())
        if module.training and any("SpectralNorm" in type(hook).__name__ for hook in hooks):
            fix = f"Remove the spectral norm {_EVALUATE}"
            raise GuaranteeError(
                f"model layer {where} updates a spectral norm in its forward pass. {fix}."
            )
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            raise GuaranteeError(
                f"model layer {where} rescales its weights in the forward pass (max_norm). Build "
                "it without max_norm."
            )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise GuaranteeError(
            f"model {type(model).__name__} has no parameter that takes a gradient. Unfreeze what "
            "should be trained."
        )


def _harmless(module: nn.Module) -> bool:
    """Whether a layer that can mix records or draw random numbers does so as it is."""
    if isinstance(module, nn.modules.instancenorm._InstanceNorm) and not module.track_running_stats:
        return True  # works within one record
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return (
            not module.training
            and module.running_mean is not None
            and module.running_var is not None
        )
    return not module.training or getattr(module, "p", None) == 0.0


def is_isolated(
    compute: Callable[[torch.Tensor, torch.Tensor], list[torch.Tensor]],
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    company: Sequence[float] = (0.0, 1e30, float("nan")),
) -> bool:
    """Whether records give the same bits in any place and company of a chunk.

    Args:
        compute: what the chunk's gradients are made of, records first, for a chunk of the shape of
            `x`.
        x, y: made-up records, one chunk of them.
        company: values that every second record is filled with.
    """
    records = len(x)
    if records == 1:
        return True
    alone = [tensor.clone() for tensor in compute(x, y)]
    for places in {1, records // 2, records - 1}:
        moved = compute(x.roll(places, 0), y.roll(places, 0))
        if not all(
            torch.equal(before.roll(places, 0), after)
            for before, after in zip(alone, moved, strict=True)
        ):
            return False
    for value in company:
        odd = torch.arange(records) % 2 == 1
        mixed = x.clone()
        mixed[odd] = value if x.is_floating_point() else int(value)
        if not all(
            torch.equal(before[~odd], after[~odd])
            for before, after in zip(alone, compute(mixed, y), strict=True)
        ):
            return False
    return True
