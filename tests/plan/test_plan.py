"""The plan: TOML in and out, unknown keys, rules, overrides, canonical hash."""

from __future__ import annotations

import dataclasses
import math
import string
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sumus.errors import PlanError, dotted
from sumus.plan import PublicFacts, TrainingPlan, resolve
from sumus.plan.algorithms import RULES
from sumus.plan.sections import SECTIONS
from sumus.tasks import LabelFacts

GOLDEN = """
[privacy]
epsilon = 1
delta = 1e-5
[federation]
silos = 10
rounds = 20
local_steps = 11
[training]
algorithm = "split-noise"
model = "cnn"
sampling_rate = 0.1
[data]
name = "fashion-mnist"
[silo."St. Mary's"]
clip_norm = 0.5
"""

WORDS = st.text(
    alphabet=string.ascii_letters + string.digits + " äε\"'\\#.=[]{}-_", min_size=1, max_size=12
).filter(str.isprintable)
POSITIVE = st.floats(min_value=1e-6, max_value=1e6)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "privacy.epsilon": POSITIVE | st.integers(1, 100),
    "privacy.delta": st.floats(1e-12, 0.5),
    "privacy.accountant": st.sampled_from(["pld", "renyi", "renyi-mironov"]),
    "federation.rounds": st.integers(1, 10**6),
    "federation.silos": st.integers(7, 2000),  # more than 2·dropouts + colluding
    "federation.dropouts": st.integers(0, 2),
    "federation.colluding": st.integers(0, 2),
    "training.model": WORDS,
    "training.clip_norm": POSITIVE,
    "training.learning_rate": POSITIVE,
    "training.hidden": st.lists(st.integers(1, 4096), max_size=4),
    "training.l2_penalty": st.just(0) | POSITIVE,
    "noise.resolution_bits": st.integers(4, 24),
    "noise.removable": st.booleans(),
    "aggregation.modulus_bits": st.integers(16, 64),
    "data.name": WORDS,
    "data.bounds": st.dictionaries(
        WORDS, st.tuples(st.floats(-1e9, 0.0), st.floats(0.1, 1e9)).map(list), max_size=3
    ),
    "data.categories": st.dictionaries(
        WORDS, st.lists(WORDS, min_size=1, max_size=4, unique=True), max_size=3
    ),
}


@st.composite
def plans(draw: st.DrawFn) -> TrainingPlan:
    tables: dict[str, Any] = {}
    for key in draw(st.sets(st.sampled_from(sorted(VALUES)))):
        section, name = key.split(".")
        tables.setdefault(section, {})[name] = draw(VALUES[key])
    names = draw(st.lists(WORDS, max_size=3, unique=True))
    if names:
        tables["silo"] = {
            name: draw(
                st.fixed_dictionaries({}, optional={"clip_norm": POSITIVE, "std_factor": POSITIVE})
            )
            for name in names
        }
    return TrainingPlan.from_table(tables)


@pytest.mark.deep
@given(plans())
@settings(max_examples=150, deadline=None)
def test_toml_round_trip(plan: TrainingPlan) -> None:
    again = TrainingPlan.from_toml(plan.to_toml())
    assert again == plan
    assert again.hash == plan.hash
    assert again.to_toml() == plan.to_toml()


@given(plans(), plans())
@settings(max_examples=100, deadline=None)
def test_equal_hashes_mean_equal_plans(one: TrainingPlan, other: TrainingPlan) -> None:
    assert (one == other) == (one.hash == other.hash)


def test_the_canonical_hash_is_golden() -> None:
    """Every silo must compute the same 64 digits; a change of this number is a change of the
    protocol.
    """
    plan = TrainingPlan.from_toml(GOLDEN)
    assert len(plan.hash) == 64
    assert plan.hash == TrainingPlan.from_toml(GOLDEN.replace("epsilon = 1", "epsilon = 1.0")).hash
    assert plan.hash == TrainingPlan.from_toml(plan.to_toml()).hash
    assert TrainingPlan.from_toml(GOLDEN.replace("rounds = 20", "rounds = 21")).hash != plan.hash
    assert plan.canonical.startswith(b'{"aggregation":{"')
    assert plan.hash == HASH


