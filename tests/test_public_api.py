"""The names that others build on. A change here is a change of the interface: say so in
CHANGELOG.md.
"""

from __future__ import annotations

import importlib
import inspect

import pytest

import sumus

PINNED = {
    "sumus": [
        "Account",
        "SumusError",
        "TrainingPlan",
        "__version__",
        "account",
        "average",
        "calibrate",
        "epsilon",
        "load_data",
        "train",
    ],
    "sumus.accounting.accountant": ["epsilon_of", "loss_interval", "renyi_values"],
    "sumus.guarantee.claims": [
        "ANALYSES",
        "Analysis",
        "Setting",
        "applicable",
        "calibrated_analysis",
        "release_of",
    ],
    "sumus.accounting.averaging": ["AveragedModels", "average"],
    "sumus.accounting.calibration": ["least_noise"],
    "sumus.accounting.calculator": ["calibrate", "epsilon"],
    "sumus.accounting.release": ["Release", "Step", "noisy_step"],
    "sumus.accounting.search": ["epsilon_of_search", "epsilon_with_tuning"],
    "sumus.guarantee": [
        "Account",
        "account",
        "account_of",
        "calibrate_design",
        "calibrated",
        "certify",
        "metrics_epsilon",
        "search_epsilon",
        "spent",
    ],
    "sumus.errors": [
        "DataError",
        "EngineError",
        "GuaranteeError",
        "LocalProtocolError",
        "PeerProtocolError",
        "PlanError",
        "PolicyError",
        "ProtocolError",
        "RoundAborted",
        "StorageError",
        "SumusError",
    ],
    "sumus.cli": ["COMMANDS", "main"],
}


@pytest.mark.parametrize("module", PINNED)
def test_pinned_names(module: str) -> None:
    assert importlib.import_module(module).__all__ == PINNED[module]


@pytest.mark.parametrize("name", [name for name in PINNED["sumus"] if name != "train"])
def test_every_name_is_there(name: str) -> None:
    assert getattr(sumus, name) is not None
    assert name in dir(sumus)


def test_train_is_there_with_torch() -> None:
    pytest.importorskip("torch")
    assert callable(sumus.train)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'epsilons'"):
        _ = sumus.epsilons


COMMON = {
    "sampling_rate": 1.0,
    "mechanism": "skellam",
    "accountant": "pld",
    "dimension": 1,
    "resolution_bits": 16,
}


@pytest.mark.parametrize(
    ("function", "required"),
    [
        ("epsilon", ["noise_multiplier", "steps", "delta"]),
        ("calibrate", ["epsilon", "delta", "steps"]),
    ],
)
def test_signatures(function: str, required: list[str]) -> None:
    parameters = inspect.signature(getattr(sumus, function)).parameters
    assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for each in parameters.values())
    assert [
        name for name, each in parameters.items() if each.default is inspect.Parameter.empty
    ] == required
    assert {
        name: each.default
        for name, each in parameters.items()
        if each.default is not inspect.Parameter.empty
    } == COMMON


def test_an_account_has_the_promised_fields() -> None:
    fields = set(sumus.Account.__dataclass_fields__)
    assert {
        "epsilon",
        "delta",
        "proved",
        "analysis",
        "accountant",
        "noise_multiplier",
        "analyses",
    } <= fields
