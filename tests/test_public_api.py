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
        "Callback",
        "Classifier",
        "Description",
        "Model",
        "NoiseDesign",
        "Predictions",
        "Regressor",
        "RunOptions",
        "Simulation",
        "SumusError",
        "Survival",
        "TrainedRun",
        "TrainingPlan",
        "__version__",
        "account",
        "average",
        "calibrate",
        "describe",
        "epsilon",
        "load_data",
        "lora",
        "train",
    ],
    "sumus.accounting": [
        "ACCOUNTANTS",
        "AveragedModels",
        "LARGEST_COINS",
        "ORDERS",
        "Queries",
        "Release",
        "TAIL_LOG_MASS",
        "average",
        "calibrate",
        "epsilon",
        "epsilon_gaussian",
        "epsilon_of",
        "epsilon_of_search",
        "even_groups",
        "joining_rate",
        "least_noise",
        "noisy_queries",
        "poisson_binomial_curve",
        "renyi_values",
        "tightest",
        "unit_shift",
    ],
    "sumus.noise": [
        "DiscreteGaussian",
        "Draws",
        "Gaussian",
        "Grid",
        "LAWS",
        "Law",
        "LogConcaveNoise",
        "Orders",
        "PoissonBinomial",
        "RenyiCurve",
        "Rounding",
        "Skellam",
        "Values",
        "component_shares",
        "lift",
        "noise_law",
        "noise_norm_bound",
        "summation_slack_grid",
        "to_ring",
    ],
    "sumus.secagg": [
        "Accusation",
        "CipherTexts",
        "Disagreements",
        "Drop",
        "DroppedSet",
        "Encapsulations",
        "Endorsement",
        "FileRoundGuard",
        "Greeting",
        "Head",
        "Identity",
        "InProcessFederation",
        "Invitation",
        "KeyDirectory",
        "KeyRing",
        "KeySet",
        "KeyStore",
        "MemoryKeyStore",
        "MemoryRoundGuard",
        "Message",
        "PublicHalf",
        "Reader",
        "Ready",
        "Refusal",
        "Roster",
        "RosterHistory",
        "RoundGuard",
        "RoundInFlight",
        "RoundSum",
        "SERVER",
        "SERVER_NAME",
        "SecureSum",
        "ServerAgreeing",
        "ServerCertifying",
        "ServerCollecting",
        "ServerSession",
        "ServerSetup",
        "ServerUnmasking",
        "SetCertificate",
        "SiloAgreeing",
        "SiloDone",
        "SiloInvited",
        "SiloSession",
        "SiloSetup",
        "SiloSigned",
        "SiloSubmitted",
        "Terms",
        "Traffic",
        "UnopenedError",
        "Welcome",
        "Words",
        "add_masks",
        "agree",
        "answer",
        "as_words",
        "certified",
        "changes_between",
        "check_drop",
        "claimed_rounds",
        "decode",
        "decode_any",
        "expand",
        "head_of",
        "is_protected",
        "open_identity",
        "pack",
        "pair_sign",
        "protect",
        "public_key_of",
        "public_keys",
        "quorum_of",
        "reduce_words",
        "request_digest",
        "seal",
        "secure_sum",
        "session_digest",
        "size_of",
        "successor",
        "terms_of",
        "unpack",
        "unseal",
        "vanished",
        "verify",
        "word_type",
    ],
    "sumus.guarantee": [
        "ALGORITHMS",
        "Account",
        "AlgorithmCost",
        "Comparison",
        "LARGEST_WEIGHT_NORM",
        "LiveEpsilon",
        "Meaning",
        "NewtonParts",
        "NoiseDesign",
        "NormGate",
        "PastRun",
        "STATEMENTS",
        "SiloDesign",
        "TangentBounds",
        "account",
        "account_of",
        "against_participant",
        "as_table",
        "calibrated",
        "centred_bounds",
        "certify",
        "clamp_of",
        "compare",
        "convex_bounds",
        "count_noise",
        "decoded_counts",
        "draws_are_exact",
        "joint_epsilon",
        "labelled",
        "measurements_until",
        "metrics_epsilon",
        "metrics_spent",
        "newton_parts",
        "padded",
        "records_in_words",
        "refuse_large_delta",
        "release_of",
        "search_epsilon",
        "sum_length",
        "tangent_bounds",
    ],
    "sumus.plan": [
        "AlgorithmRules",
        "CNN_CONVOLUTIONS",
        "CNN_HIDDEN",
        "ColumnCells",
        "DEFAULT_EPSILON",
        "DEFAULT_PLAN",
        "DEFAULT_ROWS_PER_PERSON",
        "DataPlan",
        "ENCODINGS",
        "LINEAR_MODELS",
        "MODELS",
        "MomentShape",
        "PLAN_START",
        "PrivacyPlan",
        "PublicFacts",
        "RANDOM_FILTERS",
        "RANDOM_WIDTH",
        "RULES",
        "ResolvedPlan",
        "ResolvedSilo",
        "SiloPlan",
        "TrainingPlan",
        "UNNAMED",
        "WHITENED_FEATURES",
        "cells_of",
        "cnn_flat_features",
        "described_labels",
        "feature_norm_of",
        "feature_shape",
        "float_sum_terms",
        "has_schedule",
        "noise_ratios",
        "plan_of_round",
        "plans_of_rates",
        "rate_factor",
        "resolve",
        "with_columns",
    ],
    "sumus.errors": [
        "AccessError",
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
        "dotted",
    ],
    "sumus.cli": [
        "COMMANDS",
        "main",
    ],
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