def test_minus_zero_is_zero() -> None:
    assert (
        TrainingPlan.from_toml("[training]\nl2_penalty = -0.0").hash
        == TrainingPlan.from_toml("[training]\nl2_penalty = 0").hash
    )


@given(
    section=st.sampled_from(sorted(SECTIONS)),
    key=st.text(alphabet=string.ascii_lowercase + "_", min_size=1, max_size=20),
)
@settings(max_examples=100, deadline=None)
def test_unknown_keys_are_refused(section: str, key: str) -> None:
    known = {each.name for each in dataclasses.fields(SECTIONS[section])}
    if key in known:
        return
    with pytest.raises(PlanError) as caught:
        TrainingPlan.from_table({section: {key: 1}})
    assert f"{section}.{key} is not a key of the plan" in str(caught.value)


@given(
    st.text(alphabet=string.ascii_lowercase, min_size=1, max_size=12).filter(
        lambda title: (
            title not in {*SECTIONS, "silo"}
            and not any(section.has(title) for section in SECTIONS.values())
        )
    )
)
@settings(max_examples=30, deadline=None)
def test_unknown_sections_are_refused(title: str) -> None:
    with pytest.raises(PlanError, match="is not a section of the plan"):
        TrainingPlan.from_table({title: {}})


def test_a_typo_is_answered_with_the_right_key() -> None:
    with pytest.raises(
        PlanError, match=r"privacy.epsilom is not a key of the plan, got 1. Did you mean epsilon\?"
    ):
        TrainingPlan.from_toml("[privacy]\nepsilom = 1")
    with pytest.raises(PlanError, match=r"Did you mean training\?"):
        TrainingPlan.from_toml("[trainng]")


BAD = [
    ("[privacy]\nepsilon = 0", "privacy.epsilon must be a finite number in (0, ∞), got 0."),
    ("[privacy]\nepsilon = -1.0", "privacy.epsilon must be a finite number"),
    ("[privacy]\nepsilon = nan", "privacy.epsilon must be a finite number"),
    ("[privacy]\nepsilon = inf", "privacy.epsilon must be a finite number"),
    ("[privacy]\nepsilon = 1" + "0" * 400, "privacy.epsilon must be a finite number"),
    ("[privacy]\nepsilon = true", "privacy.epsilon must be a finite number"),
    ('[privacy]\nepsilon = "1"', "privacy.epsilon must be a finite number"),
    ("[privacy]\ndelta = 0", "privacy.delta must be a finite number in (0, 1), got 0."),
    ("[privacy]\ndelta = 1", "privacy.delta must be a finite number in (0, 1), got 1."),
    (
        "[training]\nsampling_rate = 0",
        "training.sampling_rate must be a finite number in (0, 1], got 0.",
    ),
    (
        "[training]\nsampling_rate = 1.5",
        "training.sampling_rate must be a finite number in (0, 1], got 1.5.",
    ),
    (
        "[noise]\nnoise_multiplier = 0",
        "noise.noise_multiplier must be a finite number in (0, 1e+09], got 0.",
    ),
    (
        '[noise]\nmechanism = "laplace"',
        "noise.mechanism must be one of skellam, discrete-gaussian, gaussian",
    ),
    ("[federation]\nsilos = 0", "federation.silos must be a whole number at least 1, got 0."),
    (
        '[privacy]\ncalibrate_to = "local"\n[evaluation]\nmetrics = "secure"',
        'must not be "secure" beside privacy.calibrate_to = "local"',
    ),
    (
        "[federation]\nsilos = 3\ndropouts = 2\ncolluding = 1",
        "federation.dropouts must leave at least one of 3 silos whose noise counts",
    ),
    (
        "[federation]\nlocal_steps = 3\nlocal_epochs = 1",
        "federation.local_epochs cannot stand beside local_steps",
    ),
    (
        "[aggregation]\nmodulus_bits = 1000",
        "aggregation.modulus_bits must be the exponent of a power of two",
    ),
    ("[training]\nfeature_bound = 1e200", "training.feature_bound must be a finite number in"),
    ("[training]\nresidual_cap = 1.5", "training.residual_cap must be a finite number in"),
    (
        "[training]\nalgorithm = 'convex-pass'\nlocal_momentum = 0.9",
        "training.local_momentum must be 0 for convex-pass",
    ),
    (
        '[training]\nalgorithm = "split-noise"\nl2_penalty = 0.1',
        "training.l2_penalty must be 0 for split-noise",
    ),
    ("[aggregation]\nthreshold = 3", "aggregation.threshold is not a key of the plan"),
    (
        "[training]\nlearning_rates = [1.0]",
        "training.learning_rates has no meaning for convex-pass",
    ),
    (
        '[training]\nalgorithm = "dp-sgd"\nlearning_rates = [1.0, 0.5]\n[silo.a]\nlocal_steps = 1',
        "training.learning_rates cannot stand beside a silo's own local_steps",
    ),
    (
        '[privacy]\nunit = "silo"',
        'privacy.unit must be "silo" exactly when training.algorithm is "silo"',
    ),
    ("[privacy", "plan must be valid TOML"),
    ("privacy = 3", "privacy must be a table of keys"),
    ("silo = 3", "silo must be a table of tables"),
    ("[data.bounds]\nage = [3.0, 3.0]", "data.bounds.age must be [low, high] with low < high"),
]


