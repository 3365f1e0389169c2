"""The experiments of the paper (section 5 and appendix), each as a list of settings: a plan, a name, and what kind of comparison it is.

| group          | what it shows                                                                                                    |
|----------------|------------------------------------------------------------------------------------------------------------------|
| `paper`        | the paper's accounting: Rényi with Mironov's conversion, every step counted with the noise of all silos           |
| `proved`       | the same target ε with a privacy-loss distribution and an analysis that is proved for what runs                   |
| `no privacy`   | FedAvg without noise, and every silo by itself                                                                    |

The paper's setups: records dealt evenly to 10 silos (Income: 51 states), a fifth of each silo kept for testing, δ = 1e-5, ε = 1, one local
step against one local epoch, expected batches of 512 and 128 (Fashion-MNIST), 256 and 128 (CIFAR-10), sampling rate 0.05 (Income).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from sumus.errors import PlanError
from sumus.plan import TrainingPlan

__all__ = ["EXPERIMENTS", "GROUPS", "Setting", "settings_of"]

GROUPS = ("paper", "proved", "no privacy")


@final
@dataclass(frozen=True, kw_only=True)
class Setting:
    """One line of a table and one curve of a figure.

    Args:
        experiment: name of the experiment.
        name: short, fit for a file name; the number of rounds is added to it.
        label: shown to people.
        group: one of `GROUPS`.
        plan: everything public; its noise is calibrated when it is measured.
        alone: every silo trains by itself instead (no federation, no privacy).
    """

    experiment: str
    name: str
    label: str
    group: str
    plan: TrainingPlan
    alone: bool = False

    @property
    def key(self) -> str:
        """Names the setting among all settings."""
        return f"{self.name}-{self.plan.federation.rounds}-rounds"


@final
@dataclass(frozen=True, kw_only=True)
class _Line:
    """A setting before the number of rounds is known."""

    name: str
    label: str
    group: str
    changes: Mapping[str, object]
    by_rounds: Mapping[int, Mapping[str, object]] | None = None
    alone: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A data set, its federation, and the settings that are compared on it.

    Args:
        title: for tables and figures.
        rounds: numbers of rounds by default; the first is the paper's headline.
        fewer: of these settings only, further numbers of rounds.
    """

    title: str
    base: Mapping[str, object]
    rounds: tuple[int, ...]
    lines: tuple[_Line, ...]
    fewer: Mapping[str, tuple[int, ...]]
    quick_rounds: int = 2


_PRIVACY: dict[str, object] = {"privacy.epsilon": 1.0, "privacy.delta": 1e-5}
_PAPER: dict[str, object] = {"privacy.accountant": "renyi-mironov", "privacy.calibrate_to": "per-step"}
_WIDE_RING: dict[str, object] = {"aggregation.modulus_bits": 40}  # several noisy steps add up before they are summed


def _private(algorithm: str, **training: object) -> dict[str, object]:
    return {"training.algorithm": algorithm} | _WIDE_RING | {f"training.{key}": value for key, value in training.items()}


_EPOCH: dict[str, object] = {"federation.local_epochs": 1.0}

_CNN: dict[str, object] = {"training.model": "cnn"}
_GABOR: dict[str, object] = {"training.model": "softmax", "training.features": "gabor"}

