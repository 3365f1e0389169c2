"""Per-record gradients one record at a time with plain autograd, clipped and truncated in exact
integers. Slow and obvious.
"""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional


def record_gradients(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """One row per record, float64, from the model's own parameters in double precision."""
    double = copy.deepcopy(model).double()
    rows = []
    for record, label in zip(x.double(), y, strict=True):
        logits = double(record[None])
        if logits.shape[1] == 1:
            loss = functional.binary_cross_entropy_with_logits(logits[:, 0], label[None].double())
        else:
            loss = functional.cross_entropy(logits, label[None])
        gradients = torch.autograd.grad(loss, list(double.parameters()))
        rows.append(torch.cat([gradient.reshape(-1) for gradient in gradients]).numpy())
    return np.array(rows)


def clipped_on_grid(rows: np.ndarray, *, clip_norm: float, resolution: int) -> np.ndarray:
    """Each row clipped and in grid steps, still real numbers; rows that are not finite are zero."""
    out = np.zeros(rows.shape)
    for index, row in enumerate(rows.astype(np.float64)):
        if np.isfinite(row).all():
            out[index] = row * (resolution / max(clip_norm, math.sqrt(math.fsum(row * row))))
    return out


def integer_norm2(vector: np.ndarray) -> int:
    """Squared L2 norm of an integer vector in Python integers, which never overflow."""
    return sum(int(value) ** 2 for value in vector.tolist())
