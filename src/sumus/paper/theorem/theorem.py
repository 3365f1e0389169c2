"""`sumus audit theorem`: what per-step accounting of several local steps claims (Heikkilä 2025,
theorem 4.5), what two attacks measure, what the proved analyses keep.

Every attack runs twice: thousands of trials on the silos' own code behind the real secure sum
(silos_code.py), and millions on a vectorised form of the same integer recursion with noise from the
same sampler (attacks.py).
"""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from typing import Any, final

import torch

from sumus.accounting import epsilon_gaussian
from sumus.errors import PlanError
from sumus.guarantee import NoiseDesign, account_of, calibrated
from sumus.paper.theorem.attacks import Attack, forgetting_attack, threshold_attack
from sumus.paper.theorem.convex_attack import ConvexAttack, tangent_attack
from sumus.paper.theorem.measure import AttackResult, Effort, Maker, measure
from sumus.paper.theorem.newton_attack import NewtonAttack
from sumus.paper.theorem.regression import LOGISTIC, REGRESSIONS, Regression
from sumus.plan import PublicFacts, TrainingPlan
from sumus.randomness import RandomSource
from sumus.tasks import LabelFacts

__all__ = ["ProvedResult", "TheoremAudit", "attack_design", "audit_theorem"]

_WIDTH = 128  # most trials in one round of the silos' code
# public bounds on a silo's records: more than any attack holds
_RECORDS, _CONVEX_RECORDS = 1 << 20, 1 << 11
_PASSES = ("convex-pass", "tangent-pass")
_PROVED = ("last-step", "local", "split-noise", *_PASSES, "newton")

Progress = Callable[[str], None]


@final
@dataclass(frozen=True, kw_only=True)
class ProvedResult:
    """A proved analysis under the same attacks."""

    analysis: str
    epsilon: float
    lower_bound: float
    attacks: tuple[AttackResult, ...]


@final
@dataclass(frozen=True, kw_only=True)
class TheoremAudit:
    """What was claimed, what leaks, what is proved.

    Args:
        claimed_epsilon: of the per-step accounting.
        exact_epsilon: ε of the best attack, in the Gaussian limit.
        worst_case_epsilon: of the exact worst case, μ² = (N(S−1) + 1)/σ².
        lower_bound: the largest measured bound; all of them hold together with `confidence`.
        code_lower_bound: the largest of those that rest on the silos' own code alone.
    """

    silos: int
    local_steps: int
    models: tuple[str, ...]
    claimed_epsilon: float
    delta: float
    lower_bound: float
    code_lower_bound: float
    confidence: float
    exact_epsilon: float
    worst_case_epsilon: float
    noise_multiplier: float
    attacks: tuple[AttackResult, ...]
    proved: tuple[ProvedResult, ...]
    designs: dict[str, NoiseDesign] = field(repr=False)

    @property
    def refuted(self) -> bool:
        """Whether a measured bound exceeds the claim."""
        return self.lower_bound > self.claimed_epsilon

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        values = {
            name: value
            for name, value in vars(self).items()
            if name not in ("designs", "attacks", "proved")
        }
        values["attacks"] = [asdict(each) for each in self.attacks]
        values["proved"] = [asdict(each) for each in self.proved]
        return values | {"refuted": self.refuted}


def audit_theorem(
    *,
    silos: int,
    local_steps: int,
    epsilon: float,
    delta: float = 1e-5,
    confidence: float = 0.999,
    models: Sequence[str] = tuple(REGRESSIONS),
    trials: int = 20_000_000,
    code_trials: int = 49_152,
    workers: int = 1,
    source: RandomSource | None = None,
    progress: Progress = lambda _: None,
) -> TheoremAudit:
    """Attack the paper's per-step claim and the proved analyses with the same data sets.

    Args:
        silos: N, at least 2.
        local_steps: S, at least 2.
        epsilon: what the per-step accounting claims, at `delta`.
        confidence: of all lower bounds of one analysis together: both attacks, all models,
            recursion and code, both error rates.
        models: "logistic", "least-squares" or both.
        trials: of attack A's recursion on the claim, per model; attack B gets a quarter, the proved
            analyses a tenth.
        code_trials: of attack A on the silos' own code, per model; attack B and the proved analyses
            get a sixteenth.
        workers: processes; 1 computes everything in this one. The result for a given source does
            not depend on it.
        source: random bits; from the operating system if omitted.
    """
    for name, value in (("silos", silos), ("local_steps", local_steps)):
        if value < 2:
            raise PlanError(
                name,
                value,
                "must be at least 2: with one silo or one step the accounting is right",
                "Use 2 or more.",
            )
    if not models or not set(models) <= set(REGRESSIONS):
        raise PlanError(
            "models",
            tuple(models),
            f"must be some of {', '.join(REGRESSIONS)}",
            "Check the spelling.",
        )
    source = source or RandomSource()
    build = partial(
        attack_design, silos=silos, local_steps=local_steps, epsilon=epsilon, delta=delta
    )
    claimed = build("dp-sgd", calibrate_to="per-step")
    designs = {
        "per-step": claimed,
        "last-step": build("dp-sgd", calibrate_to="proved"),
        "local": build("dp-sgd", calibrate_to="local"),
    }
    designs |= {name: build(name, calibrate_to="proved") for name in _PROVED[2:]}
    tasks = _tasks(
        designs,
        [REGRESSIONS[name] for name in models],
        Effort(trials, code_trials, delta, confidence),
    )
    keys = [source.bytes(32) for _ in tasks]
    results: dict[str, list[AttackResult]] = {name: [] for name in designs}
    for (analysis, _, _), result in zip(tasks, _run(tasks, keys, workers), strict=True):
        results[analysis].append(result)
        progress(f"{analysis}: {result.attack}, {result.model}")
    against_the_claim = results["per-step"]
    sigma = math.sqrt(claimed.share.variance_grid * silos) / claimed.silos[0].l2_grid
    return TheoremAudit(
        silos=silos,
        local_steps=local_steps,
        models=tuple(models),
        claimed_epsilon=next(
            each.epsilon for each in account_of(claimed).analyses if each.name == "per-step"
        ),
        delta=delta,
        lower_bound=max(result.best for result in against_the_claim),
        code_lower_bound=max(result.code_lower_bound for result in against_the_claim),
        confidence=confidence,
        exact_epsilon=max(result.exact_epsilon for result in against_the_claim),
        worst_case_epsilon=epsilon_gaussian(
            math.sqrt(silos * (local_steps - 1) + 1) / sigma, delta
        ),
        noise_multiplier=claimed.noise_multiplier,
        attacks=tuple(against_the_claim),
        proved=tuple(
            ProvedResult(
                analysis=name,
                epsilon=account_of(designs[name]).epsilon,
                lower_bound=max(result.best for result in results[name]),
                attacks=tuple(results[name]),
            )
            for name in _PROVED
        ),
        designs=designs,
    )


