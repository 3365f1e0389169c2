"""The experiments of Heikkilä 2025 (section 5 and appendix), each as a list of settings: a plan, a
name, and what kind of comparison it is.

| group          | what it shows                                                                                                    |
|----------------|------------------------------------------------------------------------------------------------------------------|
| `paper`        | the paper's accounting: Rényi with Mironov's conversion, every step counted with the noise of all silos           |
| `proved`       | the same target ε with a privacy-loss distribution and an analysis that is proved for what runs                   |
| `no privacy`   | the convex pass without noise, FedAvg, and every silo by itself                                                   |

The paper's setups: records dealt evenly to 10 silos (Income: 51 states), a fifth of each silo kept
for testing, δ = 1e-5, ε = 1, one local step against one local epoch, expected batches of 512 and
128 (Fashion-MNIST), 256 and 128 (CIFAR-10), sampling rate 0.05 (Income).
"""

from __future__ import annotations

from sumus.paper.experiments.comparison import Experiment, Line

__all__ = ["EXPERIMENTS"]

_PRIVACY: dict[str, object] = {  # as in the paper, which counts the noise of every silo
    "privacy.epsilon": 1.0,
    "privacy.delta": 1e-5,
    "federation.colluding": 0,
}
_PAPER: dict[str, object] = {
    "privacy.accountant": "renyi-mironov",
    "privacy.calibrate_to": "per-step",
}
_ALONE: dict[str, object] = {"privacy.calibrate_to": "local"}
# several noisy steps add up before they are summed
_WIDE_RING: dict[str, object] = {"aggregation.modulus_bits": 40}


def _private(algorithm: str, **training: object) -> dict[str, object]:
    return (
        {"training.algorithm": algorithm}
        | _WIDE_RING
        | {f"training.{key}": value for key, value in training.items()}
    )


# the most noise that the sampler is proved for is ample on this grid
_COARSE: dict[str, object] = {"noise.resolution_bits": 14}
# a thousandth of one record's step: the same pass, as good as without noise
_NO_NOISE: dict[str, object] = {
    "privacy.epsilon": None,
    "noise.noise_multiplier": 0.001,
    "aggregation.protocol": "trusted",
}


def _rate(learning_rate: float) -> dict[str, object]:
    return {"training.learning_rate": learning_rate}


def _clip(clip_norm: float) -> dict[str, object]:
    return {"training.clip_norm": clip_norm}


def _adam(server_learning_rate: float, *, momentum: float = 0.5) -> dict[str, object]:
    return {
        "training.server_optimizer": "adam",
        "training.server_learning_rate": server_learning_rate,
        "training.server_momentum": momentum,
    }


def _capped(residual_cap: float, learning_rate: float) -> dict[str, object]:
    return {"training.residual_cap": residual_cap} | _rate(learning_rate)


_EPOCH: dict[str, object] = {"federation.local_epochs": 1.0}
_AVERAGING: dict[str, object] = {
    "training.server_optimizer": "sgd",
    "training.server_learning_rate": 1.0,
    "training.server_momentum": 0.0,
}

_CNN: dict[str, object] = {"training.model": "cnn", "training.features": "centred"}
_CNN_EPOCH: dict[str, object] = _CNN | {
    "federation.local_epochs": 1.0,  # eleven steps
    "training.server_learning_rate": 2.0,
    "training.server_momentum": 0.6,
}
_CNN_STEP: dict[str, object] = _CNN | {"training.server_momentum": 0.8}
_GABOR: dict[str, object] = {"training.model": "softmax", "training.features": "gabor"}

_GABOR_PASS: dict[str, object] = (
    _GABOR
    | {"federation.local_steps": 1400, "training.algorithm": "convex-pass"}
    | _capped(0.5, 0.8)
)

