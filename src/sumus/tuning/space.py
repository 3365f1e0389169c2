"""Search spaces: which numbers of a plan may vary, and between which bounds, in TOML.

[training.learning_rate]          # section.key of the plan
low = 0.05
high = 2.0
log = true                        # equal weight to every decade; the default for learning rates is up to you
[federation.local_steps]
low = 50                          # whole numbers where both bounds are whole
high = 400
[training.server_momentum]
choices = [0.0, 0.3, 0.6]         # a list instead of bounds
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from sumus.errors import PlanError
from sumus.files import parse_toml, read_toml
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource

__all__ = ["Dimension", "SearchSpace", "default_space"]

_KEYS = {"low", "high", "log", "choices"}


@final
@dataclass(frozen=True, kw_only=True)
class Dimension:
    """One number of the plan that may vary.

    Args:
        key: section.key.
        low: smallest value.
        high: largest value.
        log: whether the logarithm is uniform instead of the value.
        choices: values to choose from, instead of bounds.
    """

    key: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[Any, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def suggest(self, trial: Any) -> Any:
        """A value that an Optuna trial chooses."""
        if self.choices:
            return trial.suggest_categorical(self.key, list(self.choices))
        if self.whole:
            return trial.suggest_int(self.key, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(self.key, float(self.low), float(self.high), log=self.log)

    def draw(self, source: RandomSource) -> Any:
        """A value uniform over the dimension (over its logarithm if `log`)."""
        share = float(source.uniforms(1)[0])
        if self.choices:
            return self.choices[min(int(share * len(self.choices)), len(self.choices) - 1)]
        value = (
            self.low * (self.high / self.low) ** share
            if self.log
            else self.low + (self.high - self.low) * share
        )
        return min(max(round(value), int(self.low)), int(self.high)) if self.whole else float(value)


@final
@dataclass(frozen=True)
class SearchSpace:
    """The numbers that may vary; everything else stays as in the plan."""

    dimensions: tuple[Dimension, ...]

    @classmethod
    def load(cls, path: str | Path) -> SearchSpace:
        """Read a space from a TOML file."""
        return cls.from_table(parse_toml(read_toml(path, "--space"), "--space"))

    @classmethod
    def from_table(cls, entries: Mapping[str, Any]) -> SearchSpace:
        """Build a space from nested tables, refusing what is not a key of the plan."""
        known = TrainingPlan()
        found = []
        for section, keys in entries.items():
            if not isinstance(keys, Mapping):
                raise PlanError(
                    section,
                    keys,
                    "must be a table of keys",
                    f"Write [{section}.KEY] with low and high, or choices.",
                )
            for name, bounds in keys.items():
                if not hasattr(getattr(known, section, None), name):
                    raise PlanError(
                        f"{section}.{name}", bounds, "is not a key of the plan", "See `sumus plan`."
                    )
                found.append(_dimension(f"{section}.{name}", bounds))
        if not found:
            raise PlanError(
                "--space",
                "",
                "must name at least one key of the plan",
                "For example [training.learning_rate].",
            )
        return cls(tuple(sorted(found, key=lambda each: each.key)))

    def suggest(self, trial: Any) -> dict[str, Any]:
        """Values for every dimension, chosen by an Optuna trial."""
        return {each.key: each.suggest(trial) for each in self.dimensions}

    def draw(self, source: RandomSource) -> dict[str, Any]:
        """Values for every dimension, drawn at random."""
        return {each.key: each.draw(source) for each in self.dimensions}


def _dimension(key: str, bounds: object) -> Dimension:
    if not isinstance(bounds, Mapping) or set(bounds) - _KEYS:
        raise PlanError(
            key,
            bounds,
            f"must be a table with {', '.join(sorted(_KEYS))}",
            "Give low and high, or choices.",
        )
    if "choices" in bounds:
        choices = bounds["choices"]
        if set(bounds) != {"choices"} or not isinstance(choices, list) or not choices:
            raise PlanError(
                key,
                dict(bounds),
                "must be a list of choices and nothing else, or low and high",
                "Keep one of them.",
            )
        return Dimension(key=key, choices=tuple(choices))
    if not all(_is_number(bounds.get(each)) for each in ("low", "high")) or not isinstance(
        bounds.get("log", False), bool
    ):
        raise PlanError(
            key,
            dict(bounds),
            "must have numbers low and high, and log = true or false",
            "Complete it.",
        )
    low, high, log = bounds["low"], bounds["high"], bounds.get("log", False)
    if not low < high or (log and low <= 0):
        raise PlanError(
            key, dict(bounds), "must have low < high, and low above 0 if log", "Correct the bounds."
        )
    return Dimension(key=key, low=low, high=high, log=log)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_SERVER: Final = {
    "server_momentum": {"low": 0.0, "high": 0.8},
    "iterate_average": {"choices": [0.0, 0.5, 0.8]},
}
_NOISY: Final = {
    "learning_rate": {"low": 0.05, "high": 8.0, "log": True},
    "clip_norm": {"low": 0.1, "high": 4.0, "log": True},
}
_CONVEX: Final = {
    "learning_rate": {"low": 0.05, "high": 4.0, "log": True},
    "residual_cap": {"low": 0.1, "high": 1.0, "log": True},
}
_WITHOUT_NOISE: Final = {"learning_rate": {"low": 0.01, "high": 2.0, "log": True}}
_STATE_NOISE: Final = {"state_noise": {"low": 0.5, "high": 8.0, "log": True}}


def default_space(plan: TrainingPlan) -> SearchSpace:
    """The space that is searched for the plan's algorithm unless the user gives another."""
    keys = plan.rules.keys
    if plan.rules.steps == "none":
        rule = f"must take steps to be tuned: {plan.rules.name} has no rate to search"
        raise PlanError("training.algorithm", plan.rules.name, rule, "Train it as it is.")
    if not plan.rules.private:
        dimensions = _WITHOUT_NOISE | _SERVER
    elif "training.residual_cap" in keys:
        dimensions = _CONVEX | _SERVER
    else:
        dimensions = _NOISY | _SERVER
    if "training.state_noise" in keys:
        dimensions = dimensions | _STATE_NOISE
    return SearchSpace.from_table({"training": dimensions})
