"""The tables of a training plan: every key with its default and the rule that its value must
satisfy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from sumus.files import (
    RuledTable,
    bit_count,
    choice,
    digest,
    digest_or_plan,
    flag,
    key,
    name_or_place,
    named_choices,
    names,
    number,
    optional,
    table,
    text,
    weights,
    whole,
    word_or,
)
from sumus.noise import LAWS
from sumus.plan.algorithms import RULES, algorithms_with
from sumus.plan.sizes import WHITENED_FEATURES
from sumus.tasks import TASKS

__all__ = [
    "ENCODINGS",
    "MECHANISMS",
    "PLAN_START",
    "SECTIONS",
    "AggregationPlan",
    "DataPlan",
    "DescribePlan",
    "EvaluationPlan",
    "FederationPlan",
    "NoisePlan",
    "PrivacyPlan",
    "ReportPlan",
    "SiloPlan",
    "TrainingSectionPlan",
]

RATE_SCHEDULES = ("constant", "linear", "cosine")
MECHANISMS = (*LAWS, "poisson-binomial")
TEXTS = ("minilm", "words")
PLAN_START = "plan:"
"""What `training.start_from` begins with where it names a plan instead of a model."""
ACCOUNTANTS = ("pld", "renyi", "renyi-mironov")

# of text files; a codec may do anything to bytes, so these are all there are
ENCODINGS = (
    *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1250", "cp1251", "cp1252"),
    *("iso8859-2", "iso8859-15", "mac-roman", "shift_jis", "gb18030", "big5", "euc-kr"),
)

_SOME, _POISSON = ("federation.selection", "fixed", "poisson"), ("federation.selection", "poisson")
_FILE = ("data.path",)
_TIMES = ("training.task", "survival")
_PERSON = ("privacy.unit", "person")
_MOST_SEED = 2**63 - 1


@final
@dataclass(frozen=True, kw_only=True)
class PrivacyPlan(RuledTable):
    """What is promised. `epsilon` is the target that noise is calibrated to."""

    # the target; or give noise.noise_multiplier
    epsilon: float | None = key(None, optional(number(above=0.0)))
    # of the promise; refused from one over the number of records on
    delta: float = key(1e-5, number(above=0.0, below=1.0))
    # accept a δ that allows for publishing some record whole
    delta_may_expose_a_record: bool = key(False, flag())
    # what is protected: one record, all rows of one person, or all records of one silo
    unit: str = key("record", choice("record", "person", "silo"))
    # the most silos that hold rows of one person; 1: what is protected is a person per silo
    silos_per_person: int = key(1, whole(low=1, high=1000), only=_PERSON)
    # privacy-loss distribution, or Rényi divergences
    accountant: str = key("pld", choice(*ACCOUNTANTS))
    # the ε that meets the target: the best proved one, that of the silo's own noise, or Heikkilä
    # 2025 (not proved for several steps)
    calibrate_to: str = key(
        "proved",
        choice("proved", "local", "per-step"),
        only=algorithms_with("privacy.calibrate_to"),
    )
    # expected number of private tuning runs to account for
    tuning_runs: float | None = key(None, optional(number(low=1.0)))


@final
@dataclass(frozen=True, kw_only=True)
class FederationPlan(RuledTable):
    """Who takes part, how often, and whom the guarantee counts on."""

    # organisations that take part; omitted: taken from the data
    silos: int | None = key(None, optional(whole(low=1)))
    rounds: int = key(10, whole(low=1, high=10**9))  # secure sums; one model is released after each
    # gradient steps per round; convex-pass, tangent-pass: bins of a pass
    local_steps: int | None = key(None, optional(whole(low=1, high=10**9)))
    # over a silo's records, instead of local_steps
    local_epochs: float | None = key(
        None, optional(number(above=0.0)), only=algorithms_with("federation.local_epochs")
    )
    dropouts: int = key(0, whole(low=0))  # silos that may vanish in a round without loss
    # silos that may share what they know; omitted: 1 from three silos up
    colluding: int | None = key(None, optional(whole(low=0)))
    selection: str = key("all", choice("all", "fixed", "poisson"))  # which silos a round invites
    # silos per round; "poisson": fewer end a round unused
    selected: int | None = key(None, optional(whole(low=1)), only=_SOME)
    # that a silo is invited
    selection_rate: float | None = key(None, optional(number(above=0.0, high=1.0)), only=_POISSON)


@final
@dataclass(frozen=True, kw_only=True)
class TrainingSectionPlan(RuledTable):
    """What every silo computes."""

    task: str = key("classification", choice(*TASKS))  # what is learned from the labels
    # what silos compute, and with it what is proved; fedavg has no privacy
    algorithm: str = key("convex-pass", choice(*RULES))
    # what is trained: softmax | logistic | mlp | cnn | linear | "package.module:Class"
    model: str = key("softmax", text())
    # own models that return a tuple or dict: position or key of the logits
    logits: str | None = key(None, optional(name_or_place()))
    # instead of the task's: a function of one record's outputs and label, as
    # "package.module:function"; its gradients are clipped like any
    loss: str | None = key(None, optional(text()), only=algorithms_with("training.loss"))
    # whole-numbered records are 0 … this − 1; omitted: the embeddings' sizes
    vocabulary: int | None = key(None, optional(whole(low=1)))
    # what computes gradients in every silo, which must have it; integers, noise and masks stay on
    # the processor
    device: str = key("cpu", choice("cpu", "cuda", "mps"), only=algorithms_with("training.device"))
    features: str = key("none", text())  # public fixed feature map in front of the model
    # how many directions of the feature map are kept, those in which made-up pictures differ most;
    # omitted: all
    components: int | None = key(
        None, optional(whole(low=1, high=10**6)), only=("training.features", *WHITENED_FEATURES)
    )
    # how far made-up pictures even out the directions of the feature map: 0 not at all, 1 wholly
    whitening: float = key(
        0.5, number(low=0.0, high=1.0), only=("training.features", *WHITENED_FEATURES)
    )
    # records are scaled to norm at most this, bias included; tangent-pass: their Jacobians are
    feature_bound: float = key(
        1.0, number(low=1e-30, high=1e30), only=algorithms_with("training.feature_bound")
    )
    # only records longer than this are shortened, all others keep their proportions; omitted: every
    # record gets one length (regression: √ of the number of columns)
    feature_norm: float | None = key(
        None,
        optional(number(low=1e-30, high=1e30)),
        only=algorithms_with("training.feature_norm"),
    )
    # Poisson probability per record and step; or batch_size
    sampling_rate: float | None = key(None, optional(number(above=0.0, high=1.0)))
    # expected records per silo and step; or sampling_rate
    batch_size: float | None = key(None, optional(number(low=1e-30, high=1e30)))
    # noiseless passes over a silo's records per round
    passes: int = key(1, whole(low=1, high=10**6), only=algorithms_with("training.passes"))
    # most of a record's gradient; silo: of the whole update
    clip_norm: float = key(
        1.0, number(low=1e-30, high=1e30), only=algorithms_with("training.clip_norm")
    )
    # the most error that counts, of 1
    residual_cap: float | None = key(
        None, optional(number(low=1e-6, high=1.0)), only=algorithms_with("training.residual_cap")
    )
    learning_rate: float = key(0.5, number(low=1e-30, high=1e30))  # of a local step
    # one per local step, instead
    learning_rates: tuple[float, ...] | None = key(
        None, optional(names(number(low=1e-30, high=1e30)))
    )
    # of the local rates over the rounds: as they are, down in a straight line, or along a cosine
    rate_schedule: str = key("constant", choice(*RATE_SCHEDULES))
    # of local steps; not for convex-pass and tangent-pass
    local_momentum: float = key(0.0, number(low=0.0, below=1.0))
    # λ of the loss + λ/2 · squared weights; convex-pass, silo, fedavg; tangent-pass: of the squared
    # distance from the round's model
    l2_penalty: float = key(0.0, number(low=0.0, high=1e30))
    # public, of gradient sums; omitted: the expected batch size
    divisor: float | None = key(None, optional(number(low=1e-30, high=1e30)))
    # parameters of the model; omitted: counted
    dimension: int | None = key(None, optional(whole(low=1, high=10**12)))
    # parameters that stay with each silo and start every round anew: "intercept", or how their
    # names begin in a network, with commas between
    local_parameters: str | None = key(
        None, optional(text()), only=algorithms_with("training.local_parameters")
    )
    # how many they are; omitted: counted
    local_dimension: int | None = key(
        None,
        optional(whole(low=1, high=10**12)),
        only=algorithms_with("training.local_parameters"),
    )
    # numbers of a round's sum where it is not the model that is summed; omitted: counted
    coordinates: int | None = key(
        None,
        optional(whole(low=1, high=10**12)),
        only=algorithms_with("training.coordinates"),
    )
    # a public map in front of clipping: kronecker: from the round's model and made-up inputs, on both
    # sides of every matrix; inputs: on the side of what enters a layer alone
    preconditioner: str = key(
        "none",
        choice("none", "kronecker", "inputs"),
        only=algorithms_with("training.preconditioner"),
    )
    # of the preconditioner, in mean eigenvalues: the larger, the closer to none
    damping: float = key(
        1.0, number(low=1e-6, high=1e6), only=("training.preconditioner", "kronecker", "inputs")
    )
    # newton: share of a record's squared length that is its second moments, the rest its gradient
    matrix_share: float = key(
        0.3, number(low=0.01, high=0.99), only=algorithms_with("training.matrix_share")
    )
    # newton: what every direction's second moment counts for besides its own, over feature_bound²
    # and the number of records
    ridge: float = key(0.001, number(low=0.0, high=1e6), only=algorithms_with("training.ridge"))
    # parameters that are trained, by how their names begin, with commas between; the others keep
    # their first value; omitted: all that take a gradient
    tangent_layers: str | None = key(
        None, optional(text()), only=algorithms_with("training.tangent_layers")
    )
    # the values that these others have instead, of a public start, by their hash; set by
    # `--start-from`
    frozen_layers: str | None = key(
        None, optional(digest()), only=algorithms_with("training.tangent_layers")
    )
    # variance of the unsent noise, in shares (κ); "auto": the one with the least noise in states
    # and sum together, for a target
    state_noise: float | str = key(
        2.0,
        word_or("auto", number(low=0.0, high=1e6)),
        only=algorithms_with("training.state_noise"),
    )
    # of the server's step along the round's update; costs no privacy
    server_learning_rate: float = key(1.0, number(low=1e-30, high=1e30))
    # of that step's rate over the rounds; costs no privacy
    server_rate_schedule: str = key("constant", choice(*RATE_SCHEDULES))
    # of the global model, on public sums; costs no privacy
    server_momentum: float = key(0.0, number(low=0.0, below=1.0))
    # what the server does with a public sum; adam-bc takes the known variance of the noise off the
    # squares; costs no privacy
    server_optimizer: str = key("sgd", choice("sgd", "adam", "yogi", "adam-bc"))
    # share of the running mean of global models that is released
    iterate_average: float = key(0.0, number(low=0.0, high=1.0))
    # how much of that mean every round keeps; 1: all rounds count alike
    average_decay: float = key(1.0, number(low=0.0, high=1.0))
    # classification: how much a record of each class counts, by name or in the order of the classes;
    # public; only their proportions matter
    class_weights: tuple[float, ...] | Mapping[str, float] | None = key(
        None, optional(weights()), only=("training.task", "classification")
    )
    # survival: the first model's share of people at risk who have the event in an interval; public;
    # omitted: 0.1
    start_hazard: float | None = key(None, optional(number(low=1e-6, high=0.5)), only=_TIMES)
    # of the first model; public: that model is no secret
    init_seed: int = key(0, whole(low=0, high=_MOST_SEED))
    # the released model that round 1 begins with, by the hash of its parameters, or by that of the
    # plan whose run released it last ("plan:…", before it is known); omitted: a fresh one
    start_from: str | None = key(None, optional(digest_or_plan()))
    # mlp: widths of the hidden layers
    hidden: tuple[int, ...] = key((64,), names(whole(low=1, high=10**9)))


@final
@dataclass(frozen=True, kw_only=True)
class NoisePlan(RuledTable):
    """How noise is drawn and how real vectors become integers."""

    # law of the noise; gaussian: simulations only; poisson-binomial: whole silos
    mechanism: str = key("skellam", choice(*MECHANISMS))
    # of the sum, in clip norms; omitted: calibrated
    noise_multiplier: float | None = key(None, optional(number(above=0.0, high=1e9)))
    # a ratio to it for every round; omitted: all have the same
    schedule: tuple[float, ...] | None = key(
        None, optional(names(number(low=1e-3, high=1e3))), only=algorithms_with("noise.schedule")
    )
    # grid steps per clip norm, as a power of two
    resolution_bits: int = key(16, whole(low=4, high=24))
    # what is rounded to integers; auto: by algorithm
    rounding: str = key("auto", choice("auto", "record", "stochastic", "sum"))
    # coins per coordinate and silo
    trials: int = key(32, whole(low=1, high=4096), only=("noise.mechanism", "poisson-binomial"))
    # remove the noise that tolerated drop-outs turned out not to need
    removable: bool = key(False, flag())


@final
@dataclass(frozen=True, kw_only=True)
class AggregationPlan(RuledTable):
    """How integer vectors are summed."""

    # how the sum is made; trusted: no secrecy, for simulations
    protocol: str = key("secagg", choice("secagg", "trusted"))
    # size of the ring of the sum, as a power of two
    modulus_bits: int = key(32, bit_count(low=16, high=64))


@final
@dataclass(frozen=True, kw_only=True)
class DataPlan(RuledTable):
    """Where records come from and what is publicly known about them."""

    name: str | None = key(None, optional(text()))  # a data set of `sumus data list`
    # instead: a CSV, Excel, Parquet or Arrow file, a folder of them, or a silo's query file; relative:
    # below the plan's folder
    path: str | None = key(None, optional(text()))
    # of a text file without byte order mark; omitted: utf-8
    encoding: str | None = key(None, optional(choice(*ENCODINGS)), only=_FILE)
    # of an Excel workbook; omitted: its first one
    sheet: str | None = key(None, optional(text()), only=_FILE)
    # instead: the name of records given in Python, which no command can load
    objects: str | None = key(None, optional(text()))
    # of the file: whose record it is
    silo_column: str | None = key(None, optional(text()), only=_FILE)
    # of the file: what is learned
    label_column: str | None = key(None, optional(text()), only=_FILE)
    # of the file: whose row it is, for privacy.unit = "person"; never a feature
    person_column: str | None = key(None, optional(text()), only=_FILE)
    # a person counts with the mean of its rows, or with their sum over records_per_person
    person_weighting: str = key("mean", choice("mean", "sum"), only=_PERSON)
    # the most rows of a person that are used, public; omitted: 100 for "mean"
    records_per_person: int | None = key(None, optional(whole(low=1, high=10**6)), only=_PERSON)
    # instead: several of them, of yes or no (classification) or of numbers with bounds (regression);
    # records given in Python: names of the labels, in order
    label_columns: tuple[str, ...] | None = key(
        None, optional(names(text())), only=("training.task", "classification", "regression")
    )
    # of the file: how long a person was followed (survival)
    time_column: str | None = key(None, optional(text()), only=_FILE)
    # of the file: whether what is waited for happened then: 0 or 1, no or yes (survival)
    event_column: str | None = key(None, optional(text()), only=_FILE)
    # public cut points of time; whoever is followed beyond the last counts up to it (survival)
    intervals: tuple[float, ...] | None = key(None, optional(names(number(above=0.0))), only=_TIMES)
    # feature columns of the file; omitted: all others
    columns: tuple[str, ...] | None = key(None, optional(names(text())), only=_FILE)
    # arrays given in Python: every feature gets a second one that says whether it is missing (NaN);
    # tables have them always; omitted: a missing value is refused
    missing: str | None = key(None, optional(choice("flag")))
    # columns of the file whose numbers are written with a decimal comma: 48,5 or 1.234,5
    decimal_comma: tuple[str, ...] | None = key(None, optional(names(text())), only=_FILE)
    # how a named data set is dealt to silos
    partition: str = key("iid", choice("iid", "shards", "dirichlet", "natural"))
    # the smaller, the fewer classes a silo has
    dirichlet_alpha: float = key(0.5, number(above=0.0), only=("data.partition", "dirichlet"))
    # runs of records sorted by label
    shards_per_silo: int = key(2, whole(low=1, high=10**6), only=("data.partition", "shards"))
    # public: how simulated records are dealt to silos and to train and test
    split_seed: int = key(0, whole(low=0, high=_MOST_SEED))
    # share of every silo's records that is kept for testing
    test_fraction: float = key(0.2, number(low=0.0, below=1.0))
    # share of the training part that scores candidates, for tuning only
    validation_fraction: float = key(0.0, number(low=0.0, below=1.0))
    records_per_silo: tuple[int, ...] | None = key(
        None, optional(names(whole(low=1, high=10**12)))
    )  # training records (or persons, where they are the unit), one number per silo
    # records_per_silo are bounds (default), or exact and public
    counts: str | None = key(None, optional(choice("bounded", "public")))
    # column → [low, high], public
    bounds: Mapping[str, tuple[float, float]] | None = key(
        None, optional(table("bounds")), only=_FILE
    )
    # column → its values, public
    categories: Mapping[str, tuple[str, ...]] | None = key(
        None, optional(table("categories")), only=_FILE
    )
    # column of free text → the public map that makes numbers of it: "minilm", a frozen network whose
    # weights `sumus data prepare minilm` fetches, or "words", a hash of its words
    texts: Mapping[str, str] | None = key(None, optional(named_choices(*TEXTS)), only=_FILE)

    def named(self, keys: Iterable[str]) -> dict[str, str | None]:
        """The columns that these keys name, a list entry by entry."""
        columns: dict[str, str | None] = {}
        for name in keys:
            value = getattr(self, name)
            if isinstance(value, tuple):
                columns |= {f"{name}[{place}]": each for place, each in enumerate(value)}
            else:
                columns[name] = value
        return columns


@final
@dataclass(frozen=True, kw_only=True)
class DescribePlan(RuledTable):
    """What a plan that describes records counts (`sumus describe` writes these keys)."""

    # that are described; omitted: features and labels
    columns: tuple[str, ...] | None = key(
        None, optional(names(text())), only=algorithms_with("describe.columns")
    )
    # those of them that hold numbers and have no bounds: counted on a wide public grid; omitted:
    # read off the file
    numbers: tuple[str, ...] | None = key(
        None, optional(names(text())), only=algorithms_with("describe.numbers")
    )
    # of a column with bounds, of equal width
    bins: int = key(32, whole(low=1, high=65536), only=algorithms_with("describe.bins"))


@final
@dataclass(frozen=True, kw_only=True)
class EvaluationPlan(RuledTable):
    """How models are measured."""

    # told in the clear, as accounted noisy sums, or not at all
    metrics: str = key("simulation", choice("simulation", "secure", "none"))
    # secure: noise on the counts, over the most that one record moves them by; omitted: calibrated
    # to privacy.epsilon
    noise_multiplier: float | None = key(
        None, optional(number(above=0.0, high=10000.0)), only=("evaluation.metrics", "secure")
    )
    # secure: classes that the counts tell apart; omitted: as many as the labels have
    classes: int | None = key(
        None, optional(whole(low=2, high=1000)), only=("evaluation.metrics", "secure")
    )
    # measure every so many rounds, and after the last; omitted: secure measures after the last
    # only, simulation after each
    every: int | None = key(
        None, optional(whole(low=1)), only=("evaluation.metrics", "simulation", "secure")
    )


@final
@dataclass(frozen=True, kw_only=True)
class ReportPlan(RuledTable):
    """Where progress is written besides the run folder."""

    # which of them get every round's entry
    loggers: tuple[str, ...] = key((), names(choice("tensorboard", "mlflow")))


@final
@dataclass(frozen=True, kw_only=True)
class SiloPlan(RuledTable):
    """What one silo does differently from the rest (appendix A.3 of Heikkilä 2025). Unset keys
    follow the plan.
    """

    # of its local steps
    learning_rate: float | None = key(None, optional(number(low=1e-30, high=1e30)))
    # of its records' gradients
    clip_norm: float | None = key(
        None, optional(number(low=1e-30, high=1e30)), only=algorithms_with("silo.clip_norm")
    )
    # factor on the standard deviation of its noise share
    std_factor: float | None = key(None, optional(number(low=1e-30, high=1e30)))
    # Poisson, of its records
    sampling_rate: float | None = key(
        None, optional(number(above=0.0, high=1.0)), only=algorithms_with("silo.sampling_rate")
    )
    # its own number per round
    local_steps: int | None = key(None, optional(whole(low=1, high=10**9)))


SECTIONS: dict[str, type[RuledTable]] = {
    "privacy": PrivacyPlan,
    "federation": FederationPlan,
    "training": TrainingSectionPlan,
    "noise": NoisePlan,
    "aggregation": AggregationPlan,
    "data": DataPlan,
    "describe": DescribePlan,
    "evaluation": EvaluationPlan,
    "report": ReportPlan,
}
