"""An image model of your own, trained across silos with split noise: several private local steps,
any torch module.

    python examples/images.py

Uses scikit-learn's handwritten digits as 8 × 8 images.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import sumus
from sumus.runs import RunOptions

PLAN = """
[privacy]
epsilon = 8.0
delta = 1e-4
[federation]
rounds = 15
local_steps = 3
[training]
algorithm = "split-noise"
sampling_rate = 0.3
clip_norm = 0.5
learning_rate = 1.5
server_momentum = 0.5
state_noise = 1.0
"""


def small_network() -> nn.Module:
    """GroupNorm instead of BatchNorm: no layer may mix the records of a batch."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 16, 10),
    )


def main() -> None:
    x, y = load_digits(return_X_y=True)
    images = (x.reshape(-1, 1, 8, 8) / 16.0).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(y))
    silos = [(images[part], y[part]) for part in np.array_split(order, 5)]
    run = sumus.train(
        sumus.TrainingPlan.from_toml(PLAN),
        model=small_network(),
        silos=silos,
        options=RunOptions(root=Path("runs"), name="images"),
    )
    print(run.account)
    print(
        f"accuracy {run.accuracy:.1%} after {len(run.rounds)} rounds; everything is in {run.path}"
    )


if __name__ == "__main__":
    main()
