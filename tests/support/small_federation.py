"""A small federation that tests can build in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sumus.data import FederatedData
from sumus.guarantee import NoiseDesign, calibrated
from sumus.parties import Federation
from sumus.plan import TrainingPlan
from sumus.training import prepare
from support.small_data import small_data

BASE = """
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
rounds = 2
local_steps = 3
colluding = 0
[training]
algorithm = "dp-sgd"
model = "softmax"
sampling_rate = 0.5
clip_norm = 0.7
learning_rate = 0.4
[evaluation]
metrics = "none"
"""


@pytest.fixture
def federation() -> Callable[..., Federation]:
    def build(
        overrides: Mapping[str, object] | None = None,
        *,
        data: FederatedData | None = None,
        seed: int | None = 5,
        **options: Any,
    ) -> Federation:
        data = data or small_data()
        plan = TrainingPlan.from_toml(BASE).with_overrides(overrides or {})
        facts = data.facts()
        built: NoiseDesign = calibrated(plan, facts)
        return Federation(
            built,
            prepare(built.plan, data),
            None if seed is not None else b"s" * 32,
            seed,
            **options,
        )

    return build
