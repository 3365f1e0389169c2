"""The average of checkpoint files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sumus.errors import DataError, StorageError

__all__ = ["average_checkpoints"]


def average_checkpoints(files: list[Path], out: Path) -> None:
    """The coordinate-wise mean of checkpoints with equal names and shapes, in float64, stored in
    the type they came in.

    Integer buffers (step counters and the like) must agree and are copied.
    """
    loaded = [_read(path) for path in files]
    for path, each in zip(files[1:], loaded[1:], strict=True):
        if _shapes(each) != _shapes(loaded[0]):
            differing = sorted(set(_shapes(each).items()) ^ set(_shapes(loaded[0]).items()))[0][0]
            raise DataError(
                f"{path} does not fit {files[0]}: {differing!r} differs in name, shape or type. "
                "Average models of one kind."
            )
    averaged: dict[str, Any] = {}
    for name, first in loaded[0].items():
        stack = np.stack([each[name] for each in loaded])
        if np.issubdtype(first.dtype, np.floating):
            averaged[name] = stack.astype(np.float64).mean(axis=0).astype(first.dtype)
        elif (stack == first).all():
            averaged[name] = first
        else:
            raise DataError(
                f"{name!r} is not a real number and differs between the checkpoints, so it has no "
                "average. Remove it."
            )
    _store(out, averaged)


def _shapes(tensors: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {name: (tuple(each.shape), str(each.dtype)) for name, each in tensors.items()}


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise StorageError(f"{path} does not exist. Give the checkpoint files separated by commas.")
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return _only_arrays(path, {name: archive[name] for name in archive.files})
        import torch

        state = torch.load(path, map_location="cpu", weights_only=True)
        return {name: each.detach().numpy() for name, each in state.items()}
    except (ModuleNotFoundError, StorageError):
        raise
    except Exception as error:
        raise StorageError(
            f"{path} is not a readable checkpoint ({type(error).__name__}). Give a torch state "
            "dict or an .npz file."
        ) from None


def _only_arrays(path: Path, found: dict[str, Any]) -> dict[str, Any]:
    """What numpy found in an archive, unless some of it is no array: then it is no model but, for
    example, the state of a run.
    """
    for name, each in found.items():
        if not isinstance(each, np.ndarray):
            raise StorageError(
                f"{path} holds {name!r}, which is no array. Give models; that of a run is its "
                "model.pt."
            )
    return found


def _store(out: Path, tensors: dict[str, Any]) -> None:
    try:
        if out.suffix == ".npz":
            with out.open("wb") as file:
                np.savez(file, **tensors)
            return
        import torch

        torch.save({name: torch.from_numpy(np.array(each)) for name, each in tensors.items()}, out)
    except OSError as error:
        raise StorageError(
            f"{out} cannot be written: {error.strerror}. Choose another file for --out."
        ) from None
