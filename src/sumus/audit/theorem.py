"""`sumus audit theorem`: what per-step accounting of several local steps claims, what two attacks measure, what the proved analyses keep.

Every attack runs twice: some hundreds of trials on the silos' own code (`NoisySteps` or `ConvexPass` behind the trusted sum), and
millions on a vectorised form of the same integer recursion with noise from the same sampler. The tests show that the two give the same
integers for the same noise; the output says how many trials each had.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
from torch import nn

from sumus.accounting.loss_distribution import epsilon_gaussian
from sumus.audit.attacks import Attack, ForgettingAttack, ThresholdAttack
from sumus.audit.confidence import Counts, best_test, epsilon_lower_bound, gaussian_epsilon
from sumus.audit.convex_attack import ConvexAttack
from sumus.audit.one_thread import one_torch_thread
from sumus.audit.plots import draw_roc
from sumus.data.silos import PublicFacts
from sumus.design import NoiseDesign, design
from sumus.errors import PlanError
from sumus.guarantee import account_of, calibrate_design
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.resolve import resolve
from sumus.training.aggregation import TrustedAggregation
from sumus.training.local_update import LocalUpdater, local_updater

__all__ = ["AttackResult", "ProvedResult", "TheoremAudit", "attack_design", "audit_theorem", "draw_theorem", "released_by_silos"]

_CHUNK = 1 << 18  # trials whose draws are held in memory at a time
_PLENTY = 1 << 20  # public bound on a silo's records: more than any attack holds

Progress = Callable[[str], None]


@final
@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """One attack on one algorithm.

    Args:
        exact_epsilon: ε at δ of the attack's score in the Gaussian limit.
        lower_bound: what the counted verdicts prove, at the confidence of the audit.
        trials: of the vectorised recursion, both hypotheses together.
        code_trials: of the silos' own code.
        code_agrees: whether the verdicts of the silos' code have the rates that the recursion measured (false alarm below 1e-9).
    """

    attack: str
    exact_epsilon: float
    lower_bound: float
    true_rate: float
    false_rate: float
    trials: int
    code_trials: int
    code_agrees: bool


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
        exact_epsilon: ε of the best of the two attacks, in the Gaussian limit.
        worst_case_epsilon: of the exact worst case, μ² = (N(S−1) + 1)/σ².
        lower_bound: the larger of the two measured bounds; both hold together with `confidence`.
    """

    silos: int
    local_steps: int
    claimed_epsilon: float
    delta: float
    lower_bound: float
    confidence: float
    exact_epsilon: float
    worst_case_epsilon: float
    noise_multiplier: float
    attacks: tuple[AttackResult, ...]
    proved: tuple[ProvedResult, ...]
    designs: dict[str, NoiseDesign] = field(repr=False)

    @property
    def refuted(self) -> bool:
        """Whether the measured bound exceeds the claim."""
        return self.lower_bound > self.claimed_epsilon

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        found = {name: value for name, value in vars(self).items() if name not in ("designs", "attacks", "proved")}
        found["attacks"] = [asdict(each) for each in self.attacks]
        found["proved"] = [asdict(each) for each in self.proved]
        return found | {"refuted": self.refuted}


