"""Features are made in blocks, on every core: every record keeps its place and its bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sumus.plan import TrainingPlan
from sumus.training import PublicFeatures, preparation

PLAN = """
[privacy]
epsilon = 1.0
[training]
algorithm = "convex-pass"
model = "softmax"
features = "{features}"
"""


def features_of(name: str, shape: tuple[int, ...]) -> PublicFeatures:
    """What a plan puts in front of a convex pass."""
    return PublicFeatures.of(TrainingPlan.from_toml(PLAN.format(features=name)), shape)


@pytest.mark.parametrize(("name", "shape"), [("none", (7,)), ("gabor", (1, 16, 16))])
@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_and_threads_change_no_bit(
    name: str, shape: tuple[int, ...], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = features_of(name, shape)
    records = np.random.default_rng(0).random((523, *shape)).astype(np.float32)
    monkeypatch.setattr(preparation, "_AT_ONCE", 1 << 40)
    whole = features(records)  # one block
    monkeypatch.setattr(preparation, "_AT_ONCE", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        blocks = features(records)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert blocks.tobytes() == whole.tobytes()
    one = features(records[407:408])
    assert one.tobytes() == whole[407:408].tobytes()


def test_no_records_have_no_features() -> None:
    assert features_of("none", (7,))(np.empty((0, 7), np.float32)).shape == (0, 8)
