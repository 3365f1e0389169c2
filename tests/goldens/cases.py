"""The plans whose values are kept: those that are shipped, and variations that reach the rest.

A variation is a base with some keys replaced, written as `--set` takes them.
Keys have the names of the tree that the values were made from; `changes.RENAMED` leads to today's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

STEPS = """
[privacy]
epsilon = 2.0
delta = 1e-5
[federation]
silos = 5
rounds = 6
local_steps = 4
[training]
algorithm = "dp-sgd"
model = "softmax"
features = "centred"
sampling_rate = 0.1
learning_rate = 0.5
[aggregation]
modulus_bits = 36
[data]
name = "digits"
"""

CONVEX = """
[privacy]
epsilon = 1.5
delta = 1e-5
[federation]
silos = 5
rounds = 6
local_steps = 60
[training]
algorithm = "convex-pass"
model = "softmax"
features = "centred"
residual_cap = 0.4
[aggregation]
modulus_bits = 36
[data]
name = "digits"
"""

WHOLE_SILOS = """
[privacy]
epsilon = 8.0
delta = 1e-3
unit = "silo"
[federation]
silos = 20
rounds = 4
local_steps = 3
[training]
algorithm = "silo"
model = "softmax"
features = "centred"
sampling_rate = 0.5
learning_rate = 0.5
[aggregation]
modulus_bits = 36
[data]
name = "digits"
"""

TABLE = """
[privacy]
epsilon = 3.0
delta = 1e-5
[federation]
rounds = 4
[training]
model = "logistic"
[data]
path = "visits.csv"
silo_column = "clinic"
label_column = "returned"
"""

BASES = {"steps": STEPS, "convex": CONVEX, "silos": WHOLE_SILOS, "table": TABLE}


@dataclass(frozen=True)
class Case:
    """One plan whose values are kept.

    Args:
        name: of its entry.
        base: of `BASES`, or a path below the project's root that ends in .toml.
        changes: `section.key=value`, as `--set` takes them.
        drop: drop-outs of the run, as `--drop` takes them.
        needs: the data set that training needs if it is not embedded.
        quick: among the default selection of the test.
        rounds: of the run.
    """

    name: str
    base: str
    changes: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    needs: str | None = None
    quick: bool = False
    rounds: int = 2


def variation(
    name: str, base: str, *changes: str, drop: Iterable[str] = (), quick: bool = False
) -> Case:
    """A case on data that is at hand everywhere."""
    return Case(name, base, changes, tuple(drop), quick=quick)


SHIPPED = (
    Case("plans/digits", "plans/digits.toml", quick=True),
    Case("plans/income", "plans/income.toml", needs="income", quick=True),
    Case(
        "plans/income-one-round",
        "plans/income-one-round.toml",
        needs="income",
        quick=True,
        rounds=1,
    ),
    Case("plans/fashion-mnist", "plans/fashion-mnist.toml", needs="fashion-mnist", quick=True),
    Case(
        "plans/fashion-mnist-cnn", "plans/fashion-mnist-cnn.toml", needs="fashion-mnist", quick=True
    ),
    Case(
        "plans/fashion-mnist-paper",
        "plans/fashion-mnist-paper.toml",
        needs="fashion-mnist",
        quick=True,
    ),
    Case("plans/cifar10", "plans/cifar10.toml", needs="cifar10-features", quick=True),
)

_SPLIT = "training.algorithm=split-noise"
_SINGLE = ("training.algorithm=single-step", "federation.local_steps=1")
_COARSE = "noise.resolution_bits=4"  # on a fine grid both laws draw the same integers from one seed
_KNOWN_NOISE = (
    "privacy.epsilon=none",
    "noise.noise_multiplier=6",
)  # the same hash on every machine
_DISCRETE = ("noise.mechanism=discrete-gaussian", _COARSE)
_COINS = ("noise.mechanism=poisson-binomial", "privacy.accountant=renyi")
_FEDAVG = "training.algorithm=fedavg"

VARIATIONS = (
    # several noisy steps
    variation("dp-sgd", "steps", quick=True),
    variation("dp-sgd-discrete-gaussian", "steps", *_DISCRETE),
    variation(
        "dp-sgd-gaussian",
        "steps",
        "noise.mechanism=gaussian",
        "aggregation.protocol=trusted",
        quick=True,
    ),
    variation("dp-sgd-trusted", "steps", "aggregation.protocol=trusted"),
    variation("dp-sgd-momentum", "steps", "training.local_momentum=0.5"),
    variation("dp-sgd-learning-rates", "steps", "training.learning_rates=[0.8, 0.6, 0.4, 0.2]"),
    variation("dp-sgd-stochastic", "steps", "noise.rounding=stochastic"),
    variation("dp-sgd-sum", "steps", "noise.rounding=sum"),
    variation("dp-sgd-coarse", "steps", _COARSE),
    variation("dp-sgd-clipped", "steps", "noise.resolution_bits=8", "training.clip_norm=0.3"),
    variation("dp-sgd-local", "steps", "privacy.calibrate_to=local"),
    variation("dp-sgd-per-step", "steps", "privacy.calibrate_to=per-step"),
    variation("dp-sgd-renyi", "steps", "privacy.accountant=renyi"),
    variation(
        "dp-sgd-mironov",
        "steps",
        "privacy.accountant=renyi-mironov",
        "privacy.calibrate_to=per-step",
    ),
    variation("dp-sgd-tuned", "steps", "privacy.tuning_runs=10"),
    variation("dp-sgd-known-noise", "steps", "privacy.epsilon=none", "noise.noise_multiplier=4"),
    variation(
        "dp-sgd-epochs", "steps", "federation.local_steps=none", "federation.local_epochs=0.25"
    ),
    variation("dp-sgd-divisor", "steps", "training.divisor=20", "training.init_seed=7"),
    variation(
        "dp-sgd-unequal",
        "steps",
        "data.partition=dirichlet",
        "data.dirichlet_alpha=2",
        "training.sampling_rate=none",
        "training.batch_size=20",
    ),
    variation(
        "dp-sgd-own-silos",
        "steps",
        "silo.silo-1.noise_share=1.5",
        "silo.silo-1.clip_norm=0.5",
        "silo.silo-2.learning_rate=0.25",
        "silo.silo-3.sampling_rate=0.2",
        "silo.silo-4.local_steps=2",
        quick=True,
    ),
    variation("dp-sgd-mlp", "steps", "training.model=mlp", "training.hidden=[12, 6]"),
    variation("dp-sgd-random-features", "steps", "training.features=random"),
    variation(
        "dp-sgd-adam",
        "steps",
        "training.server_optimizer=adam",
        "training.server_momentum=0.5",
        "training.server_learning_rate=0.05",
        "training.iterate_average=0.5",
    ),
    variation("dp-sgd-yogi", "steps", "training.server_optimizer=yogi"),
    variation(
        "dp-sgd-secure-metrics",
        "steps",
        "evaluation.metrics=secure",
        "evaluation.every=1",
    ),
    variation(
        "dp-sgd-unmeasured", "steps", "evaluation.metrics=none", "data.validation_fraction=0.3"
    ),
    variation(
        "dp-sgd-dropouts",
        "steps",
        "federation.dropouts=1",
        drop=("1:masked:2", "2:unmask:0"),
    ),
    variation(
        "dp-sgd-removable", "steps", "federation.dropouts=1", "noise.removable=true"
    ),  # refused
    variation(
        "dp-sgd-fixed",
        "steps",
        "federation.silos=8",
        "federation.selection=fixed",
        "federation.selected=5",
    ),
    variation(
        "dp-sgd-poisson",
        "steps",
        "federation.silos=8",
        "federation.selection=poisson",
        "federation.selection_rate=0.8",
        "federation.selected=3",
    ),
    variation("dp-sgd-colluding", "steps", "federation.colluding=3", "federation.silos=7"),
    # unsent noise in the local states
    variation("split-noise", "steps", _SPLIT, quick=True),
    variation(
        "split-noise-kappa",
        "steps",
        _SPLIT,
        "training.state_noise=6",
        "training.local_momentum=0.4",
    ),
    variation(
        "split-noise-mlp",
        "steps",
        _SPLIT,
        "training.model=mlp",
        "training.hidden=[10]",
        "noise.mechanism=discrete-gaussian",
    ),
    variation("split-noise-stochastic", "steps", _SPLIT, "noise.rounding=stochastic"),
    variation("split-noise-sum", "steps", _SPLIT, "noise.rounding=sum"),
    # noiseless passes of a convex model
    variation("convex-pass", "convex", quick=True),
    variation(
        "convex-pass-uncapped", "convex", "training.residual_cap=none", "training.l2_penalty=0.01"
    ),
    variation("convex-pass-two-passes", "convex", "training.passes=2", "training.feature_bound=2"),
    variation("convex-pass-discrete-gaussian", "convex", *_DISCRETE, quick=True),
    variation(
        "convex-pass-unequal",
        "convex",
        "federation.local_steps=none",
        "training.batch_size=6",
        "data.partition=dirichlet",
    ),
    variation("convex-pass-shards", "convex", "data.partition=shards", "data.split_seed=5"),
    variation(
        "convex-pass-bounded",
        "convex",
        "data.records_per_silo=[300, 310, 288, 290, 400]",
    ),
    variation(
        "convex-pass-public-counts",
        "convex",
        "data.records_per_silo=[288, 288, 287, 287, 287]",
        "data.counts=public",
    ),
    variation(
        "convex-pass-removable",
        "convex",
        *_KNOWN_NOISE,
        "federation.silos=6",
        "federation.dropouts=2",
        "noise.removable=true",
        drop=("1:masked:4", "2:masked:1,5"),
        quick=True,
    ),
    variation(
        "convex-pass-removable-calibrated",
        "convex",
        "federation.dropouts=1",
        "noise.removable=true",
    ),
    variation(
        "convex-pass-secure-metrics",
        "convex",
        "evaluation.metrics=secure",
        "evaluation.noise_multiplier=8",
        quick=True,
    ),
    variation(
        "convex-pass-fixed",
        "convex",
        "federation.silos=8",
        "federation.selection=fixed",
        "federation.selected=4",
        "training.server_momentum=0.5",
    ),
    # one noisy step
    variation("single-step", "steps", *_SINGLE, quick=True),
    variation(
        "single-step-mlp", "steps", *_SINGLE, "training.model=mlp", "noise.rounding=stochastic"
    ),
    variation(
        "single-step-removable",
        "steps",
        *_SINGLE,
        *_KNOWN_NOISE,
        "federation.dropouts=1",
        "noise.removable=true",
        drop=("2:masked:2",),
    ),
    # whole silos
    variation("silo", "silos", quick=True),
    variation("silo-coarse", "silos", _COARSE),
    variation("silo-discrete-gaussian", "silos", *_DISCRETE),
    variation(
        "silo-poisson-binomial",
        "silos",
        *_COINS,
        quick=True,
    ),
    variation(
        "silo-poisson-binomial-trials", "silos", *_COINS, "noise.trials=8", "privacy.epsilon=12"
    ),
    variation("silo-poisson-binomial-pld", "silos", "noise.mechanism=poisson-binomial"),  # refused
    variation("silo-fixed", "silos", "federation.selection=fixed", "federation.selected=12"),
    variation("silo-momentum", "silos", "training.local_momentum=0.6", "training.l2_penalty=0.01"),
    # no privacy
    variation("fedavg", "steps", _FEDAVG, quick=True),
    variation("fedavg-mlp", "steps", _FEDAVG, "training.model=mlp", "training.local_momentum=0.5"),
    # a table of one's own, whose silos are unequal
    variation("table", "table", quick=True),
    Case(
        "normal-equations",
        "table",
        (
            "training.algorithm=normal-equations",
            "federation.rounds=1",
            "aggregation.modulus_bits=40",
        ),
        quick=True,
        rounds=1,
    ),
    variation(
        "table-declared",
        "table",
        "data.bounds={age = [18, 99], visits = [0, 12]}",
        'data.categories={returned = ["no", "yes"], ward = ["east", "west", "south"]}',
        'data.columns=["age", "visits", "ward"]',
        "data.records_per_silo=[260, 160, 110]",
    ),
    variation(
        "table-dp-sgd",
        "table",
        "training.algorithm=dp-sgd",
        "training.model=mlp",
        "training.batch_size=40",
        "federation.local_steps=3",
        "aggregation.modulus_bits=40",
    ),
)

CASES = (*SHIPPED, *VARIATIONS)


def write_table(path: Path) -> None:
    """A made-up table of three clinics, from a linear congruence that needs no library."""
    state = 20180101

    def below(bound: int) -> int:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % bound

    lines = ["clinic,age,visits,ward,returned"]
    for row in range(640):
        clinic = ("Aalen", "Bruges", "Cork")[(row % 10 > 4) + (row % 10 > 7)]
        age, visits, ward = 18 + below(80), below(12), ("east", "west", "south")[below(3)]
        likely = age + 8 * visits + (20 if ward == "west" else 0) + below(60)
        lines.append(f"{clinic},{age},{visits},{ward},{'yes' if likely > 135 else 'no'}")
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
