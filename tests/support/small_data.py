"""Small made-up federations for tests."""

from __future__ import annotations

import numpy as np

from sumus.data import FederatedData, Records, SiloRecords, from_arrays
from sumus.tasks import LabelFacts


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


def persons_data(
    silos: int = 3, persons: int = 40, features: int = 6, classes: int = 3, most: int = 4
) -> FederatedData:
    """A few silos whose persons have 1 to `most` rows each, a fifth of them for testing."""
    rng = np.random.default_rng(11)
    made = []
    for i in range(silos):
        counts = rng.integers(1, most + 1, persons + 3 * i)
        rows = Records(
            rng.normal(size=(counts.sum(), features)).astype(np.float32),
            rng.integers(0, classes, counts.sum()),
            np.repeat(np.arange(len(counts)), counts),
        )
        cut = len(counts) // 5
        test, train = rows.take(np.arange(cut)), rows.take(np.arange(cut, len(counts)))
        made.append(SiloRecords(f"silo-{i + 1}", train, rows.take(np.arange(0)), test))
    labels = LabelFacts(names=tuple(str(c) for c in range(classes)))
    return FederatedData("own data", tuple(made), (features,), labels)