def audit_theorem(
    *,
    silos: int,
    local_steps: int,
    epsilon: float,
    delta: float = 1e-5,
    confidence: float = 0.999,
    trials: int = 40_000_000,
    code_trials: int = 1000,
    source: RandomSource | None = None,
    progress: Progress = lambda _: None,
) -> TheoremAudit:
    """Attack the paper's per-step claim and the proved analyses with the same two data sets.

    Args:
        silos: N, at least 2.
        local_steps: S, at least 2.
        epsilon: what the per-step accounting claims, at `delta`.
        confidence: of every lower bound, jointly over both attacks and both error rates.
        trials: of the threshold attack's recursion; the others get a tenth, they have more to compute.
        code_trials: of the silos' own code, per attack on the claim; the proved analyses get a quarter.
        source: random bits; from the operating system if omitted.
    """
    for name, value in (("silos", silos), ("local_steps", local_steps)):
        if value < 2:
            raise PlanError(name, value, "must be at least 2: with one silo or one step the accounting is right", "Use 2 or more.")
    source = source or RandomSource()
    names = {"per-step": ("dp-sgd", "per-step"), "local": ("dp-sgd", "proved"), "split-noise": ("split-noise", "proved")}
    designs = {
        name: attack_design(algorithm, silos=silos, local_steps=local_steps, epsilon=epsilon, delta=delta, calibrate_to=target)
        for name, (algorithm, target) in names.items()
    }
    each = 1.0 - (1.0 - confidence) / 2.0  # two attacks share the risk
    progress("attacking the per-step claim")
    claimed = designs["per-step"]
    found = _attack_twice(claimed, delta, each, trials, code_trials, source)
    proved = []
    for name in ("local", "split-noise"):
        progress(f"the same attacks on {name}")
        results = _attack_twice(designs[name], delta, each, max(trials // 10, 1000), max(code_trials // 4, 2), source)
        bound = max(result.lower_bound for result in results)
        proved.append(ProvedResult(analysis=name, epsilon=_proved_epsilon(designs[name]), lower_bound=bound, attacks=results))
    progress("the same attacks on convex-pass")
    convex = attack_design("convex-pass", silos=silos, local_steps=local_steps, epsilon=epsilon, delta=delta, calibrate_to="proved")
    result = _attack_convex(convex, delta, confidence, max(trials // 10, 1000), max(code_trials // 4, 2), source)
    proved.append(ProvedResult(analysis="convex-pass", epsilon=_proved_epsilon(convex), lower_bound=result.lower_bound, attacks=(result,)))
    sigma = _effective_multiplier(claimed)
    return TheoremAudit(
        silos=silos,
        local_steps=local_steps,
        claimed_epsilon=next(each.epsilon for each in account_of(claimed).analyses if each.name == "per-step"),
        delta=delta,
        lower_bound=max(result.lower_bound for result in found),
        confidence=confidence,
        exact_epsilon=max(result.exact_epsilon for result in found),
        worst_case_epsilon=epsilon_gaussian(math.sqrt(silos * (local_steps - 1) + 1) / sigma, delta),
        noise_multiplier=claimed.plan.noise.noise_multiplier or 0.0,
        attacks=found,
        proved=tuple(proved),
        designs=designs | {"convex-pass": convex},
    )


# -- designs ------------------------------------------------------------------------------------------------------------------------


def attack_design(
    algorithm: str, *, silos: int, local_steps: int, epsilon: float, delta: float, calibrate_to: str, learning_rate: float = 1.0
) -> NoiseDesign:
    """One round, one weight, full batches, noise calibrated to (ε, δ); modulus and grid wide enough for every attack."""
    training: dict[str, Any] = {"algorithm": algorithm, "model": "logistic", "dimension": 1, "clip_norm": 1.0, "divisor": 1.0}
    if algorithm == "convex-pass":
        training |= {"divisor": float(_PLENTY), "learning_rate": 1.0}  # bins never overflow, whatever the records
    else:
        training |= {"sampling_rate": 1.0, "learning_rate": learning_rate}
    plan = TrainingPlan.from_table(
        {
            "privacy": {"epsilon": epsilon, "delta": delta, "calibrate_to": calibrate_to},
            "federation": {"silos": silos, "rounds": 1, "local_steps": local_steps},
            "training": training,
            "noise": {"resolution_bits": 16},
            "aggregation": {"protocol": "trusted", "modulus_bits": 56},
        }
    )
    names = tuple(f"silo-{index}" for index in range(silos))
    facts = PublicFacts("attack", names, (_PLENTY,) * silos, (1,), 2, ("0", "1"))
    return calibrate_design(resolve(plan, facts), names)


def tuned(built: NoiseDesign, learning_rate: float) -> NoiseDesign:
    """The same noise with another public learning rate."""
    return design(built.plan.replace("training", learning_rate=learning_rate), tuple(silo.name for silo in built.silos))


def _effective_multiplier(built: NoiseDesign) -> float:
    """σ: standard deviation of the summed noise of one step over the accounted sensitivity."""
    return math.sqrt(built.share.variance_grid * len(built.silos)) / built.silos[0].l2_grid


def _proved_epsilon(built: NoiseDesign) -> float:
    return account_of(built).epsilon


# -- trials -------------------------------------------------------------------------------------------------------------------------


def _attack_twice(
    built: NoiseDesign, delta: float, confidence: float, trials: int, code_trials: int, source: RandomSource
) -> tuple[AttackResult, AttackResult]:
    first = tuned(built, ThresholdAttack.learning_rate(built))
    separation = ThresholdAttack(first, 0.0).separation
    test = best_test(separation, trials=trials, delta=delta, confidence=confidence)
    by_threshold = _measure(
        ThresholdAttack(first, test.threshold), test.with_record, test.without_record, delta, confidence, code_trials, source
    )
    second = tuned(built, ForgettingAttack.learning_rate(built))
    fewer = max(trials // (2 * len(built.silos)), 1000)
    separation = ForgettingAttack(second, 0.0).separation
    test = best_test(separation, trials=fewer, delta=delta, confidence=confidence)
    by_forgetting = _measure(
        ForgettingAttack(second, test.threshold), test.with_record, test.without_record, delta, confidence, max(code_trials // 4, 2), source
    )
    return by_threshold, by_forgetting


def _attack_convex(
    built: NoiseDesign, delta: float, confidence: float, trials: int, code_trials: int, source: RandomSource
) -> AttackResult:
    separation = ConvexAttack(built, 0.0).separation
    test = best_test(separation, trials=trials, delta=delta, confidence=confidence)
    attack = ConvexAttack(built, test.threshold)
    return _measure(attack, test.with_record, test.without_record, delta, confidence, code_trials, source)


def _measure(
    attack: Attack, with_record: int, without_record: int, delta: float, confidence: float, code_trials: int, source: RandomSource
) -> AttackResult:
    """Count verdicts, of the recursion and of the silos' code."""
    counts = Counts(
        true_hits=_hits(attack, with_record, source, with_record=True),
        with_record=with_record,
        false_hits=_hits(attack, without_record, source, with_record=False),
        without_record=without_record,
    )
    agrees = all(
        _rates_agree(
            int(attack.says_in(released_by_silos(attack, code_trials // 2, source, with_record=inside)).sum()),
            code_trials // 2,
            hits / drawn,
        )
        for inside, hits, drawn in ((True, counts.true_hits, with_record), (False, counts.false_hits, without_record))
    )
    return AttackResult(
        attack=attack.name,
        exact_epsilon=gaussian_epsilon(attack.separation, delta),
        lower_bound=epsilon_lower_bound(counts, delta=delta, confidence=confidence),
        true_rate=counts.true_hits / with_record,
        false_rate=counts.false_hits / without_record,
        trials=with_record + without_record,
        code_trials=2 * (code_trials // 2),
        code_agrees=agrees,
    )


def _hits(attack: Attack, trials: int, source: RandomSource, *, with_record: bool) -> int:
    chunk = max(1, _CHUNK // max(1, len(attack.design.silos) // 8))
    return sum(
        int(attack.says_in(attack.totals(attack.draw(min(chunk, trials - start), source), with_record=with_record)).sum())
        for start in range(0, trials, chunk)
    )


def _rates_agree(hits: int, trials: int, rate: float) -> bool:
    """Two-sided binomial check with a false-alarm rate below 1e-9 (the recursion's own error is smaller by the root of its trials)."""
    from scipy.stats import binom

    allowed = max(rate, 1e-12)
    return bool(min(binom.cdf(hits, trials, allowed), binom.sf(hits - 1, trials, allowed)) > 5e-10)


def released_by_silos(
    attack: Attack, trials: int, source: RandomSource, *, with_record: bool, sources: Callable[[int, int], RandomSource] | None = None
) -> npt.NDArray[np.int64]:
    """The released sums of rounds that the silos' own code computes, added up in the ring by the trusted sum.

    Args:
        sources: (trial, silo) to the random bits of one silo; by default each gets a key of its own from `source`.
    """
    built = attack.design
    model = nn.Sequential(nn.Linear(1, 1, bias=False)).double()
    updaters: list[LocalUpdater] = [
        local_updater(built, silo, records, model)
        for silo, records in zip(built.silos, attack.records(with_record=with_record), strict=True)
    ]
    keyed = sources or (lambda _trial, _silo: RandomSource.from_key(source.bytes(32)))
    out = np.empty(trials, dtype=np.int64)
    everybody = frozenset(range(len(updaters)))
    current = 0

    def answer(silo: int, parameters: npt.NDArray[np.float64], seeds: Sequence[bytes]) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
        return updaters[silo](parameters, keyed(current, silo), seeds).vector

    adder = TrustedAggregation(built.plan, answer)
    with one_torch_thread():
        for current in range(trials):
            out[current] = adder(0, attack.first_parameters, everybody, {}).total[0]
    return out


# -- the picture --------------------------------------------------------------------------------------------------------------------


def draw_theorem(folder: Path, audit: TheoremAudit, *, trials: int = 400_000, source: RandomSource | None = None) -> list[Path]:
    """Two ROC curves against the claim: the threshold attack on the per-step claim, and on the proved analyses."""
    source = source or RandomSource()
    measured = []
    for name, label in (("per-step", "per-step claim, attack A"), ("local", "local, attack A"), ("split-noise", "split-noise, attack A")):
        built = audit.designs[name]
        fitted = tuned(built, ThresholdAttack.learning_rate(built))
        points = [_roc_point(ThresholdAttack(fitted, float(t)), trials, source) for t in (-0.5, 0.5, 1.25, 2.0, 2.75, 3.25)]
        measured.append((label, ThresholdAttack(fitted, 0.0).separation, points))
    convex = audit.designs["convex-pass"]
    points = [_roc_point(ConvexAttack(convex, float(t)), trials, source) for t in (-0.5, 0.5, 1.25, 2.0, 2.75, 3.25)]
    measured.append(("convex-pass, the same records", ConvexAttack(convex, 0.0).separation, points))
    subtitle = f"{audit.silos} silos, {audit.local_steps} local steps; points: {trials:,} trials each side, bars 99.9 %; lines: exact"
    return draw_roc(
        folder,
        title="Claimed and measured: telling whether one record was there",
        subtitle=subtitle,
        epsilon=audit.claimed_epsilon,
        delta=audit.delta,
        measured=measured,
    )


def _roc_point(attack: Attack, trials: int, source: RandomSource) -> tuple[float, float, float, float]:
    hits = _hits(attack, trials, source, with_record=True)
    false_hits = _hits(attack, trials, source, with_record=False)
    low, _ = Counts(true_hits=hits, with_record=trials, false_hits=0, without_record=trials).limits(0.999)
    _, high = Counts(true_hits=0, with_record=trials, false_hits=hits, without_record=trials).limits(0.999)
    return max(false_hits, 0.5) / trials, hits / trials, low, high
