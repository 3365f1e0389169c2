"""What a plan must know about every algorithm: what it protects and which keys it knows or refuses.

Here is the one list of algorithms. What is drawn and what is proved for one of them stands in
`guarantee/algorithms/`, what a silo computes in `training/local/`; each rule names its two modules
there, so a new algorithm is an entry of this list and a file in each of the two rooms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, final

__all__ = ["RULES", "AlgorithmRules", "Refusal", "algorithms_with"]


@final
@dataclass(frozen=True)
class Refusal:
    """Why a key cannot be set, and what to do instead.

    Args:
        rule: the reason, as errors word it.
        fix: one sentence.
        allowed: values that are accepted besides the key's default.
    """

    rule: str
    fix: str
    allowed: tuple[object, ...] = ()


@final
@dataclass(frozen=True, kw_only=True)
class AlgorithmRules:
    """What a plan must know about one algorithm; no mathematics.

    Args:
        name: the plan's `training.algorithm`.
        protects: records (one of them, as `privacy.unit` says), whole silos, or nothing.
        steps: how `resolve` fills in local steps and divisor: one Poisson batch a round, several of
            them, bins of all records, or no step at all.
        sums: what silos add up: updates of the model, moments of their records, of which the
            server makes the model, gradients beside second moments, by which the server bends
            them, or how many records are in which cell, and there is no model.
        rounding: what `noise.rounding = "auto"` means.
        guarantee: module of `guarantee/algorithms/`.
        local: module of `training/local/`.
        bounded_records: records are scaled to norm at most `training.feature_bound` and carry a
            bias feature; the model has no bias of its own.
        keys: plan keys that mean something for this algorithm and not for all.
        refuses: keys that must stay unset.
    """

    name: str
    protects: Literal["records", "silo", "nothing"]
    steps: Literal["one", "several", "bins", "none"]
    guarantee: str
    local: str
    sums: Literal["updates", "moments", "curvature", "cells"] = "updates"
    rounding: Literal["record", "sum"] = "record"
    bounded_records: bool = False
    keys: frozenset[str] = frozenset()
    refuses: Mapping[str, Refusal] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Whether noise is drawn and a guarantee can be given."""
        return self.protects != "nothing"


_CLIPPING = frozenset({"training.clip_norm", "silo.clip_norm", "silo.sampling_rate"})
# whatever the loss is, a record's gradient is clipped
_ANY_LOSS = frozenset({"training.loss"})
_DEVICE = frozenset({"training.device"})
_BOUNDED = frozenset({"training.feature_bound", "training.feature_norm"})
_PASSES = frozenset({"training.passes", "training.residual_cap"})
_EPOCHS = frozenset({"federation.local_epochs"})
_TARGETS = frozenset({"privacy.calibrate_to"})
_MAPPED = frozenset({"training.preconditioner"})
_SIDE_BY_SIDE = Refusal(
    "cannot be set under split-noise (its steps are composed side by side)",
    "Remove the key, or use dp-sgd.",
)

_ALL_AT_ONCE = (
    "has no meaning for normal-equations (every record counts once, in one sum)",
    "Leave it out.",
)
_SOLVED = (
    "has no meaning for normal-equations (the model is solved for, by a public ridge rule)",
    "Leave it out.",
)

# every round is accounted for with its own rates and noise
_ROUNDS = frozenset({"noise.schedule"})
_LOCAL = frozenset({"training.local_parameters"})

_WHOLE = (
    "has no meaning for newton (every record counts in every round, in one step)",
    "Leave it out.",
)
_BENT = (
    "has no meaning for newton (the server bends every step by released second moments)",
    "Leave it out, or use server_momentum.",
)

_COUNTED = (
    "has no meaning for describe (every record is counted once, in one sum)",
    "Leave it out.",
)
_NO_MODEL = ("has no meaning for describe (there is no model)", "Leave it out.")


def _no_penalty(algorithm: str) -> dict[str, Refusal]:
    rule = f"must be 0 for {algorithm} (its steps are sums of clipped gradients alone)"
    return {"training.l2_penalty": Refusal(rule, "Remove it, or use convex-pass.")}


