"""Runs made up for pages: every task, few and many silos and rounds, and everything said that an
account and a journal can say.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from sumus.books import RoundEntry, RunFolder
from sumus.comparing import Comparison, Contender, SiloAlone
from sumus.guarantee import Account
from sumus.guarantee.meaning import Meaning
from sumus.plan import TrainingPlan
from support.synthetic_runs import made_account, made_plan, made_round

__all__ = ["KINDS", "reported_run"]

PEOPLE = (
    "one person of one silo with all its rows there, add or remove; a person with rows in several "
    "silos is protected in each by itself (privacy.silos_per_person); silos within "
    "data.records_per_silo (one beyond its bound leaves persons out, and then two differ)"
)
COLUMNS = ("age", "sex", "blood pressure", "cholesterol", "blood sugar", "rest ECG", "heart rate",
           "angina", "ST depression", "slope", "vessels", "thalassaemia", "smoker", "body mass index")  # fmt: skip
ASSUMED = (
    "which columns hold numbers was read off the file and taken as public",
    "warning: categories of thalassaemia were read off the file and taken as public: list them in "
    "data.categories",
    *(f"bounds of {name} were declared by the plan and taken as public" for name in COLUMNS[:9]),
    "silos and their names were read off column hospital and taken as public",
)
CAUTIONS = (
    "δ times the 303 training records is 0.03: on average δ allows 0.03 of them to be exposed "
    "whole. Choose a δ below 3.3e-04.",
    "federation.colluding = 0: a silo that shares its own noise with the server weakens the bound "
    "for the others.",
)
CLASSES = ("healthy", "mild", "moderate", "severe")
_CUTS = (0.0, 3.0, 6.0, 12.0, 24.0, 36.0)
_SHARES = (0.55, 0.2, 0.15, 0.1)
_TABLES: dict[str, Any] = {
    "classification": {
        "classes": {
            "share": _SHARES,
            "recall": (0.93, 0.41, 0.37, 0.52),
            "recall_plus_minus": (0.03, 0.11, 0.12, 0.14),
            "precision": (0.88, 0.5, 0.44, 0.61),
            "precision_plus_minus": (0.03, 0.12, 0.13, 0.14),
        },
        "confusion": {"true_by_predicted": tuple(float(7 * each) for each in range(16))},
        "reliability": {
            "predicted": (0.1, 0.4, 0.8),
            "observed": (0.12, 0.33, 0.83),
            "plus_minus": (0.03, 0.06, 0.05),
            "share": (0.5, 0.2, 0.3),
        },
    },
    "survival": {
        "kaplan_meier": {
            "time": _CUTS,
            "survival": (1.0, 0.95, 0.9, 0.8, 0.63, 0.5),
            "plus_minus": (0.0, 0.02, 0.03, 0.04, 0.05, 0.06),
        }
    },
    "regression": {},
}
_TASKS: dict[str, dict[str, Any]] = {
    "classification": {
        "data__label_column": "finding",
        "data__categories": {"finding": list(CLASSES)},
    },
    "survival": {"training__task": "survival", "data__intervals": list(_CUTS[1:])},
    "regression": {
        "training__task": "regression",
        "data__label_column": "days",
        "data__bounds": {"days": [0.0, 200.0]},
    },
}
KINDS: dict[str, dict[str, Any]] = {
    "classification": {"silos": 10},
    "survival": {"task": "survival", "silos": 6, "secure": True},
    "regression": {"task": "regression", "silos": 4},
    "131 silos": {"silos": 131, "wordy": True},
    "many rounds": {"silos": 5, "rounds": 300},
    "persons": {"silos": 12, "secure": True, "wordy": True},
    "void": {"silos": 10, "void": "the noise comes from a public seed (simulation)"},
    "not proved": {"silos": 10, "account": {"proved": False, "analysis": "per-step"}},
}
"""What `reported_run` takes, by name."""


def reported_run(
    root: Path,
    *,
    task: str = "classification",
    silos: int = 10,
    rounds: int = 20,
    secure: bool = False,
    wordy: bool = False,
    void: str | None = None,
    account: dict[str, Any] | None = None,
    name: str | None = None,
) -> Path:
    """A finished run of a task, with a ledger before and after; returns its path.

    Args:
        secure: metrics left the silos by secure sums.
        wordy: persons are protected, and there is much to assume.
        name: of the data set, and of every silo and class with a number behind it.
    """
    called = name or "Hospital"
    names = tuple(f"{called} {number + 1}" for number in range(silos))
    plan = made_plan(
        federation__silos=silos,
        federation__rounds=rounds,
        data__name=name or "heart disease",
        **_TASKS[task],
    )
    if name is not None:
        classes = [f"{name} {place}" for place in range(len(CLASSES))]
        plan = plan.replace("data", label_column=name, categories={name: tuple(classes)})
    told = _account(plan, silos=silos, secure=secure, wordy=wordy)
    told = replace(told, **(account or {}))
    with (
        mock.patch("os.fsync"),
        RunFolder.create(
            plan, told, root, silos=names, void=void, no_ledger=void, arithmetic={"torch": "2"}
        ) as run,
    ):
        for number in range(1, rounds + 1):
            run.append(_round(plan, number, rounds, names, task, secure=secure))
        run.finish(
            {
                **run.rounds()[-1].metrics,
                "rounds": rounds,
                "comparison": _comparisons(plan, names, run.rounds()[-1]),
                "model_hash": "sha256:" + "5e" * 32,
                "ledger": None if void else _ledger(told, name or "heart disease"),
            }
        )
        return run.path


def _ledger(account: Account, dataset: str) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "unit": account.unit,
        "epsilon": 2.4,
        "delta": 3e-5,
        "runs": 3,
        "proved": True,
        "before": {"epsilon": 1.4006, "delta": 2e-5, "runs": 2, "proved": True},
    }


def _account(plan: TrainingPlan, *, silos: int, secure: bool, wordy: bool) -> Account:
    colluding = "colluding silos know their own noise; server honest-but-curious"
    meaning = Meaning(
        mu=0.7,
        gaussian=False,
        advantage=0.273,
        false_positive_rates=(0.001, 0.01, 0.1),
        true_positive_rates=(0.0087, 0.0519, 0.28),
    )
    return made_account(
        plan,
        unit="person" if wordy else "record",
        neighbours=PEOPLE if wordy else "one record of one silo, add or remove",
        trust=f"{silos - 2} of {silos} silos present and honest; up to 1 "
        + (colluding if wordy else "silent; server honest-but-curious"),
        records_per_silo=tuple(30 + silo for silo in range(silos)),
        columns=COLUMNS,
        assumptions=ASSUMED if wordy else ASSUMED[:4],
        cautions=CAUTIONS if wordy else CAUTIONS[:1],
        metrics_epsilon=0.61 if secure else None,
        metrics_trust=f"{silos} of {silos} silos present and honest" if secure else None,
        participant_epsilon=1.31,
        protected_units=303,
        protected_kind="training persons" if wordy else "training records",
        delta_times_units=0.00303,
        meaning=meaning,
    )


def _round(
    plan: TrainingPlan,
    number: int,
    rounds: int,
    names: tuple[str, ...],
    task: str,
    *,
    secure: bool,
) -> RoundEntry:
    reached = 1.0 - math.exp(-number / (0.2 * rounds))
    draw = np.random.default_rng(number)
    measures = [*plan.task.measures, *([plan.task.spread] if plan.task.spread else [])]
    values = {
        measure.name: round(0.5 + 0.37 * reached, 4)
        if measure.larger_is_better
        else round((0.4 if measure.is_share else 61.0) * (1.0 - 0.6 * reached), 4)
        for measure in measures
    }
    widths = {name: 0.04 * abs(value) for name, value in values.items()}
    told: dict[str, Any] = {
        "metrics_are": "secure" if secure else "simulation-only",
        "counts_are": "none" if secure else "simulation-only",
        "silo_scores": None if secure else tuple(map(float, draw.uniform(0.6, 0.9, len(names)))),
    }
    if secure:
        told["clipped_fraction"] = None
    return made_round(
        number,
        rounds=rounds,
        silos=names,
        metrics=values,
        metrics_plus_minus=widths,
        metrics_of_constant={name: 0.7 * value for name, value in values.items()},
        metrics_tables=_TABLES[task] if number == rounds else {},
        **told,
    )


def _comparisons(plan: TrainingPlan, names: tuple[str, ...], measured: RoundEntry) -> list[Any]:
    """The run beside a constant answer, a model without privacy and each silo alone, by two
    measures.
    """
    contenders = {
        "constant": (0.7, plan.task.constant[1], "what always answering the same would reach"),
        "non_private": (
            1.04,
            "without privacy, tuned",
            "the best of several models of all records together, chosen on validation records",
        ),
        "alone": (0.86, "each silo alone", "mean over silos that train by themselves"),
        "alone_home": (0.91, "each silo alone at home", "measured on the silo's own test records"),
    }
    return [
        Comparison(
            measure=measure.name,
            value=measured.metrics[measure.name],
            plus_minus=0.031,
            contenders=tuple(
                Contender(
                    key=key,
                    title=title,
                    remark=remark,
                    value=measured.metrics[measure.name] * factor,
                    plus_minus=0.034,
                    gain=measured.metrics[measure.name] * (1.0 - factor),
                    gain_plus_minus=0.021,
                )
                for key, (factor, title, remark) in contenders.items()
            ),
            silos=tuple(
                SiloAlone(name=name, train=30, test=8, value=0.7, gain=0.1, gain_plus_minus=0.05)
                for name in names
            ),
            unit="record",
            private=True,
            large=0,
            seconds=2.5,
        ).as_json()
        for measure in plan.task.measures[:2]
    ]