# -- designs


@cache
def attack_design(
    algorithm: str,
    *,
    silos: int,
    local_steps: int,
    epsilon: float,
    delta: float,
    calibrate_to: str,
    width: int = _WIDTH,
) -> NoiseDesign:
    """One round, one weight per trial, full batches, noise calibrated to (ε, δ); modulus and grid
    wide enough for every attack.
    """
    passes = algorithm in _PASSES
    records = _CONVEX_RECORDS if passes else _RECORDS
    newton = algorithm == "newton"  # which has one step a round
    training: dict[str, Any] = {
        "algorithm": algorithm,
        "model": LOGISTIC.name,
        "dimension": width,
        "clip_norm": 1.0,
        "learning_rate": 1.0,
    }
    # passes: bins never overflow
    training |= {"divisor": float(records)} if passes else {"divisor": 1.0, "sampling_rate": 1.0}
    plan = TrainingPlan.from_table(
        {
            # the bounds on records are only larger than any attack needs, so δ says nothing beside
            # them
            "privacy": {
                "epsilon": epsilon,
                "delta": delta,
                "calibrate_to": calibrate_to,
                "delta_may_expose_a_record": True,
            },
            "federation": {
                "silos": silos,
                "rounds": 1,
                "local_steps": 1 if newton else local_steps,
                "colluding": 0,
            },
            "training": training,
            "noise": {"resolution_bits": 16},
            "aggregation": {"protocol": "secagg", "modulus_bits": 56},
        }
    )
    names = tuple(f"silo-{index}" for index in range(silos))
    shape = (width - 1,) if newton else (width,)  # moments know of a bias: the last number is it
    facts = PublicFacts("attack", names, (records,) * silos, shape, LabelFacts(("0", "1")))
    return calibrated(plan, facts)


# -- attacks

_Task = tuple[str, Maker, Effort]
"""(analysis under attack, attack, how long)."""


def _tasks(
    designs: dict[str, NoiseDesign], chosen: Sequence[Regression], effort: Effort
) -> list[_Task]:
    """Both attacks with every model on every analysis, the longest first; all bounds of an analysis
    share its risk.
    """
    tasks: list[_Task] = []
    for analysis in ("per-step", "last-step", "local", "split-noise"):
        whole = (effort if analysis == "per-step" else effort.part(10, 16)).shared_by(
            4 * len(chosen)
        )
        for make, share in ((threshold_attack, whole), (forgetting_attack, whole.part(4, 16))):
            tasks += [
                (analysis, partial(make, designs[analysis], regression), share)
                for regression in chosen
            ]
    one_draw: dict[str, Callable[[NoiseDesign, float], Attack]] = {
        "convex-pass": ConvexAttack,
        "tangent-pass": tangent_attack,
        "newton": NewtonAttack,
    }
    part = effort.part(10, 16).shared_by(2)
    return [
        *tasks,
        *((name, partial(make, designs[name]), part) for name, make in one_draw.items()),
    ]


def _run(tasks: Sequence[_Task], keys: Sequence[bytes], workers: int) -> Iterator[AttackResult]:
    """The results in the order of the tasks, each from random bits of its own."""
    if workers <= 1:
        yield from map(_measured, tasks, keys)
        return
    with ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)
    ) as pool:
        yield from pool.map(_measured, tasks, keys)


def _measured(task: _Task, key: bytes) -> AttackResult:
    _, make, effort = task
    return measure(make, effort, RandomSource.from_key(key))
