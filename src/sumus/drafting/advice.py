"""Which algorithm a plan should take, by a table of rules over public facts.

    n       training records of all silos, as declared or published
    μ       of (ε, δ): the distance of two unit Gaussians that are no easier to tell apart
    w       n·μ/√T: what the records weigh against the noise of one of T sums
    d       numbers of a record behind its features, the bias included
    m       those that newton takes the moments of: d, or `training.components`
    skew    how much labels differ between silos, by the deal of a named data set or as declared

The first rule of `RULES_OF_THUMB` whose condition holds gives the advice. Thresholds lie between
settings that were measured (docs/unequal-silos.md, docs/measurements.md), and are no more exact
than those are far apart:

    2·d^1.5    of n·μ, above which one solved sum is as good as a pass: that of `choices`
    0.2·m^1.5  of w, above which moments tell more than they cost: Fashion-MNIST at m = 500 has
               0.3 at ε = 1, where newton is ahead of single steps, and 0.04 at ε = 0.1, where it
               is behind
    2·d        of w, above which a pass is ahead of single steps: Fashion-MNIST and CIFAR-10 have 3
               and 2 at ε = 1, where it is ahead, and 1 and 0.7 at ε = 0.3, where it is behind
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from sumus.drafting.choices import (
    Choice,
    Size,
    convex_pass,
    gaussian_distance,
    normal_equations,
)
from sumus.errors import PlanError
from sumus.plan import (
    DEFAULT_EPSILON,
    LINEAR_MODELS,
    RULES,
    WHITENED_FEATURES,
    PublicFacts,
    TrainingPlan,
    feature_shape,
)

__all__ = ["RULES_OF_THUMB", "SKEWS", "Advice", "PublicSize", "Rule", "advise", "size_of"]

SKEWS: Final = ("none", "some", "strong")
_MOST_MOMENTS = 1000  # numbers of a record whose d²/2 moments are still a sum of decent size
_COMPONENTS = 500
_LOUD = 0.1  # μ below which a coarser grid is ample, and the sampler needs one
_COARSE_BITS = 14


@final
@dataclass(frozen=True, kw_only=True)
class PublicSize:
    """What the rules look at, all of it public.

    Args:
        units: n.
        distance: μ.
        features: d.
        moments: m.
        directions: the features' directions are public, so that some can be left out.
        started: the model starts from a released one, or says which layers are trained.
    """

    task: str
    linear: bool
    classes: int
    silos: int
    units: int
    distance: float
    rounds: int
    features: int
    moments: int
    directions: bool
    started: bool
    skew: str

    @property
    def weight(self) -> float:
        """w."""
        return self.units * self.distance / math.sqrt(self.rounds)

    @property
    def numbers_or_two(self) -> bool:
        """Numbers or two classes are learned, for which least squares is no loss."""
        return self.task == "regression" or (self.task == "classification" and self.classes == 2)

    @property
    def solvable(self) -> bool:
        """One noisy sum of moments is enough to solve for the model."""
        enough = self.units * self.distance >= 2.0 * self.features**1.5
        return self.numbers_or_two and enough and self.features <= _MOST_MOMENTS

    @property
    def bendable(self) -> bool:
        """Noisy moments of the records tell which way a step should bend."""
        known = self.task in ("classification", "regression")
        stand_out = self.weight >= 0.2 * self.moments**1.5
        return known and stand_out and self.moments <= _MOST_MOMENTS


@final
@dataclass(frozen=True)
class Rule:
    """A line of the table: when it holds, which algorithm, and why, with where it was measured."""

    holds: Callable[[PublicSize], bool]
    algorithm: str
    reason: str
    measured: str


RULES_OF_THUMB: Final = (
    Rule(
        lambda known: not known.linear and known.started,
        "tangent-pass",
        "a network with a public start is close enough to its tangent there for noiseless passes",
        "docs/measurements.md, linearised networks",
    ),
    Rule(
        lambda known: not known.linear,
        "split-noise",
        "several local steps of any network, with all silos' noise counted",
        "docs/measurements.md, networks",
    ),
    Rule(
        lambda known: known.solvable,
        "normal-equations",
        "there are so many records for so few features that one sum is enough, whatever silos have",
        "docs/natural-silos.md",
    ),
    Rule(
        lambda known: known.task not in ("classification", "regression"),
        "convex-pass",
        "it is what is proved for this task with several local steps",
        "docs/tasks.md",
    ),
    Rule(
        lambda known: known.skew != "none" and known.bendable,
        "newton",
        "silos differ, which sums over all records do not notice, and moments stand above the noise",
        "docs/unequal-silos.md",
    ),
    Rule(
        lambda known: known.skew == "strong" or known.weight < 2.0 * known.features,
        "single-step",
        "noise or differing silos cost a pass more than its local steps gain",
        "docs/measurements.md, the frontier; docs/unequal-silos.md",
    ),
    Rule(
        lambda known: True,
        "convex-pass",
        "silos are alike enough for noiseless passes, which make the most of every round",
        "docs/measurements.md, the frontier",
    ),
)
"""The first one that holds is the advice."""


@final
@dataclass(frozen=True, kw_only=True)
class Advice:
    """An algorithm for a plan, and how to take it up.

    Args:
        algorithm: that the plan should have.
        reason: one sentence.
        measured: where the figures behind it are.
        taken: the plan has this algorithm already.
        settings: keys to set, and their values as the command line takes them; a first guess of
            rates, and defaults in place of what the algorithm refuses.
    """

    algorithm: str
    reason: str
    measured: str
    taken: bool
    settings: Mapping[str, str]

    @property
    def options(self) -> str:
        """The words to put behind a command."""
        return " ".join(f"--set {key}={value}" for key, value in self.settings.items())


def advise(plan: TrainingPlan, facts: PublicFacts, skew: str | None = None) -> Advice:
    """The algorithm for a plan, by public facts only.

    Guarantee: a function of the plan, of `facts` and of `skew`; no record is looked at.

    Args:
        facts: what is public about the plan's records.
        skew: how much labels differ between silos; omitted: as a named data set is dealt, and
            "some" for records of one's own.
    """
    if plan.describes or not plan.rules.private or plan.rules.protects == "silo":
        rule = "must train a model with records as the unit of privacy"
        fix = "Advice is for algorithms that protect records or persons."
        raise PlanError("training.algorithm", plan.training.algorithm, rule, fix)
    if plan.privacy.epsilon is None and plan.noise.noise_multiplier is not None:
        rule = "must be set for advice, which rests on it"
        raise PlanError("privacy.epsilon", None, rule, "Set it and remove noise.noise_multiplier.")
    known = size_of(plan, facts, skew)
    rule_that_holds = next(each for each in RULES_OF_THUMB if each.holds(known))
    algorithm = rule_that_holds.algorithm
    taken = plan.training.algorithm == algorithm
    return Advice(
        algorithm=algorithm,
        reason=rule_that_holds.reason,
        measured=rule_that_holds.measured,
        taken=taken,
        settings=_grid(plan, known) if taken else _settings(plan, known, algorithm),
    )


def size_of(plan: TrainingPlan, facts: PublicFacts, skew: str | None) -> PublicSize:
    """What the rules look at."""
    training = plan.training
    if skew is not None and skew not in SKEWS:
        raise PlanError("--skew", skew, f"must be one of {', '.join(SKEWS)}", "Choose one of them.")
    linear = training.model in LINEAR_MODELS
    width = 1  # of a network the rules do not ask
    if linear:
        shape = feature_shape(training.features, facts.shape, training.components)
        width += math.prod(shape)
    directions = training.features in WHITENED_FEATURES and len(facts.shape) == 3
    return PublicSize(
        task=training.task,
        linear=linear,
        classes=len(facts.labels.names),
        silos=facts.silos,
        units=sum(facts.records_per_silo),
        distance=gaussian_distance(plan.privacy.epsilon or DEFAULT_EPSILON, plan.privacy.delta),
        rounds=plan.federation.rounds,
        features=width,
        moments=min(width, _COMPONENTS + 1) if directions else width,
        directions=directions,
        started=training.start_from is not None or training.tangent_layers is not None,
        skew=skew or _dealt_skew(plan),
    )


def _dealt_skew(plan: TrainingPlan) -> str:
    """How much labels differ between silos by the deal of a named data set; "some" otherwise."""
    data = plan.data
    if data.path is not None or data.objects is not None or data.partition == "natural":
        return "some"
    if data.partition == "dirichlet":
        return "some" if data.dirichlet_alpha >= 1.0 else "strong"
    return {"iid": "none", "shards": "strong"}[data.partition]


def _settings(plan: TrainingPlan, size: PublicSize, algorithm: str) -> dict[str, str]:
    """Keys that turn the plan into one of this algorithm."""
    usual = TrainingPlan()
    settings: dict[str, Any] = {"training.algorithm": algorithm}
    for key in RULES[algorithm].refuses:
        section = key.partition(".")[0]
        if section != "silo" and _value(plan, key) != _value(usual, key):
            settings[key] = _value(usual, key)
    settings |= {choice.key: choice.value for choice in _first_guess(plan, size, algorithm)}
    settings |= _grid(plan, size)
    return {key: "none" if value is None else str(value) for key, value in settings.items()}


def _grid(plan: TrainingPlan, size: PublicSize) -> dict[str, str]:
    """A grid on which loud noise can be drawn."""
    if size.distance >= _LOUD or plan.noise.resolution_bits <= _COARSE_BITS:
        return {}
    return {"noise.resolution_bits": str(_COARSE_BITS)}


def _value(plan: TrainingPlan, key: str) -> Any:
    section, _, name = key.partition(".")
    return getattr(getattr(plan, section), name)


def _first_guess(plan: TrainingPlan, size: PublicSize, algorithm: str) -> tuple[Choice, ...]:
    """Rates and shares to begin with, where the algorithm has some that were measured."""
    few = size.rounds <= 5
    bits = plan.aggregation.modulus_bits
    sized = Size(size.units, size.units // size.silos, size.silos, size.features, size.classes)
    values: dict[str, Any] = {}
    if algorithm == "newton":
        values = {
            "training.matrix_share": 0.3 if few else 0.1,
            "training.learning_rate": 2.0 if few else 1.5,
            "training.server_momentum": 0.0 if few else 0.5,
            "aggregation.modulus_bits": max(bits, 42),
        }
        if size.moments < size.features:
            values["training.components"] = _COMPONENTS
    elif algorithm == "single-step":
        values = {
            "training.batch_size": None,
            "training.sampling_rate": 1.0,
            "training.clip_norm": 0.25,
            "training.learning_rate": 16.0,
            "training.server_optimizer": "adam",
            "training.server_learning_rate": 0.1,
            "training.server_momentum": 0.5,
            "aggregation.modulus_bits": max(bits, 40),
        }
    elif algorithm == "normal-equations":
        solved = normal_equations(plan.training.task, sized, plenty=False)
        return _only(solved, "federation.rounds", "training.model", "aggregation.modulus_bits")
    elif algorithm == "convex-pass":
        passed = convex_pass(plan.training.task, sized)
        return _only(passed, "training.batch_size", "training.learning_rate")
    return tuple(Choice(key, value, "measured") for key, value in values.items())


def _only(choices: tuple[Choice, ...], *keys: str) -> tuple[Choice, ...]:
    return tuple(choice for choice in choices if choice.key in keys)