_FASHION = Experiment(
    name="fashion-mnist",
    title="Fashion-MNIST, 10 silos",
    base=_PRIVACY | {"data.name": "fashion-mnist", "federation.silos": 10},
    rounds=(20,),
    fewer={
        "features-convex-pass": (5,),
        "features-single-step": (5,),
        "features-uncapped-pass": (5,),
        "features-no-noise": (5,),
    },
    lines=(
        Line(
            name="cnn-paper-epoch",
            label="CNN, 1 epoch, paper's accounting",
            group="paper",
            changes=_CNN_EPOCH
            | _PAPER
            | _private("dp-sgd", batch_size=512.0, learning_rate=0.8, clip_norm=1.0),
        ),
        Line(
            name="cnn-paper-step",
            label="CNN, 1 step, paper's accounting",
            group="paper",
            changes=_CNN_STEP
            | _PAPER
            | _private("single-step", batch_size=128.0, learning_rate=4.0, clip_norm=1.0),
        ),
        Line(
            name="features-convex-pass",
            label="Gabor features, convex pass",
            group="proved",
            changes=_GABOR_PASS,
            by_rounds={
                1: _capped(0.7, 2.0),
                2: _capped(0.7, 2.0),
                5: _capped(0.7, 1.2),
                80: _capped(0.15, 0.8),
                160: _capped(0.1, 0.6),
            },
            by_epsilon={
                0.1: _capped(0.1, 0.4) | _COARSE,
                0.3: _capped(0.2, 0.6),
                3.0: _rate(1.2),
                8.0: _rate(1.2),
            },
            # a silo's step is divided by their number
            by_silos={2: _rate(0.2), 5: _rate(0.4), 30: _rate(1.6), 100: _capped(1.0, 1.6)},
        ),
        Line(
            name="pixels-convex-pass",
            label="pixels, convex pass",
            group="proved",
            changes={"federation.local_steps": 1400, "training.algorithm": "convex-pass"}
            | _capped(0.5, 0.8),
        ),
        Line(
            name="features-uncapped-pass",
            label="Gabor features, convex pass, no cap",
            group="proved",
            changes=_GABOR_PASS | {"training.residual_cap": None, "training.learning_rate": 0.4},
            by_rounds={5: _rate(0.8)},
        ),
        Line(
            name="features-single-step",
            label="Gabor features, 1 step, Adam",
            group="proved",
            changes=_GABOR
            | _private("single-step", sampling_rate=1.0, learning_rate=16.0, clip_norm=0.25)
            | _adam(0.1),
            by_rounds={
                1: _clip(0.5) | _adam(0.3, momentum=0.0),
                2: _clip(1.0) | _rate(32.0) | _AVERAGING | {"training.iterate_average": 0.5},
                5: _clip(0.5) | _rate(48.0) | _AVERAGING,
                80: _clip(0.5) | _adam(0.03),
                160: _clip(0.5) | _adam(0.02),
            },
            by_epsilon={0.1: _adam(0.06) | _COARSE},
        ),
        Line(
            name="cnn-split-noise",
            label="CNN, 1 epoch, split noise",
            group="proved",
            changes=_CNN_EPOCH
            | _private(
                "split-noise", batch_size=512.0, learning_rate=0.8, clip_norm=1.0, state_noise=8.0
            ),
        ),
        Line(
            name="cnn-local",
            label="CNN, 1 epoch, local noise",
            group="proved",
            changes=_CNN_EPOCH
            | _ALONE
            | _private("dp-sgd", batch_size=512.0, learning_rate=0.8, clip_norm=1.0),
        ),
        Line(
            name="cnn-single-step",
            label="CNN, 1 step",
            group="proved",
            changes=_CNN_STEP
            | _private("single-step", sampling_rate=1.0, learning_rate=8.0, clip_norm=1.0),
        ),
        Line(
            name="features-no-noise",
            label="Gabor features, convex pass, no privacy",
            group="no privacy",
            changes=_GABOR_PASS | _NO_NOISE,
            by_rounds={5: _capped(0.7, 1.2)},
        ),
        Line(
            name="cnn-fedavg",
            label="CNN, 1 epoch, no privacy",
            group="no privacy",
            changes=_CNN
            | _EPOCH
            | {
                "training.algorithm": "fedavg",
                "training.batch_size": 64.0,
                "training.learning_rate": 0.1,
            },
        ),
        Line(
            name="cnn-alone",
            label="CNN, each silo alone, no privacy",
            group="no privacy",
            alone=True,
            changes=_CNN
            | _EPOCH
            | {
                "training.algorithm": "fedavg",
                "training.batch_size": 64.0,
                "training.learning_rate": 0.1,
            },
        ),
    ),
)