_FASHION = Experiment(
    title="Fashion-MNIST, 10 silos",
    base=_PRIVACY | {"data.name": "fashion-mnist", "federation.silos": 10},
    rounds=(20,),
    fewer={"features-convex-pass": (5,), "features-single-step": (5,)},
    lines=(
        _Line(
            name="cnn-paper-epoch",
            label="CNN, 1 epoch, paper's accounting",
            group="paper",
            changes=_CNN | _PAPER | _EPOCH | _private("dp-sgd", batch_size=512.0, learning_rate=0.5, clip_norm=1.0),
        ),
        _Line(
            name="cnn-paper-step",
            label="CNN, 1 step, paper's accounting",
            group="paper",
            changes=_CNN | _PAPER | _private("single-step", batch_size=128.0, learning_rate=2.0, clip_norm=1.0),
        ),
        _Line(
            name="features-convex-pass",
            label="Gabor features, convex pass",
            group="proved",
            changes=_GABOR | {"federation.local_steps": 1400, "training.algorithm": "convex-pass", "training.learning_rate": 0.4},
            by_rounds={5: {"training.learning_rate": 0.8}, 2: {"training.learning_rate": 0.8}},
        ),
        _Line(
            name="pixels-convex-pass",
            label="pixels, convex pass",
            group="proved",
            changes={"federation.local_steps": 1400, "training.algorithm": "convex-pass", "training.learning_rate": 0.4},
        ),
        _Line(
            name="features-single-step",
            label="Gabor features, 1 step",
            group="proved",
            changes=_GABOR | _private("single-step", sampling_rate=1.0, learning_rate=16.0, clip_norm=1.0),
        ),
        _Line(
            name="cnn-split-noise",
            label="CNN, 1 epoch, split noise",
            group="proved",
            changes=_CNN | _EPOCH | _private("split-noise", batch_size=512.0, learning_rate=0.5, clip_norm=1.0),
        ),
        _Line(
            name="cnn-local",
            label="CNN, 1 epoch, local noise",
            group="proved",
            changes=_CNN | _EPOCH | _private("dp-sgd", batch_size=512.0, learning_rate=0.5, clip_norm=1.0),
        ),
        _Line(
            name="cnn-single-step",
            label="CNN, 1 step",
            group="proved",
            changes=_CNN | _private("single-step", sampling_rate=1.0, learning_rate=2.0, clip_norm=1.0),
        ),
        _Line(
            name="cnn-fedavg",
            label="CNN, 1 epoch, no privacy",
            group="no privacy",
            changes=_CNN | _EPOCH | {"training.algorithm": "fedavg", "training.batch_size": 64.0, "training.learning_rate": 0.1},
        ),
        _Line(
            name="cnn-alone",
            label="CNN, each silo alone, no privacy",
            group="no privacy",
            alone=True,
            changes=_CNN | _EPOCH | {"training.algorithm": "fedavg", "training.batch_size": 64.0, "training.learning_rate": 0.1},
        ),
    ),
)

_HEAD: dict[str, object] = {"training.model": "softmax"}
_CIFAR = Experiment(
    title="CIFAR-10 behind a frozen network, 10 silos",
    base=_PRIVACY | _HEAD | {"data.name": "cifar10-features", "federation.silos": 10},
    rounds=(20, 10, 40, 80, 160),
    fewer={},
    lines=(
        _Line(
            name="paper-epoch",
            label="1 epoch, paper's accounting",
            group="paper",
            changes=_PAPER | _EPOCH | _private("dp-sgd", batch_size=256.0, learning_rate=0.5, clip_norm=1.0),
        ),
        _Line(
            name="paper-step",
            label="1 step, paper's accounting",
            group="paper",
            changes=_PAPER | _private("single-step", batch_size=128.0, learning_rate=2.0, clip_norm=1.0),
        ),
        _Line(
            name="convex-pass",
            label="convex pass",
            group="proved",
            changes={"federation.local_steps": 1200, "training.algorithm": "convex-pass", "training.learning_rate": 0.4},
        ),
        _Line(
            name="split-noise",
            label="1 epoch, split noise",
            group="proved",
            changes=_EPOCH | _private("split-noise", batch_size=256.0, learning_rate=0.5, clip_norm=1.0),
        ),
        _Line(
            name="local",
            label="1 epoch, local noise",
            group="proved",
            changes=_EPOCH | _private("dp-sgd", batch_size=256.0, learning_rate=0.5, clip_norm=1.0),
        ),
        _Line(
            name="single-step",
            label="1 step",
            group="proved",
            changes=_private("single-step", sampling_rate=1.0, learning_rate=2.0, clip_norm=1.0),
        ),
        _Line(
            name="fedavg",
            label="1 epoch, no privacy",
            group="no privacy",
            changes=_EPOCH | {"training.algorithm": "fedavg", "training.batch_size": 64.0, "training.learning_rate": 0.1},
        ),
        _Line(
            name="alone",
            label="each silo alone, no privacy",
            group="no privacy",
            alone=True,
            changes=_EPOCH | {"training.algorithm": "fedavg", "training.batch_size": 64.0, "training.learning_rate": 0.1},
        ),
    ),
)

