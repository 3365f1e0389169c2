"""Small made-up federations for tests."""

from __future__ import annotations

import numpy as np

from sumus.data import FederatedData, from_arrays


def small_data(
    silos: int = 3, records: int = 40, features: int = 6, classes: int = 3
) -> FederatedData:
    """A few silos with random records; silo i has 3·i records more than the first."""
    rng = np.random.default_rng(7)
    pairs = [
        (
            rng.normal(size=(records + 3 * i, features)).astype(np.float32),
            rng.integers(0, classes, records + 3 * i),
        )
        for i in range(silos)
    ]
    return from_arrays(pairs, name="own data")