_HEAD: dict[str, object] = {"training.model": "softmax"}
_HEAD_PASS: dict[str, object] = {
    "federation.local_steps": 1200,
    "training.algorithm": "convex-pass",
} | _capped(0.3, 0.6)
_HEAD_BY_ROUNDS = {
    1: _capped(0.5, 2.0),
    2: _capped(0.4, 2.0),
    5: _capped(0.5, 1.2),
    10: _capped(0.3, 1.2),
    40: _capped(0.2, 0.6),
    80: _capped(0.2, 0.3),
    160: _capped(0.2, 0.1),
}
_CIFAR = Experiment(
    name="cifar10",
    title="CIFAR-10 behind a frozen network, 10 silos",
    base=_PRIVACY | _HEAD | {"data.name": "cifar10-features", "federation.silos": 10},
    rounds=(20, 10, 40, 80, 160),
    fewer={},
    lines=(
        Line(
            name="paper-epoch",
            label="1 epoch, paper's accounting",
            group="paper",
            changes=_PAPER
            | _EPOCH
            | _private("dp-sgd", batch_size=256.0, learning_rate=2.0, clip_norm=1.0),
        ),
        Line(
            name="paper-step",
            label="1 step, paper's accounting",
            group="paper",
            changes=_PAPER
            | _private("single-step", batch_size=128.0, learning_rate=8.0, clip_norm=1.0),
        ),
        Line(
            name="convex-pass",
            label="convex pass",
            group="proved",
            changes=_HEAD_PASS,
            by_rounds=_HEAD_BY_ROUNDS,
            by_epsilon={
                0.1: _capped(0.2, 0.1) | _COARSE,
                0.3: _capped(0.2, 0.3),
                3.0: _capped(0.5, 1.2),
                8.0: _capped(0.5, 1.6),
            },
        ),
        Line(
            name="uncapped-pass",
            label="convex pass, no cap",
            group="proved",
            changes=_HEAD_PASS | {"training.residual_cap": None, "training.learning_rate": 0.4},
            by_rounds={40: _rate(0.3), 80: _rate(0.2), 160: _rate(0.15)},
        ),
        Line(
            name="split-noise",
            label="1 epoch, split noise",
            group="proved",
            changes=_EPOCH
            | _private("split-noise", batch_size=256.0, learning_rate=2.0, clip_norm=1.0),
        ),
        Line(
            name="local",
            label="1 epoch, local noise",
            group="proved",
            changes=_EPOCH
            | _ALONE
            | _private("dp-sgd", batch_size=256.0, learning_rate=0.5, clip_norm=1.0),
        ),
        Line(
            name="single-step",
            label="1 step",
            group="proved",
            changes=_private(
                "single-step",
                sampling_rate=1.0,
                learning_rate=12.0,
                clip_norm=1.0,
                server_momentum=0.3,
            ),
            by_rounds={
                1: _adam(0.3, momentum=0.0),
                2: _adam(0.3, momentum=0.8) | {"training.iterate_average": 0.99},
                5: _adam(0.3, momentum=0.7),
                40: _rate(8.0) | _AVERAGING,
                80: _rate(4.0) | _AVERAGING,
                160: _rate(2.0) | _AVERAGING,
            },
            by_epsilon={
                0.1: _rate(2.0) | _COARSE,
                0.3: _rate(8.0),
                3.0: _rate(32.0),
                8.0: _rate(32.0),
            },
        ),
        Line(
            name="no-noise",
            label="convex pass, no privacy",
            group="no privacy",
            changes=_HEAD_PASS | _NO_NOISE,
            by_rounds=_HEAD_BY_ROUNDS,
        ),
        Line(
            name="fedavg",
            label="1 epoch, no privacy",
            group="no privacy",
            changes=_EPOCH
            | {
                "training.algorithm": "fedavg",
                "training.batch_size": 64.0,
                "training.learning_rate": 0.1,
            },
        ),
        Line(
            name="alone",
            label="each silo alone, no privacy",
            group="no privacy",
            alone=True,
            changes=_EPOCH
            | {
                "training.algorithm": "fedavg",
                "training.batch_size": 64.0,
                "training.learning_rate": 0.1,
            },
        ),
    ),
)

