"""`sumus audit theorem`: what per-step accounting of several local steps claims, what two attacks measure, what the proved analyses keep.

Every attack runs twice, each time with a test and a number of trials fixed beforehand: thousands of trials on the silos' own code behind
the real secure sum (silos_code.py), and millions on a vectorised form of the same integer recursion with noise from the same sampler. The
tests show that the two give the same integers for the same noise; the output has both bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from typing import Any, final

import numpy as np
from scipy.stats import fisher_exact

from sumus.accounting.loss_distribution import epsilon_gaussian
from sumus.audit.attacks import Attack, forgetting_attack, threshold_attack
from sumus.audit.confidence import Counts, best_test, epsilon_lower_bound, gaussian_epsilon
from sumus.audit.convex_attack import ConvexAttack
from sumus.audit.regression import LOGISTIC, REGRESSIONS, Regression
from sumus.audit.silos_code import released_by_silos
from sumus.data.silos import PublicFacts
from sumus.design import NoiseDesign
from sumus.errors import PlanError
from sumus.guarantee import account_of, calibrate_design
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.resolve import resolve

__all__ = ["AttackResult", "ProvedResult", "TheoremAudit", "attack_design", "audit_theorem", "count_hits"]

_CHUNK = 1 << 18  # draws of one silo and step that are held in memory at a time
_WIDTH = 128  # most trials in one round of the silos' code
_RECORDS, _CONVEX_RECORDS = 1 << 20, 1 << 11  # public bounds on a silo's records: more than any attack holds
_DISAGREE = 5e-10  # p-value, per hypothesis, below which code and recursion are said to differ

Progress = Callable[[str], None]
Maker = Callable[[float], Attack]
"""From a threshold to the attack that tests at it."""


@final
@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """One attack on one algorithm.

    Args:
        exact_epsilon: ε at δ of the attack's score in the Gaussian limit.
        lower_bound: what the counted verdicts of the recursion prove, at the confidence of the audit.
        trials: of the recursion, both hypotheses together.
        code_lower_bound: what the verdicts on the silos' own code prove by themselves.
        code_trials: of the silos' code.
        code_agrees: whether recursion and code have the same rates at the code's test (false alarm below 1e-9).
    """

    attack: str
    model: str
    exact_epsilon: float
    lower_bound: float
    true_rate: float
    false_rate: float
    trials: int
    code_lower_bound: float
    code_trials: int
    code_agrees: bool

    @property
    def best(self) -> float:
        """The larger of the two bounds; all bounds of an analysis hold together."""
        return max(self.lower_bound, self.code_lower_bound)


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
        found = {name: value for name, value in vars(self).items() if name not in ("designs", "attacks", "proved")}
        found["attacks"] = [asdict(each) for each in self.attacks]
        found["proved"] = [asdict(each) for each in self.proved]
        return found | {"refuted": self.refuted}


@final
@dataclass(frozen=True)
class _Effort:
    """How many trials an attack gets, and how sure each of its bounds has to be."""

    trials: int
    code_trials: int
    delta: float
    confidence: float

    def part(self, of_trials: int, of_code_trials: int) -> _Effort:
        """A fraction of the trials, but always some."""
        return replace(self, trials=max(self.trials // of_trials, 1000), code_trials=max(self.code_trials // of_code_trials, 2))

    def shared_by(self, bounds: int) -> _Effort:
        """Confidence for each of several bounds that are to hold together."""
        return replace(self, confidence=1.0 - (1.0 - self.confidence) / bounds)


def audit_theorem(
    *,
    silos: int,
    local_steps: int,
    epsilon: float,
    delta: float = 1e-5,
    confidence: float = 0.999,
    models: Sequence[str] = tuple(REGRESSIONS),
    trials: int = 20_000_000,
    code_trials: int = 65_536,
    source: RandomSource | None = None,
    progress: Progress = lambda _: None,
) -> TheoremAudit:
    """Attack the paper's per-step claim and the proved analyses with the same data sets.

    Args:
        silos: N, at least 2.
        local_steps: S, at least 2.
        epsilon: what the per-step accounting claims, at `delta`.
        confidence: of all lower bounds of one analysis together: both attacks, all models, recursion and code, both error rates.
        models: "logistic", "least-squares" or both.
        trials: of attack A's recursion on the claim, per model; attack B gets a quarter, the proved analyses a tenth.
        code_trials: of attack A on the silos' own code, per model; attack B and the proved analyses get a sixteenth.
        source: random bits; from the operating system if omitted.
    """
    for name, value in (("silos", silos), ("local_steps", local_steps)):
        if value < 2:
            raise PlanError(name, value, "must be at least 2: with one silo or one step the accounting is right", "Use 2 or more.")
    if not models or not set(models) <= set(REGRESSIONS):
        raise PlanError("models", tuple(models), f"must be some of {', '.join(REGRESSIONS)}", "Check the spelling.")
    source = source or RandomSource()
    chosen = [REGRESSIONS[name] for name in models]
    build = partial(attack_design, silos=silos, local_steps=local_steps, epsilon=epsilon, delta=delta)
    designs = {"per-step": build("dp-sgd", calibrate_to="per-step"), "local": build("dp-sgd", calibrate_to="proved")}
    designs |= {name: build(name, calibrate_to="proved") for name in ("split-noise", "convex-pass")}
    effort = _Effort(trials, code_trials, delta, confidence)
    progress("attacking the per-step claim")
    claimed = designs["per-step"]
    found = _attack_steps(claimed, chosen, effort.shared_by(4 * len(chosen)), source)
    proved = []
    for name in ("local", "split-noise", "convex-pass"):
        progress(f"the same attacks on {name}")
        fewer = effort.part(10, 16)
        if name == "convex-pass":
            results: tuple[AttackResult, ...] = (_measure(partial(ConvexAttack, designs[name]), fewer.shared_by(2), source),)
        else:
            results = _attack_steps(designs[name], chosen, fewer.shared_by(4 * len(chosen)), source)
        best = max(result.best for result in results)
        proved.append(ProvedResult(analysis=name, epsilon=account_of(designs[name]).epsilon, lower_bound=best, attacks=results))
    sigma = math.sqrt(claimed.share.variance_grid * silos) / claimed.silos[0].l2_grid
    return TheoremAudit(
        silos=silos,
        local_steps=local_steps,
        models=tuple(models),
        claimed_epsilon=next(each.epsilon for each in account_of(claimed).analyses if each.name == "per-step"),
        delta=delta,
        lower_bound=max(result.best for result in found),
        code_lower_bound=max(result.code_lower_bound for result in found),
        confidence=confidence,
        exact_epsilon=max(result.exact_epsilon for result in found),
        worst_case_epsilon=epsilon_gaussian(math.sqrt(silos * (local_steps - 1) + 1) / sigma, delta),
        noise_multiplier=claimed.plan.noise.noise_multiplier or 0.0,
        attacks=found,
        proved=tuple(proved),
        designs=designs,
    )


# -- designs ------------------------------------------------------------------------------------------------------------------------


@cache
def attack_design(
    algorithm: str, *, silos: int, local_steps: int, epsilon: float, delta: float, calibrate_to: str, width: int = _WIDTH
) -> NoiseDesign:
    """One round, one weight per trial, full batches, noise calibrated to (ε, δ); modulus and grid wide enough for every attack."""
    convex = algorithm == "convex-pass"
    records = _CONVEX_RECORDS if convex else _RECORDS
    training: dict[str, Any] = {"algorithm": algorithm, "model": LOGISTIC.name, "dimension": width, "clip_norm": 1.0, "learning_rate": 1.0}
    training |= {"divisor": float(records)} if convex else {"divisor": 1.0, "sampling_rate": 1.0}  # convex: bins never overflow
    plan = TrainingPlan.from_table(
        {
            "privacy": {"epsilon": epsilon, "delta": delta, "calibrate_to": calibrate_to},
            "federation": {"silos": silos, "rounds": 1, "local_steps": local_steps},
            "training": training,
            "noise": {"resolution_bits": 16},
            "aggregation": {"protocol": "secagg", "modulus_bits": 56},
        }
    )
    names = tuple(f"silo-{index}" for index in range(silos))
    facts = PublicFacts("attack", names, (records,) * silos, (width,), 2, ("0", "1"))
    return calibrate_design(resolve(plan, facts), names)


# -- trials -------------------------------------------------------------------------------------------------------------------------


def _attack_steps(built: NoiseDesign, chosen: Sequence[Regression], effort: _Effort, source: RandomSource) -> tuple[AttackResult, ...]:
    """Both attacks with every model."""
    return tuple(
        _measure(partial(make, built, regression), share, source)
        for make, share in ((threshold_attack, effort), (forgetting_attack, effort.part(4, 16)))
        for regression in chosen
    )


def _measure(make: Maker, effort: _Effort, source: RandomSource) -> AttackResult:
    """Count verdicts, of the recursion and of the silos' code, each with its own test."""
    separation = make(0.0).separation
    test = best_test(separation, trials=effort.trials, delta=effort.delta, confidence=effort.confidence)
    attack = make(test.threshold)
    counts = _count(attack, test.with_record, test.without_record, source)
    code_test = best_test(separation, trials=effort.code_trials, delta=effort.delta, confidence=effort.confidence)
    attack = make(code_test.threshold)
    by_code = _count_on_code(attack, code_test.with_record / effort.code_trials, effort.code_trials, source)
    alike = _count(attack, 4 * by_code.with_record, 4 * by_code.without_record, source)
    return AttackResult(
        attack=attack.name,
        model=attack.regression.name,
        exact_epsilon=gaussian_epsilon(separation, effort.delta),
        lower_bound=epsilon_lower_bound(counts, delta=effort.delta, confidence=effort.confidence),
        true_rate=counts.true_hits / counts.with_record,
        false_rate=counts.false_hits / counts.without_record,
        trials=counts.with_record + counts.without_record,
        code_lower_bound=epsilon_lower_bound(by_code, delta=effort.delta, confidence=effort.confidence),
        code_trials=by_code.with_record + by_code.without_record,
        code_agrees=_agree(by_code, alike),
    )


