"""Runs made up for tests: a plausible plan, its account and rounds, without training anything."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from sumus.books import RoundEntry, RunFolder
from sumus.comparing import Comparison, Contender, SiloAlone
from sumus.guarantee import Account
from sumus.guarantee.claims import Analysis
from sumus.plan import TrainingPlan

SILOS = ("north", "south", "east", "west", "centre")


def made_plan(**overrides: Any) -> TrainingPlan:
    """A resolved plan; keyword `section__key` replaces `section.key`."""
    plan = TrainingPlan.from_toml(
        """
        [privacy]
        epsilon = 1.0
        delta = 1e-5
        [federation]
        silos = 5
        rounds = 12
        local_steps = 60
        dropouts = 1
        colluding = 0
        [training]
        algorithm = "convex-pass"
        model = "softmax"
        dimension = 650
        [noise]
        noise_multiplier = 12.5
        [data]
        name = "digits"
        """
    )
    return plan.with_overrides({key.replace("__", "."): value for key, value in overrides.items()})


def made_account(plan: TrainingPlan, **changes: Any) -> Account:
    """An account as `sumus.account` would give it for such a plan."""
    values: dict[str, Any] = {
        "epsilon": 0.9994,
        "delta": plan.privacy.delta,
        "proved": True,
        "analysis": "convex-pass",
        "accountant": "pld",
        "noise_multiplier": plan.noise.noise_multiplier or 1.0,
        "local_noise_multiplier": (plan.noise.noise_multiplier or 1.0)
        / math.sqrt(plan.noise_contributors),
        "unit": plan.privacy.unit,
        "neighbours": "one record of one silo, add or remove",
        "trust": "4 of 5 silos present and honest; server honest-but-curious",
        "releases": f"{plan.federation.rounds} sums, one per round",
        "epsilon_per_silo": {},
        "target_epsilon": plan.privacy.epsilon,
        "tuning_epsilon": None,
        "metrics_epsilon": None,
        "plan_hash": plan.hash,
    }
    values |= changes
    statements = {
        "convex-pass": "noiseless non-expansive local pass, one draw of noise per round",
        "local": "the silo's own noise alone protects its records, whatever the others do",
    }
    analyses = tuple(
        Analysis(
            name=name,
            epsilon=values["epsilon"] * factor,
            delta=values["delta"],
            proved=True,
            statement=statements[name],
        )
        for name, factor in (("convex-pass", 1.0), ("local", 2.31))
    )
    return Account(**({"analyses": analyses} | values))


def made_round(
    number: int, *, rounds: int = 12, silos: tuple[str, ...] = SILOS, seed: int = 0, **changes: Any
) -> RoundEntry:
    """A plausible round; `accuracy`, `loss` and their `…_plus_minus` are changes of its metrics."""
    draw = np.random.default_rng((seed, number))
    reached = 0.91 - 0.62 * math.exp(-number / (0.22 * rounds)) - 0.02 * seed
    spread = np.clip(reached + draw.normal(0.0, 0.03, len(silos)), 0.0, 1.0)
    dropped = (silos[-1],) if number % 5 == 3 and len(silos) > 1 else ()
    values: dict[str, Any] = {
        "round": number,
        "round_id": f"{seed:02d}-{number:06d}",
        "epsilon_spent": 0.9994 * math.sqrt(number / rounds),
        "delta": 1e-5,
        "survivors": tuple(name for name in silos if name not in dropped),
        "dropped": dropped,
        "silo_scores": tuple(map(float, spread)),
        "clipped_fraction": 0.4 * math.exp(-number / rounds),
        "headroom_bits": 3.4 + 0.1 * float(draw.normal()),
        "update_norm": 1.9 * math.exp(-number / (0.5 * rounds)) + 0.3,
        "noise_norm_expected": 0.27,
        "seconds": {
            "local": 0.31,
            "noise": 0.02,
            "protocol": 0.06 + 0.01 * float(draw.random()),
            "evaluate": 0.05,
            "server": 0.004,
        },
        "bytes_up": 5 * 650 * 4 + 9000,
        "bytes_down": 5 * 650 * 8 + 4000,
        "metrics_are": "simulation-only",
        "counts_are": "simulation-only",
    }
    metrics: dict[str, Any] = {
        "accuracy": float(spread.mean()),
        "loss": 2.3 * math.exp(-number / (0.3 * rounds)) + 0.35 + 0.02 * seed,
    }
    widths: dict[str, Any] = {}
    for name in ("accuracy", "loss"):
        metrics[name] = changes.pop(name, metrics[name])
        widths[name] = changes.pop(f"{name}_plus_minus", None)
    for field, numbers in (("metrics", metrics), ("metrics_plus_minus", widths)):
        values[field] = {name: value for name, value in numbers.items() if value is not None}
    return RoundEntry(**(values | changes))


def made_comparison(
    value: float, *, non_private: float = 0.954, silos: tuple[str, ...] = ("a",)
) -> Comparison:
    """A run's accuracy beside others that are made up."""

    def beside(key: str, title: str, other: float) -> Contender:
        return Contender(
            key=key,
            title=title,
            remark=f"remark on {key}",
            value=other,
            plus_minus=0.02,
            gain=value - other,
            gain_plus_minus=0.01,
        )

    return Comparison(
        measure="accuracy",
        value=value,
        plus_minus=0.02,
        contenders=(
            beside("constant", "most frequent class", 0.113),
            beside("non_private", "all silos together, no privacy", non_private),
            beside("alone", "each silo alone, no privacy", 0.842),
        ),
        silos=tuple(
            SiloAlone(
                name=name,
                train=80,
                test=20 + place,
                value=0.842,
                plus_minus=0.02,
                gain=value - 0.842,
                gain_plus_minus=0.01,
            )
            for place, name in enumerate(silos)
        ),
        unit="record",
        private=True,
        large=20,
        seconds=1.0,
    )


def made_run(
    root: Path,
    *,
    rounds: int = 12,
    seed: int = 0,
    finished: bool = True,
    silos: tuple[str, ...] = SILOS,
    **plan: Any,
) -> Path:
    """A run folder with all its rounds; returns its path."""
    the_plan = made_plan(federation__rounds=rounds, federation__silos=len(silos), **plan)
    unsynced = mock.patch("os.fsync")  # a made-up run need not survive a power cut
    with unsynced, RunFolder.create(the_plan, made_account(the_plan), root, silos=silos) as run:
        for number in range(1, rounds + 1):
            weights = np.full(650, 0.01 * number)
            run.commit(
                made_round(number, rounds=rounds, seed=seed, silos=silos),
                {"weights": weights},
                {"round": number},
            )
        if finished:
            last = run.rounds()[-1]
            run.finish(
                {
                    **last.metrics,
                    "seconds": 0.45 * rounds,
                    "rounds": rounds,
                    "baselines": {"majority": 0.113},
                    "comparison": [
                        made_comparison(last.metrics["accuracy"], silos=silos).as_json()
                    ],
                }
            )
        return run.path