_TWENTIETH: dict[str, object] = {"training.sampling_rate": 0.05}
# encodings differ in scale by far: one rate per coordinate does what many steps would
_ADAM = _adam(0.3)
_INCOME_PASS: dict[str, object] = {
    "training.algorithm": "convex-pass",
    "training.batch_size": 8.0,
    "training.learning_rate": 2.0,
    "aggregation.modulus_bits": 36,
}
_INCOME = Experiment(
    name="income",
    title="ACS Income 2018, 51 silos",
    base=_PRIVACY
    | {
        "data.name": "income",
        "data.partition": "natural",
        "federation.silos": 51,
        "training.model": "logistic",
    }
    # the paper's δ is above one over a million people
    | {"privacy.delta_may_expose_a_record": True},
    rounds=(10,),
    fewer={"convex-pass": (2,), "single-step": (2,), "no-noise": (2,)},
    lines=(
        Line(
            name="paper-epoch",
            label="1 epoch, paper's accounting",
            group="paper",
            changes=_PAPER
            | _EPOCH
            | _TWENTIETH
            | _private("dp-sgd", learning_rate=4.0, clip_norm=1.0),
        ),
        Line(
            name="paper-step",
            label="1 step, paper's accounting",
            group="paper",
            changes=_PAPER | _TWENTIETH | _private("single-step", learning_rate=4.0, clip_norm=1.0),
        ),
        Line(
            name="convex-pass",
            label="convex pass",
            group="proved",
            changes=_INCOME_PASS,
            by_epsilon={0.1: _rate(1.0) | _COARSE},
        ),
        Line(
            name="split-noise",
            label="1 epoch, split noise",
            group="proved",
            changes=_ADAM
            | _EPOCH
            | _TWENTIETH
            | _private("split-noise", learning_rate=1.0, clip_norm=1.0),
        ),
        Line(
            name="local",
            label="1 epoch, local noise",
            group="proved",
            changes=_ADAM
            | _EPOCH
            | _TWENTIETH
            | _ALONE
            | _private("dp-sgd", learning_rate=1.0, clip_norm=1.0),
        ),
        Line(
            name="single-step",
            label="1 step",
            group="proved",
            changes=_ADAM
            | _private("single-step", sampling_rate=1.0, learning_rate=16.0, clip_norm=1.0),
            by_rounds={2: {"training.server_momentum": 0.0, "training.learning_rate": 4.0}},
            by_epsilon={0.1: _COARSE, 3.0: _rate(32.0), 8.0: _rate(32.0)},
        ),
        Line(
            name="no-noise",
            label="convex pass, no privacy",
            group="no privacy",
            changes=_INCOME_PASS | _NO_NOISE,
        ),
        Line(
            name="fedavg",
            label="1 epoch, no privacy",
            group="no privacy",
            changes=_ADAM
            | _EPOCH
            | _TWENTIETH
            | {"training.algorithm": "fedavg", "training.learning_rate": 1.0},
        ),
        Line(
            name="alone",
            label="each silo alone, no privacy",
            group="no privacy",
            alone=True,
            changes=_EPOCH
            | _TWENTIETH
            | {"training.algorithm": "fedavg", "training.learning_rate": 1.0},
        ),
    ),
)

EXPERIMENTS: dict[str, Experiment] = {each.name: each for each in (_FASHION, _CIFAR, _INCOME)}