@pytest.mark.parametrize(("source", "message"), BAD)
def test_a_bad_plan_is_one_line_with_field_value_rule_and_fix(source: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        TrainingPlan.from_toml(source)
    error = str(caught.value)
    assert message in error
    assert "\n" not in error
    assert error.endswith((".", "?", "]"))
    assert caught.value.exit_code == 2


def test_overrides() -> None:
    plan = TrainingPlan.from_toml(GOLDEN)
    changed = plan.with_overrides(
        {
            "privacy.epsilon": "3",
            "training.hidden": "[8, 4]",
            "noise.removable": "true",
            "data.name": "digits",
        }
    )
    assert (
        changed.privacy.epsilon,
        changed.training.hidden,
        changed.noise.removable,
        changed.data.name,
    ) == (3.0, (8, 4), True, "digits")
    assert changed.with_overrides({"privacy.epsilon": "none"}).privacy.epsilon is None
    assert plan.with_overrides({"silo.bergen.clip_norm": "2"}).silo["bergen"].clip_norm == 2.0
    with pytest.raises(PlanError, match="must name a key as section"):
        plan.with_overrides({"epsilon": "3"})
    with pytest.raises(PlanError, match="must be a finite number"):
        plan.with_overrides({"privacy.epsilon": "nan"})
    with pytest.raises(PlanError, match=r"Did you mean epsilon\?"):
        plan.with_overrides({"privacy.epsilonn": "1"})


def test_none_unsets_what_can_be_unset_and_is_a_word_elsewhere() -> None:
    """`evaluation.metrics=none` once fell back to the default, which measures in the clear."""
    plan = TrainingPlan.from_toml(GOLDEN)
    assert plan.with_overrides({"evaluation.metrics": "none"}).evaluation.metrics == "none"
    assert plan.with_overrides({"data.name": "none"}).data.name is None
    assert plan.with_overrides({"silo.bergen.clip_norm": "none"}).silo["bergen"].clip_norm is None
    with pytest.raises(PlanError, match=r"privacy\.delta must be a finite number"):
        plan.with_overrides({"privacy.delta": "none"})
    with pytest.raises(PlanError, match="is not a key of the plan"):
        plan.with_overrides({"privacy.epsilom": "none"})
    with pytest.raises(PlanError, match="is not a section of the plan"):
        plan.with_overrides({"privacies.epsilon": "none"})


_STEP, _PASS = {"training.algorithm": "single-step"}, {"training.algorithm": "convex-pass"}


@pytest.mark.parametrize(
    ("plain", "setting", "meaningful"),
    [
        (_STEP, {"federation.selection_rate": 0.5}, {"federation.selection": "poisson"}),
        (_STEP, {"federation.selected": 2}, {"federation.selection": "fixed"}),
        (_STEP, {"federation.local_epochs": 1.0}, {"training.algorithm": "dp-sgd"}),
        (_STEP, {"training.feature_bound": 2.0}, _PASS),
        (_STEP, {"training.passes": 2}, _PASS),
        (_STEP, {"training.residual_cap": 0.3}, _PASS),
        (_STEP, {"training.state_noise": 4.0}, {"training.algorithm": "split-noise"}),
        (
            _STEP,
            {"noise.trials": 64},
            {
                "noise.mechanism": "poisson-binomial",
                "training.algorithm": "silo",
                "privacy.unit": "silo",
            },
        ),
        (_STEP, {"data.dirichlet_alpha": 0.1}, {"data.partition": "dirichlet"}),
        (_STEP, {"data.shards_per_silo": 3}, {"data.partition": "shards"}),
        (
            _STEP,
            {"data.label_column": "income"},
            {"data.path": "income.csv", "data.silo_column": "state"},
        ),
        (
            _STEP,
            {"data.categories": {"sex": ["f", "m"]}},
            {"data.path": "a.csv", "data.silo_column": "b", "data.label_column": "c"},
        ),
        (_STEP, {"evaluation.noise_multiplier": 30.0}, {"evaluation.metrics": "secure"}),
        (
            _STEP | {"evaluation.metrics": "none"},
            {"evaluation.every": 5},
            {"evaluation.metrics": "simulation"},
        ),
        (
            _STEP | {"evaluation.metrics": "none"},
            {"evaluation.every": 3},
            {"evaluation.metrics": "secure"},
        ),
        (_PASS, {"federation.local_epochs": 1.0}, {"training.algorithm": "split-noise"}),
        (_PASS, {"training.clip_norm": 2.0}, _STEP),
        (_PASS, {"privacy.calibrate_to": "per-step"}, {"training.algorithm": "dp-sgd"}),
        (_PASS, {"silo.bergen.clip_norm": 2.0}, _STEP),
        (_PASS, {"silo.bergen.sampling_rate": 0.5}, _STEP),
    ],
)
def test_what_means_nothing_is_named(
    plain: dict[str, object], setting: dict[str, object], meaningful: dict[str, object]
) -> None:
    plan = TrainingPlan().with_overrides(plain)
    assert not plan.without_effect()
    [line] = plan.with_overrides(setting).without_effect()
    [(name, value)] = setting.items()
    assert line.startswith(f"{name} = {value} has no effect: it is for ")
    assert not plan.with_overrides(setting | meaningful).without_effect()


def test_nothing_that_resolving_fills_in_is_called_meaningless() -> None:
    """A run's own plan, read back, must not complain about numbers that nobody set."""
    facts = PublicFacts(
        name="x",
        silo_names=("a", "b"),
        records_per_silo=(90, 120),
        shape=(4,),
        labels=LabelFacts(("0", "1")),
        columns=("a", "b", "c", "d"),
        numbers=("a",),
    )
    for algorithm in RULES:
        batch = {} if RULES[algorithm].steps == "none" else {"training.batch_size": 20}
        plan = TrainingPlan().with_overrides(
            batch
            | {
                "training.algorithm": algorithm,
                "privacy.unit": "silo" if algorithm == "silo" else "record",
                "federation.rounds": 1,
                "data.path": "x.csv",
                "data.silo_column": "s",
                "data.label_column": "l",
                "data.test_fraction": 0.0,
            }
        )
        assert not resolve(plan, facts).plan.without_effect()


def test_a_pass_that_rounds_records_is_refused() -> None:
    """It rounds its whole update, whatever the key says; so the key may not say otherwise."""
    with pytest.raises(PlanError, match=r"noise\.rounding must be auto or sum for convex-pass"):
        TrainingPlan().with_overrides({"noise.rounding": "record"})
    assert TrainingPlan().with_overrides({"noise.rounding": "sum"}).noise.rounding == "sum"


@pytest.mark.parametrize("name", ["noise.noise_multiplier", "evaluation.noise_multiplier"])
def test_noise_beyond_every_sampler_is_refused_by_its_own_name(name: str) -> None:
    """The advice of the samplers, a coarser grid, does not help the counts of secure metrics, and a
    square may not overflow.
    """
    with pytest.raises(
        PlanError, match=rf"{name} must be a finite number in \(0, .*\], got 1e\+300"
    ):
        TrainingPlan().with_overrides({name: 1e300})


def test_a_protocol_that_training_does_not_run_is_refused() -> None:
    """GOPA and Turbo are there to be compared (`sumus.paper`); a plan that names one would have
    been run with secagg.
    """
    with pytest.raises(PlanError, match=r"aggregation\.protocol must be one of secagg, trusted"):
        TrainingPlan().with_overrides({"aggregation.protocol": "gopa"})


def test_contributors() -> None:
    plan = TrainingPlan.from_toml("[federation]\nsilos = 10\ndropouts = 2\ncolluding = 1")
    assert plan.noise_contributors == 7
    fixed = plan.with_overrides({"federation.selection": "fixed", "federation.selected": "6"})
    assert fixed.noise_contributors == 3
    with pytest.raises(PlanError, match=r"federation.silos must be known"):
        _ = TrainingPlan().noise_contributors


def test_a_plan_cannot_be_changed() -> None:
    plan = TrainingPlan.from_toml(GOLDEN)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.privacy.delta = 0.5  # type: ignore[misc]
    assert math.isclose(plan.replace("privacy", delta=0.25).privacy.delta, 0.25)
    with pytest.raises(PlanError, match="must be a finite number in"):
        plan.replace("privacy", delta=2.0)


def test_the_number_of_counted_classes_is_that_of_the_data() -> None:
    """It is written down, so that what a test record may add follows from the plan alone."""
    facts = PublicFacts("f", ("a", "b", "c"), (100,) * 3, (4,), LabelFacts(("x", "y", "z")))
    bare = TrainingPlan().with_overrides({"training.batch_size": 20})
    assert resolve(bare, facts).plan.evaluation.classes is None
    secure = bare.with_overrides({"evaluation.metrics": "secure"})
    resolved = resolve(secure, facts)
    assert resolved.plan.evaluation.classes == 3
    assert resolve(resolved.plan, facts).plan == resolved.plan
    with pytest.raises(PlanError, match=r"evaluation\.classes must be known before noise is sized"):
        _ = secure.task.counts
    for stated in (2, 4):
        asked = secure.with_overrides({"evaluation.classes": stated})
        with pytest.raises(PlanError, match=r"evaluation\.classes must be the 3 classes"):
            resolve(asked, facts)
    with pytest.raises(PlanError, match=r"evaluation\.classes"):
        secure.with_overrides({"evaluation.classes": 1})
    numbers = secure.with_overrides({"training.task": "regression", "evaluation.classes": 2})
    with pytest.raises(PlanError, match=r"evaluation\.classes must be left out"):
        resolve(numbers, dataclasses.replace(facts, labels=LabelFacts(bounds=((0.0, 1.0),))))


HASH = "8393d544cf738d23e9ed46d6062a34735c1486856af19e54d56f3249c601278f"


@given(name=st.text(st.characters(exclude_categories=("Cs",)), max_size=8))
def test_a_dotted_key_in_a_message_is_one_that_a_plan_can_hold(name: str) -> None:
    table = tomllib.loads(f"{dotted('data.bounds', name)} = [0, 1]")
    assert table == {"data": {"bounds": {name: [0, 1]}}}
    assert dotted("data.bounds", "age") == "data.bounds.age"
