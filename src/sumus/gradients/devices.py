"""Gradients on another device: a chunk goes there, its layers' factors come back.

    records, parameters ──► forward and backward pass on the device ──► factors ──► clipping,
    integers, noise, masks and sums on the processor

What a record contributes is computed from those factors by the same loops as ever, so all that is
proved of integers stays true. What a device must show is that a record's factors do not depend on
its company; `examination` measures that on the device, with the kernels that real records meet.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any, Final, final

import torch

from sumus.errors import PlanError
from sumus.gradients.layered import LayeredPath
from sumus.gradients.parts import ChunkGradients, Part
from sumus.gradients.preconditioning import PublicMap

__all__ = ["PROCESSOR", "DevicePath", "device_facts", "require_device"]

PROCESSOR: Final = torch.device("cpu")


def require_device(name: str) -> torch.device:
    """The device of this name, if torch sees it on this machine."""
    present = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not present.get(name, False):
        raise PlanError(
            "training.device",
            name,
            f"must be a device of this machine, where torch {torch.__version__} sees no {name!r}",
            'Use "cpu", or install a torch that was built for the device.',
        )
    return torch.device(name)


def device_facts(name: str) -> str:
    """What the floats of a device depend on, in one line."""
    if name != "cuda" or not torch.cuda.is_available():
        return name
    matrix, convolution = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return (
        f"cuda {torch.version.cuda}, {torch.cuda.get_device_name()}, cuDNN {cudnn}, "
        f"TF32 {matrix}/{convolution}"
    )


@final
class DevicePath:
    """A chain of layers whose passes run on a device and whose parts lie on the processor.

    Args:
        path: of the chain.
        device: where it computes.
    """

    name = "layers"

    def __init__(self, path: LayeredPath, device: torch.device) -> None:
        self._path, self._device = path, device
        self.dimension, self.numbers_per_record = path.dimension, path.numbers_per_record

    def bind(self, parameters: torch.Tensor, mapped: PublicMap | None = None) -> ChunkGradients:
        """The gradients of any chunk at these parameters, which are sent to the device once."""
        if mapped is not None:
            rule, fix = "must be the processor behind a public map", 'Use "cpu".'
            raise PlanError("training.device", self._device.type, rule, fix)
        return partial(self._parts, self._path.bind(parameters.to(self._device)))

    def _parts(
        self, bound: ChunkGradients, x: torch.Tensor, y: torch.Tensor, *, ghost: bool
    ) -> list[Part]:
        parts = bound(x.to(self._device), y.to(self._device), ghost=ghost)
        return [_on_the_processor(part) for part in parts]

    def restore(self, vector: torch.Tensor) -> torch.Tensor:
        """See `LayeredPath.restore`: integers, on the processor."""
        return self._path.restore(vector)


def _on_the_processor(part: Part) -> Part:
    """A part with its tensors where clipping and sums are."""
    values = {each.name: getattr(part, each.name) for each in fields(part)}
    moved: dict[str, Any] = {
        name: value.to(PROCESSOR) for name, value in values.items() if torch.is_tensor(value)
    }
    return replace(part, **moved)