def _one_rate(algorithm: str) -> dict[str, Refusal]:
    rule = f"has no meaning for {algorithm} (one learning rate for all its steps)"
    return {"training.learning_rates": Refusal(rule, "Use learning_rate.")}


def _one_pass(algorithm: str) -> dict[str, Refusal]:
    """What a noiseless pass over bins cannot do with."""
    return {
        "training.local_momentum": Refusal(
            f"must be 0 for {algorithm} (momentum breaks non-expansiveness)",
            "Use server_momentum instead.",
        ),
        "noise.rounding": Refusal(
            f"must be auto or sum for {algorithm} (its whole update is rounded, once)",
            "Leave it out.",
            allowed=("sum",),
        ),
        **_one_rate(algorithm),
    }


_RULES = (
    AlgorithmRules(
        name="dp-sgd",
        protects="records",
        steps="several",
        guarantee="noisy_steps",
        local="noisy_steps",
        keys=_CLIPPING | _ANY_LOSS | _DEVICE | _EPOCHS | _TARGETS | _LOCAL | _MAPPED | _ROUNDS,
        refuses=_no_penalty("dp-sgd"),
    ),
    AlgorithmRules(
        name="split-noise",
        protects="records",
        steps="several",
        guarantee="split_noise",
        local="noisy_steps",
        keys=_CLIPPING
        | _ANY_LOSS
        | _DEVICE
        | _EPOCHS
        | _TARGETS
        | _MAPPED
        | _ROUNDS
        | {"training.state_noise"},
        refuses=_no_penalty("split-noise")
        | {"silo.local_steps": _SIDE_BY_SIDE, "silo.std_factor": _SIDE_BY_SIDE},
    ),
    AlgorithmRules(
        name="convex-pass",
        protects="records",
        steps="bins",
        guarantee="convex_pass",
        local="convex_pass",
        rounding="sum",
        bounded_records=True,
        keys=_BOUNDED | _LOCAL | _PASSES | _ROUNDS,
        refuses=_one_pass("convex-pass"),
    ),
    AlgorithmRules(
        name="tangent-pass",
        protects="records",
        steps="bins",
        guarantee="tangent_pass",
        local="tangent_pass",
        rounding="sum",
        keys=_PASSES | _MAPPED | _ROUNDS | {"training.feature_bound", "training.tangent_layers"},
        refuses=_one_pass("tangent-pass"),
    ),
    AlgorithmRules(
        name="normal-equations",
        protects="records",
        steps="none",
        sums="moments",
        guarantee="normal_equations",
        local="normal_equations",
        bounded_records=True,
        keys=_BOUNDED | _LOCAL | {"training.coordinates"},
        refuses={
            "federation.rounds": Refusal(
                "must be 1 for normal-equations (its one sum is all that there is to learn)",
                "Leave it out.",
                allowed=(1,),
            ),
            "federation.local_steps": Refusal(
                "must be 1 for normal-equations (there are no steps)",
                "Leave it out.",
                allowed=(1,),
            ),
            "noise.rounding": Refusal(
                "must be auto or record for normal-equations (its integers are exact, record by "
                "record)",
                "Leave it out.",
                allowed=("record",),
            ),
            "training.sampling_rate": Refusal(*_ALL_AT_ONCE, allowed=(1.0,)),
            "training.batch_size": Refusal(*_ALL_AT_ONCE),
            "training.divisor": Refusal(*_ALL_AT_ONCE, allowed=(1.0,)),
            "silo.local_steps": Refusal(*_ALL_AT_ONCE),
            **{
                key: Refusal(*_SOLVED)
                for key in (
                    "training.learning_rate",
                    "training.learning_rates",
                    "training.local_momentum",
                    "training.l2_penalty",
                    "training.start_from",
                    "training.server_learning_rate",
                    "training.server_rate_schedule",
                    "training.average_decay",
                    "training.server_momentum",
                    "training.server_optimizer",
                    "training.iterate_average",
                    "silo.learning_rate",
                )
            },
        },
    ),
    AlgorithmRules(
        name="newton",
        protects="records",
        steps="none",
        sums="curvature",
        guarantee="newton",
        local="newton",
        bounded_records=True,
        keys=_BOUNDED
        | {"training.clip_norm", "training.coordinates", "training.matrix_share", "training.ridge"},
        refuses={
            "federation.local_steps": Refusal(*_WHOLE, allowed=(1,)),
            "training.sampling_rate": Refusal(*_WHOLE, allowed=(1.0,)),
            "training.batch_size": Refusal(*_WHOLE),
            "training.divisor": Refusal(*_WHOLE, allowed=(1.0,)),
            "silo.local_steps": Refusal(*_WHOLE),
            "noise.rounding": Refusal(
                "must be auto or record for newton (its integers are exact, record by record)",
                "Leave it out.",
                allowed=("record",),
            ),
            **{
                key: Refusal(*_BENT)
                for key in (
                    "training.learning_rates",
                    "training.local_momentum",
                    "training.server_optimizer",
                    "silo.learning_rate",
                )
            },
            **_no_penalty("newton"),
        },
    ),
    AlgorithmRules(
        name="single-step",
        protects="records",
        steps="one",
        guarantee="noisy_steps",
        local="noisy_steps",
        keys=_CLIPPING | _ANY_LOSS | _DEVICE | _TARGETS | _MAPPED | _ROUNDS,
        refuses={
            "federation.local_steps": Refusal(
                'must be 1 for "single-step"', 'Use "dp-sgd" for more.', allowed=(1,)
            ),
            **_no_penalty("single-step"),
        },
    ),
    AlgorithmRules(
        name="silo",
        protects="silo",
        steps="several",
        guarantee="whole_update",
        local="whole_update",
        keys=_CLIPPING | _EPOCHS | _ROUNDS,
        refuses=_one_rate("silo"),
    ),
    AlgorithmRules(
        name="fedavg",
        protects="nothing",
        steps="several",
        guarantee="whole_update",
        local="whole_update",
        keys=_CLIPPING | _EPOCHS | _ROUNDS,  # the clip norm sets its grid
        refuses=_one_rate("fedavg"),
    ),
    AlgorithmRules(
        name="describe",
        protects="records",
        steps="none",
        sums="cells",
        guarantee="describe",
        local="describe",
        keys=frozenset({"describe.columns", "describe.numbers", "describe.bins"}),
        refuses={
            "federation.rounds": Refusal(*_COUNTED, allowed=(1,)),
            "federation.local_steps": Refusal(*_COUNTED, allowed=(1,)),
            "training.sampling_rate": Refusal(*_COUNTED, allowed=(1.0,)),
            "training.batch_size": Refusal(*_COUNTED),
            "training.divisor": Refusal(*_COUNTED, allowed=(1.0,)),
            "silo.local_steps": Refusal(*_COUNTED),
            "noise.rounding": Refusal(
                "must be auto or record for describe (counts are whole numbers)",
                "Leave it out.",
                allowed=("record",),
            ),
            "evaluation.metrics": Refusal(
                'must be "none" for describe (there is no model to measure)',
                "Leave it out.",
                allowed=("none",),
            ),
            **{
                key: Refusal(*_NO_MODEL)
                for key in (
                    "training.learning_rate",
                    "training.learning_rates",
                    "training.local_momentum",
                    "training.l2_penalty",
                    "training.start_from",
                    "training.server_learning_rate",
                    "training.server_rate_schedule",
                    "training.average_decay",
                    "training.server_momentum",
                    "training.server_optimizer",
                    "training.iterate_average",
                    "silo.learning_rate",
                )
            },
        },
    ),
)

RULES: Mapping[str, AlgorithmRules] = MappingProxyType({rules.name: rules for rules in _RULES})
"""By `training.algorithm`, in the order in which people read them."""


def algorithms_with(key: str) -> tuple[str, ...]:
    """`only` of a plan key that not all algorithms know: the deciding key, and its values."""
    return ("training.algorithm", *(rules.name for rules in _RULES if key in rules.keys))
