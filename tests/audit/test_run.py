"""The audit of a plan: silent on the real code, loud on every planted bug.

Bugs are planted by replacing functions of ours from outside; production code has no switch for
them. A correct pipeline fails the audit with probability at most 1 − confidence + 2e-9 = 1e-6 +
2e-9; in fact with about 2e-9, since these designs stay inside their curve by more than the
confidence limits ask (exact binomial sums: 1e-13). The 24 runs of `_audit` have 3,840 silent
values, so their variance ratio has the relative standard deviation √(2/3840) = 0.023 and leaves ±
15 % with probability 2e-10. The bits are the same in every run, so none fails by chance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from sumus.audit import RunAudit, audit_run
from sumus.audit.canaries import CanaryRounds
from sumus.data import FederatedData
from sumus.gradients import PerRecordGradients, totals
from sumus.gradients.per_record import GradientSum
from sumus.guarantee import NoiseDesign, calibrated
from sumus.noise import Law, Skellam
from sumus.plan import PublicFacts, TrainingPlan
from sumus.randomness import RandomSource
from sumus.tasks import LabelFacts
from support.repeatable_sources import repeatable_sources

CONFIDENCE = 1.0 - 1e-6


def _design(
    algorithm: str,
    *,
    silos: int = 2,
    rounds: int = 2,
    records: int = 200,
    epsilon: float = 4.0,
    **training: object,
) -> NoiseDesign:
    table = {"algorithm": algorithm, "model": "logistic", "dimension": 128, **training}
    if algorithm != "convex-pass":
        table |= {
            "sampling_rate": table.get("sampling_rate", 1.0),
            "divisor": table.get("divisor", 50.0),
        }
    plan = TrainingPlan.from_table(
        {
            "privacy": {"epsilon": 4.0, "delta": 1e-5},
            "federation": {
                "silos": silos,
                "rounds": rounds,
                "local_steps": 4 if algorithm == "convex-pass" else 1,
            },
            "training": table,
            "aggregation": {"protocol": "trusted", "modulus_bits": 56},
        }
    )
    names = tuple(f"silo-{index}" for index in range(silos))
    facts = PublicFacts("audit", names, (200,) * silos, (128,), LabelFacts(("0", "1")))
    return calibrated(plan, facts)


def _audit(
    built: NoiseDesign,
    *,
    canaries: int = 48,
    runs: int = 24,
    new_source: Callable[[], RandomSource] | None = None,
) -> RunAudit:
    return audit_run(
        built,
        None,
        canaries=canaries,
        runs=runs,
        confidence=CONFIDENCE,
        new_source=new_source or repeatable_sources(),
    )


@pytest.mark.parametrize("algorithm", ["single-step", "split-noise", "convex-pass"])
def test_the_real_pipeline_is_not_contradicted(algorithm: str) -> None:
    audit = _audit(_design(algorithm))
    assert audit.passed, audit.findings
    assert audit.released_sum.noise_ratio == pytest.approx(1.0, rel=0.15)
    assert audit.lower_bound <= audit.epsilon


def test_the_canaries_reach_most_of_what_is_accounted() -> None:
    """A blunt audit would pass everything: as a Gaussian, the canaries show at least half of the
    proved ε.

    7,680 canaries at μ = 0.925 show ε ≥ 2.9 ± 0.12; less than 2 has probability 7e-13 (exact
    binomial sum over both counts).
    """
    seen = _audit(_design("single-step", rounds=1), canaries=64, runs=120).released_sum
    assert seen.gaussian_lower_bound > 2.0


@pytest.mark.parametrize("model", ["logistic", "softmax"])
@pytest.mark.parametrize("bound", [1.0, 0.25])
def test_the_canaries_of_normal_equations_move_the_sum_by_what_is_accounted(
    model: str, bound: float
) -> None:
    """32 runs give 512 coins and about 256 canaries: a mean has standard deviation 0.063, a false
    alarm probability below 1e-6. The separation is all of μ.
    """
    built = _one_round(model, bound)
    rounds = CanaryRounds(built, 16, view="sum", new_source=repeatable_sources())
    found = [rounds.run() for _ in range(32)]
    scores = np.concatenate([run.scores for run in found])
    included = np.concatenate([run.included for run in found])
    assert rounds.separation == pytest.approx(1.0 / built.noise_multiplier, rel=0.02)
    assert scores[included].mean() == pytest.approx(rounds.separation, abs=0.32)
    assert scores[~included].mean() == pytest.approx(0.0, abs=0.32)


def _bent(model: str, bound: float, rounds: int) -> NoiseDesign:
    """33 features and three classes or two, in steps that moments bend."""
    plan = TrainingPlan.from_table(
        {
            "privacy": {"epsilon": 4.0, "delta": 1e-5},
            "federation": {"silos": 2, "rounds": rounds},
            "training": {
                "algorithm": "newton",
                "model": model,
                "feature_bound": bound,
                "clip_norm": bound / 2.0,
            },
            "aggregation": {"protocol": "trusted", "modulus_bits": 56},
        }
    )
    names = ("0", "1") if model == "logistic" else ("0", "1", "2")
    facts = PublicFacts("audit", ("a", "b"), (200, 200), (32,), LabelFacts(names))
    return calibrated(plan, facts)


@pytest.mark.parametrize(("model", "bound"), [("logistic", 0.25), ("softmax", 1.0)])
def test_the_canaries_of_newton_move_the_sum_by_what_is_accounted(model: str, bound: float) -> None:
    """32 runs give 512 coins and about 256 canaries: a mean has standard deviation 0.063, a false
    alarm probability below 1e-6. The separation is all of μ, and what the coins differ by besides
    is the noise that is accounted.
    """
    built = _bent(model, bound, rounds=2)
    rounds = CanaryRounds(built, 16, view="sum", new_source=repeatable_sources())
    found = [rounds.run() for _ in range(32)]
    scores = np.concatenate([run.scores for run in found])
    included = np.concatenate([run.included for run in found])
    assert rounds.separation == pytest.approx(math.sqrt(2.0) / built.noise_multiplier, rel=0.001)
    assert scores[included].mean() == pytest.approx(rounds.separation, abs=0.32)
    assert scores[~included].mean() == pytest.approx(0.0, abs=0.32)
    assert scores.std(where=~included) == pytest.approx(1.0, abs=0.3)  # half the noise has a half


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))]
)
def test_newton_is_not_contradicted(seed: int) -> None:
    sources = (RandomSource.simulation(seed, "newton", number) for number in itertools.count())
    audit = _audit(
        _bent("softmax", 1.0, rounds=2), canaries=16, runs=120, new_source=lambda: next(sources)
    )
    assert audit.passed, audit.findings


@pytest.mark.long
def test_newton_with_half_the_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    built = _bent("softmax", 1.0, rounds=1)
    draw = Skellam.sample
    monkeypatch.setattr(Skellam, "sample", lambda law, size, source: draw(law, size, source) // 2)
    assert not _audit(built, canaries=16, runs=120).passed


@pytest.mark.parametrize("model", ["logistic", pytest.param("softmax", marks=pytest.mark.long)])
def test_normal_equations_are_not_contradicted_and_half_the_noise_is_found(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = _one_round(model, 1.0)
    audit = _audit(built, canaries=16, runs=240)
    assert audit.passed, audit.findings
    draw = Skellam.sample
    monkeypatch.setattr(Skellam, "sample", lambda law, size, source: draw(law, size, source) // 2)
    assert not _audit(built, canaries=16, runs=240).passed


def _one_round(model: str, bound: float) -> NoiseDesign:
    """33 features and three classes or two."""
    plan = TrainingPlan.from_table(
        {
            "privacy": {"epsilon": 4.0, "delta": 1e-5},
            "federation": {"silos": 2},
            "training": {
                "algorithm": "normal-equations",
                "model": model,
                "feature_bound": bound,
            },
            "aggregation": {"protocol": "trusted", "modulus_bits": 56},
        }
    )
    names = ("0", "1") if model == "logistic" else ("0", "1", "2")
    facts = PublicFacts("audit", ("a", "b"), (200, 200), (32,), LabelFacts(names))
    return calibrated(plan, facts)


@pytest.mark.parametrize(("bound", "residual_cap"), [(1.0, None), (1.0, 0.3), (0.25, 0.3)])
def test_the_canaries_of_a_convex_pass_move_the_sum_by_what_is_accounted(
    bound: float, residual_cap: float | None
) -> None:
    """Capped residuals too, and weights that silos accept whatever the feature bound (40/R·√48
    would leave their ball at R = ¼).

    64 runs give 3,072 coins and about 1,500 canaries: a mean has standard deviation 0.026, so a
        false alarm probability below 1e-11.
    """
    built = _design(
        "convex-pass", feature_bound=bound, residual_cap=residual_cap, learning_rate=0.5 / bound**2
    )
    rounds = CanaryRounds(built, 48, view="sum", new_source=repeatable_sources())
    found = [rounds.run() for _ in range(64)]
    scores, included = (
        np.concatenate([each.scores for each in found]),
        np.concatenate([each.included for each in found]),
    )
    assert float(scores[included].mean()) == pytest.approx(rounds.separation, abs=0.18)
    assert float(scores[~included].mean()) == pytest.approx(0.0, abs=0.18)


def test_the_canaries_of_a_survival_pass_move_the_sum_by_what_is_accounted() -> None:
    """People at risk in all intervals, whom the model is certain to lose in each; numbers as
    above.
    """
    plan = TrainingPlan.from_table(
        {
            "privacy": {"epsilon": 4.0, "delta": 1e-5},
            "federation": {"silos": 2, "rounds": 2, "local_steps": 4},
            "training": {"task": "survival"},
            "data": {"objects": "audit", "intervals": [1, 2, 3]},
            "aggregation": {"protocol": "trusted", "modulus_bits": 56},
        }
    )
    labels = LabelFacts(intervals=(1.0, 2.0, 3.0))
    facts = PublicFacts("audit", ("silo-0", "silo-1"), (200,) * 2, (125,), labels)
    built = calibrated(plan, facts)
    assert built.resolved.dimension == 128
    rounds = CanaryRounds(built, 48, view="sum", new_source=repeatable_sources())
    found = [rounds.run() for _ in range(64)]
    scores, included = (
        np.concatenate([each.scores for each in found]),
        np.concatenate([each.included for each in found]),
    )
    assert float(scores[included].mean()) == pytest.approx(rounds.separation, abs=0.18)
    assert float(scores[~included].mean()) == pytest.approx(0.0, abs=0.18)


@pytest.mark.parametrize(
    ("task", "keys"), [("regression", {}), ("survival", {"intervals": [1, 2]})]
)
def test_the_canaries_of_noisy_steps_do_not_hang_on_the_task(
    task: str, keys: dict[str, object]
) -> None:
    """Each names a coordinate and has one loss in every task: what is clipped is a gradient."""
    plan = TrainingPlan.from_table(
        {
            "privacy": {"epsilon": 4.0, "delta": 1e-5},
            "federation": {"silos": 2, "rounds": 1, "local_steps": 1},
            "training": {
                "task": task,
                "algorithm": "single-step",
                "model": "linear",
                "dimension": 128,
                "sampling_rate": 1.0,
                "divisor": 50.0,
            },
            "data": {"objects": "audit", "bounds": {"label": [0, 1]}, **keys},
            "aggregation": {"protocol": "trusted", "modulus_bits": 56},
        }
    )
    labels = LabelFacts(bounds=((0.0, 1.0),), intervals=(1.0, 2.0))
    facts = PublicFacts("audit", ("silo-0", "silo-1"), (200,) * 2, (127,), labels)
    rounds = CanaryRounds(calibrated(plan, facts), 48, view="sum", new_source=repeatable_sources())
    found = [rounds.run() for _ in range(64)]
    scores, included = (
        np.concatenate([each.scores for each in found]),
        np.concatenate([each.included for each in found]),
    )
    assert float(scores[included].mean()) == pytest.approx(rounds.separation, abs=0.18)


def test_finds_halved_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    built = _design("single-step")
    monkeypatch.setattr(Skellam, "sample", _scaled_sample(0.5))
    audit = _audit(built, runs=60)
    assert not audit.released_sum.noise_as_accounted
    assert audit.released_sum.contradicts_curve
    assert audit.released_sum.gaussian_lower_bound > audit.epsilon


def _scaled_sample(factor: float) -> Callable[..., np.ndarray]:
    real = Law.sample

    def sample(self: Law, size: int | tuple[int, ...], source: RandomSource) -> np.ndarray:
        return np.rint(factor * real(self, size, source)).astype(np.int64)

    return sample


def test_finds_clipping_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(
        norms2: np.ndarray, clip_norm: float, resolution: float, out: np.ndarray
    ) -> tuple[int, int]:
        out[:] = resolution / clip_norm
        return 0, 0

    monkeypatch.setattr(totals, "scales", unclipped)
    # 12 runs would miss the curve once in 70 times, 24 with probability 4e-11
    audit = _audit(_design("single-step"))
    assert audit.released_sum.contradicts_curve
    assert audit.released_sum.gaussian_lower_bound > audit.epsilon


def test_finds_a_silo_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    built = _design("single-step", silos=2)
    real, calls = Law.sample, [0]

    def every_other_call(
        self: Law, size: int | tuple[int, ...], source: RandomSource
    ) -> np.ndarray:
        calls[0] += 1
        drawn = real(self, size, source)
        return drawn if calls[0] % 2 else np.zeros_like(drawn)

    monkeypatch.setattr(Skellam, "sample", every_other_call)
    audit = _audit(built)
    assert audit.released_sum.noise_ratio == pytest.approx(0.5, rel=0.15)
    assert not audit.passed


def test_finds_division_by_the_realised_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    real = PerRecordGradients.clipped_sum

    def mean_form(self: PerRecordGradients, parameters, x, y, **options) -> GradientSum:  # type: ignore[no-untyped-def]
        found = real(self, parameters, x, y, **options)
        return GradientSum(
            found.integers * 50 // max(found.records, 1),
            found.clipped,
            found.nonfinite,
            found.records,
        )

    monkeypatch.setattr(PerRecordGradients, "clipped_sum", mean_form)
    audit = _audit(_design("single-step", divisor=50.0), canaries=4, runs=160)
    assert audit.released_sum.gaussian_lower_bound > audit.epsilon


def test_finds_noise_that_is_used_again_in_the_next_round() -> None:
    """Every silo answers all rounds of a run from the same bits."""
    built = _design("single-step", silos=2, rounds=2)
    keys: list[bytes] = []
    calls = [0]

    def reused() -> RandomSource:
        # per run: one source for the coins, then 2 rounds × 2 silos
        position = calls[0] % 5
        calls[0] += 1
        if position == 0:
            keys[:] = [RandomSource().bytes(32) for _ in range(2)]
            return RandomSource()
        return RandomSource.from_key(keys[(position - 1) % 2])

    audit = _audit(built, new_source=reused)
    assert not audit.released_sum.rounds_independent
    assert not audit.passed


def test_convex_pass_finds_a_step_without_the_public_divisor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sumus.training.local import convex_pass as local_update

    real = local_update.convex_pass

    def longer(*arguments: object, step: float, **options: object) -> np.ndarray:
        return real(*arguments, step=4.0 * step, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(local_update, "convex_pass", longer)
    audit = _audit(_design("convex-pass"), runs=60)
    assert audit.released_sum.contradicts_curve


@pytest.mark.parametrize(
    ("calibrate_to", "analysis"), [("local", "local"), ("proved", "last-step")]
)
def test_several_steps_are_audited_in_the_view_of_their_analysis(
    calibrate_to: str, analysis: str
) -> None:
    """Local noise against everybody else together, the last step against the server that sees the
    sum.
    """
    built = _design("dp-sgd", silos=3)
    plan = built.plan.replace("federation", local_steps=2).replace("noise", noise_multiplier=None)
    audit = _audit(calibrated(plan.replace("privacy", calibrate_to=calibrate_to), built.facts))
    assert audit.analysis == analysis
    assert audit.passed, audit.findings
    assert audit.released_sum.noise_ratio == pytest.approx(1.0, rel=0.15)


def _names(built: NoiseDesign) -> Sequence[str]:
    return tuple(silo.name for silo in built.silos)


def test_the_final_model_of_digits_is_not_contradicted(digits: FederatedData) -> None:
    plan = TrainingPlan.from_toml(
        "[privacy]\nepsilon=3.0\ndelta=1e-4\n[federation]\nsilos=5\nrounds=3\nlocal_steps=60\n"
        '[training]\nlearning_rate=0.8\n[aggregation]\nprotocol="trusted"\n[data]\nname="digits"\n'
    )
    built = calibrated(plan, digits.facts())
    audit = audit_run(
        built, digits, canaries=100, runs=2, confidence=CONFIDENCE, new_source=repeatable_sources()
    )
    assert audit.final_model is not None
    assert audit.final_model.guesses <= audit.final_model.canaries
    assert audit.final_model.lower_bound <= audit.epsilon
    assert math.isfinite(audit.lower_bound)


@pytest.fixture(name="digits")
def _digits() -> FederatedData:
    from sumus.data import load

    return load(TrainingPlan.from_toml('[federation]\nsilos=5\n[data]\nname="digits"\n'))
