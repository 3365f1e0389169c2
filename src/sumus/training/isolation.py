"""A record's gradient must not depend on the other records of its batch: refusals before training, and a test of the machine.

Sensitivity is the most that one record can change the integer sum. It is at most r only if every *other* record contributes the same
integers with and without that record. Two things could break this: a layer that mixes records (refused by name, with the fix), and a
numerical kernel whose last bits depend on a row's place in the batch. Chunks have a fixed shape, so kernels are always called alike;
`is_isolated` runs the bound model on made-up records in different places and company and compares bit by bit. A model or a machine that
fails the test gets chunks of a single record, where nothing can leak.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from sumus.errors import GuaranteeError

__all__ = ["is_isolated", "refuse_mixing_layers"]

_MIXING: dict[type[nn.Module], str] = {
    nn.modules.batchnorm._NormBase: "Use nn.GroupNorm or nn.LayerNorm, which normalise within one record",
    nn.modules.dropout._DropoutNd: "Remove it: clipping and noise regularise already",
    nn.RReLU: "Use nn.LeakyReLU, which is not random",
}


def refuse_mixing_layers(model: nn.Module) -> None:
    """Raise if a layer lets records see each other, keeps statistics over records or draws random numbers.

    Guarantee: BatchNorm, SyncBatchNorm and InstanceNorm with running statistics, spectral norm's power iteration, and active
        dropout in any layer are refused. Code inside a user's own `forward` is isolated by `torch.func.vmap`, which shows it one
        record at a time.
    """
    for name, module in model.named_modules():
        where = name or type(model).__name__
        for kind, fix in _MIXING.items():
            if isinstance(module, kind) and not _harmless(module):
                raise GuaranteeError(f"model layer {where} is a {type(module).__name__}, which breaks record-level privacy. {fix}.")
        rate = getattr(module, "dropout", 0.0)
        if isinstance(rate, float) and rate > 0.0:
            fix = "Build it with dropout=0"
            raise GuaranteeError(f"model layer {where} draws dropout masks inside {type(module).__name__}. {fix}.")
        if any("SpectralNorm" in type(each).__name__ for each in (module, *module._forward_pre_hooks.values())):
            raise GuaranteeError(f"model layer {where} updates a spectral norm in its forward pass. Remove the spectral norm.")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise GuaranteeError(f"model {type(model).__name__} has no parameter that takes a gradient. Unfreeze what should be trained.")


def _harmless(module: nn.Module) -> bool:
    """InstanceNorm without running statistics works within one record; dropout at rate 0 does nothing."""
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        return not module.track_running_stats
    return getattr(module, "p", None) == 0.0


def is_isolated(compute: Callable[[torch.Tensor, torch.Tensor], list[torch.Tensor]], x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether records give the same bits in any place and company of a chunk.

    Args:
        compute: what the chunk's gradients are made of, records first, for a chunk of the shape of `x`.
        x, y: made-up records, one chunk of them.
    """
    records = len(x)
    if records == 1:
        return True
    alone = [tensor.clone() for tensor in compute(x, y)]
    for places in {1, records // 2, records - 1}:
        moved = compute(x.roll(places, 0), y.roll(places, 0))
        if not all(torch.equal(before.roll(places, 0), after) for before, after in zip(alone, moved, strict=True)):
            return False
    for company in (0.0, 1e30, float("nan")):
        odd = torch.arange(records) % 2 == 1
        mixed = x.clone()
        mixed[odd] = company
        if not all(torch.equal(before[~odd], after[~odd]) for before, after in zip(alone, compute(mixed, y), strict=True)):
            return False
    return True