def count_hits(attack: Attack, trials: int, source: RandomSource, *, with_record: bool, tests: Sequence[Attack] = ()) -> list[int]:
    """How often the recursion's trials are called "in".

    Args:
        tests: attacks that differ in their verdict only; each judges the same trials. By default `attack` itself.
    """
    chunk = max(1, _CHUNK // max(1, len(attack.design.silos) // 8))
    hits = np.zeros(max(len(tests), 1), dtype=np.int64)
    for start in range(0, trials, chunk):
        totals = attack.totals(attack.draw(min(chunk, trials - start), source), with_record=with_record)
        hits += [int(test.says_in(totals).sum()) for test in tests or (attack,)]
    return hits.tolist()


def _count(attack: Attack, with_record: int, without_record: int, source: RandomSource) -> Counts:
    return Counts(
        true_hits=count_hits(attack, with_record, source, with_record=True)[0],
        with_record=with_record,
        false_hits=count_hits(attack, without_record, source, with_record=False)[0],
        without_record=without_record,
    )


def _count_on_code(attack: Attack, share_inside: float, trials: int, source: RandomSource) -> Counts:
    """Verdicts on the silos' code; every round has the record in the first coordinates and not in the others."""
    width = attack.design.plan.training.dimension or 1
    rounds, first = -(-trials // width), min(max(round(width * share_inside), 1), width - 1)
    said = attack.says_in(released_by_silos(attack, np.arange(width) < first, rounds=rounds, source=source))
    return Counts(
        true_hits=int(said[:, :first].sum()),
        with_record=rounds * first,
        false_hits=int(said[:, first:].sum()),
        without_record=rounds * (width - first),
    )


def _agree(code: Counts, recursion: Counts) -> bool:
    """Fisher's exact test of equal rates, for either hypothesis."""
    tables = (
        [[each.true_hits, each.with_record - each.true_hits] for each in (code, recursion)],
        [[each.false_hits, each.without_record - each.false_hits] for each in (code, recursion)],
    )
    return all(float(fisher_exact(np.array(table)).pvalue) >= _DISAGREE for table in tables)