_TWENTIETH: dict[str, object] = {"training.sampling_rate": 0.05}
_INCOME = Experiment(
    title="ACS Income 2018, 51 silos",
    base=_PRIVACY | {"data.name": "income", "data.partition": "natural", "federation.silos": 51, "training.model": "logistic"},
    rounds=(10,),
    fewer={"convex-pass": (2,), "single-step": (2,)},
    lines=(
        _Line(
            name="paper-epoch",
            label="1 epoch, paper's accounting",
            group="paper",
            changes=_PAPER | _EPOCH | _TWENTIETH | _private("dp-sgd", learning_rate=1.0, clip_norm=1.0),
        ),
        _Line(
            name="paper-step",
            label="1 step, paper's accounting",
            group="paper",
            changes=_PAPER | _TWENTIETH | _private("single-step", learning_rate=1.0, clip_norm=1.0),
        ),
        _Line(
            name="convex-pass",
            label="convex pass",
            group="proved",
            changes={"training.algorithm": "convex-pass", "training.batch_size": 8.0, "training.learning_rate": 2.0}
            | {"aggregation.modulus_bits": 36},
        ),
        _Line(
            name="split-noise",
            label="1 epoch, split noise",
            group="proved",
            changes=_EPOCH | _TWENTIETH | _private("split-noise", learning_rate=1.0, clip_norm=1.0),
        ),
        _Line(
            name="local",
            label="1 epoch, local noise",
            group="proved",
            changes=_EPOCH | _TWENTIETH | _private("dp-sgd", learning_rate=1.0, clip_norm=1.0),
        ),
        _Line(
            name="single-step",
            label="1 step",
            group="proved",
            changes=_private("single-step", sampling_rate=1.0, learning_rate=4.0, clip_norm=1.0),
        ),
        _Line(
            name="fedavg",
            label="1 epoch, no privacy",
            group="no privacy",
            changes=_EPOCH | _TWENTIETH | {"training.algorithm": "fedavg", "training.learning_rate": 1.0},
        ),
        _Line(
            name="alone",
            label="each silo alone, no privacy",
            group="no privacy",
            alone=True,
            changes=_EPOCH | _TWENTIETH | {"training.algorithm": "fedavg", "training.learning_rate": 1.0},
        ),
    ),
)

EXPERIMENTS: dict[str, Experiment] = {"fashion-mnist": _FASHION, "cifar10": _CIFAR, "income": _INCOME}


def settings_of(experiment: str, *, rounds: Sequence[int] = (), quick: bool = False, only: Sequence[str] = ()) -> list[Setting]:
    """All settings of an experiment, the headline number of rounds first.

    Args:
        experiment: a key of `EXPERIMENTS`.
        rounds: instead of the experiment's own numbers of rounds, for every setting.
        quick: a few rounds only, to see that everything runs.
        only: names of settings to keep; all if empty.
    """
    chosen = EXPERIMENTS[experiment]
    unknown = sorted(set(only) - {line.name for line in chosen.lines})
    if unknown:
        known = f"must be one of {', '.join(line.name for line in chosen.lines)}"
        raise PlanError("--only", unknown[0], known, "Name a setting of the experiment.")
    made: list[Setting] = []
    for position, count in enumerate(rounds or ((chosen.quick_rounds,) if quick else chosen.rounds)):
        made += [_setting(experiment, line, count) for line in chosen.lines]
        if position == 0 and not rounds and not quick:
            made += [_setting(experiment, line, each) for line in chosen.lines for each in chosen.fewer.get(line.name, ())]
    return [each for each in made if not only or each.name in only]


def _setting(experiment: str, line: _Line, rounds: int) -> Setting:
    changes: dict[str, Any] = {**EXPERIMENTS[experiment].base, **line.changes, **(line.by_rounds or {}).get(rounds, {})}
    plan = TrainingPlan().with_overrides(changes | {"federation.rounds": rounds})
    return Setting(experiment=experiment, name=line.name, label=line.label, group=line.group, plan=plan, alone=line.alone)
