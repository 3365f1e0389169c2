"""What a rebuild may change without being wrong; everything else must stay bit for bit.

    RENAMED    a key has another name: in plans, in `--set`, in JSON, among a checkpoint's arrays
    ADDED      a key of the plan is new, and its default is what the plan meant without it
    REWORDED   a text has other words: only the numbers in it are compared
    INTENDED   a value is another on purpose: it is not compared, and the reason stands here
    NEW_LINES  a printed text has more lines: those that begin so are left out
    LAST_BITS  floats are computed in another order: compared with a tolerance on every machine

Names are matched by `fnmatch` on the dotted path of a value, under today's names:
`dp-sgd-momentum.run.rounds.0.bytes_up`.

Plan hashes hang on the names of keys, and noise that can be removed hangs on the plan hash.
So that a renamed key changes neither, `surfaces.old_names` gives every plan the hash that it has
under its old names: with RENAMED and ADDED filled in, all other values stay bit for bit.
Hashes under today's names stand apart, as `plan_hash` of every entry, and `make.py --hashes` writes
them anew without touching anything else.
"""

from __future__ import annotations

from typing import Any

RENAMED: dict[str, str] = {"noise_share": "std_factor", "silo_accuracies": "silo_scores"}
"""Old key → new key, for example `{"noise_share": "std_factor"}`."""

ADDED: dict[str, Any] = {
    "training.task": "classification",
    "privacy.silos_per_person": 1,
    "data.person_weighting": "mean",
    "describe.bins": 32,
    "training.preconditioner": "none",
    "training.damping": 1.0,
    "training.rate_schedule": "constant",
    "training.server_rate_schedule": "constant",
    "training.average_decay": 1.0,
    "training.device": "cpu",
    "training.whitening": 0.5,
    "training.matrix_share": 0.3,
    "training.ridge": 0.001,
}
"""`section.key` of the plan → its default, for example `{"training.task": "classification"}`."""

REWORDED: tuple[str, ...] = ()
"""Paths of texts, for example `("*.text.*", "*.error")`."""

_SIGNED = "every message carries its sender's signature (protocol version 2)"
_KEYS = "fresh keys go round with one exchange more; rounds name their key set and number"
_SESSION = "noise that can be removed hangs on the session, which the server's key helps to name"
_MEASURES = "more is measured of a classifier, beside what a constant answer would reach"
_COUNTED = (
    "test records are counted by class and score, in more sums of another length; the plan says how "
    "many classes there are, and session and rounds are named by the plan"
)
_KEPT = "a checkpoint holds what later rounds of its plan depend on, and no more"
_MODEL = ("moved", "model.*", "released.*", "checkpoint.*")
_ROUND = ("accuracy", "loss", "headroom_bits", "silo_scores.*", "update_norm")

INTENDED: dict[str, str] = {
    "*.bytes_up": _SIGNED,
    "*.bytes_down": _SIGNED,
    "protocol*.messages": _KEYS,
    "protocol*.messages.*": _SIGNED,
    "protocol*.count": _KEYS,
    "protocol*.all messages": _SIGNED,
    "wire.*": _SIGNED,
    **{f"*removable.run.{name}": _SESSION for name in _MODEL},
    **{f"*removable.run.rounds.*.{name}": _SESSION for name in _ROUND},
    **{f"*removable.run.summary.{name}": _SESSION for name in ("accuracy", "loss")},
    "*.summary.ledger.before": "the total without this run stands beside the one with it",
    "*.summary.ledger.before.*": "the total without this run stands beside the one with it",
    "*.summary.model_hash": "the released model by the name that a later plan starts from",
    "*.summary.model_facts": "the hash of model.json, which says how rows and outputs are read",
    "*.summary.measures": "the words of the measures, with the class that they are of",
    "*.summary.lost_rounds": "one summary in process and across machines, where rounds can be lost",
    "*.run.rounds.*.notes": "the journal says who disagreed about shares and which sum was refused",
    "*.run.rounds.*.metrics_of_constant": _MEASURES,
    "*.run.rounds.*.metrics_tables": _MEASURES,
    **{
        f"*.summary.{name}{width}": _MEASURES
        for name in ("auroc", "average_precision", "brier", "calibration_error", "accuracy_spread")
        for width in ("", "_plus_minus")
    },
    "*.summary.plus_minus": _MEASURES,
    "*secure-metrics.resolved_under_old_names": _COUNTED,
    "*secure-metrics*.plan_hash": _COUNTED,
    "*secure-metrics*.metrics_epsilon": _COUNTED,
    "*secure-metrics.run.rounds.*.round_id": _COUNTED,
    **{
        f"*secure-metrics.run.{part}.{name}{width}": _COUNTED
        for part in ("rounds.*", "summary")
        for name in ("accuracy", "loss")
        for width in ("", "_plus_minus")
    },
    "ledger-secure-metrics.entries.*.epsilon": _COUNTED,
    "ledger-secure-metrics.*.ledger.epsilon": _COUNTED,
    "*.summary.metrics_of_constant": _MEASURES,
    "*.summary.metrics_tables": _MEASURES,
    **{f"*.checkpoint.{name}": _KEPT for name in ("mean", "first", "second")},
    "*.run.moved": _KEPT,
    "*.meaning": "accounts say what any membership attack can reach",
}
"""Path → why the value is another."""

NEW_LINES: tuple[str, ...] = ("  means        ",)
"""How lines begin that a text has more than the stored one."""

_FACTORS = "gradients of linear layers are clipped and rounded from their factors"
LAST_BITS: dict[str, str] = {
    "own-layer-norm": _FACTORS,
    "own-linear": _FACTORS,
    "own-convolutions": _FACTORS,
}
"""Name of an entry → why its floats have another order, for example `{"own-layer-norm": "…"}`."""
