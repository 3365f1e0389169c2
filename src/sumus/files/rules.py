"""Rules that one value of a plan must satisfy, each able to say itself in words."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

from sumus.errors import PlanError

__all__ = [
    "SINGLE_QUOTES",
    "Rule",
    "bit_count",
    "choice",
    "digest",
    "digest_or_plan",
    "flag",
    "name_or_place",
    "names",
    "number",
    "optional",
    "table",
    "text",
    "weights",
    "whole",
    "word_or",
]


_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PLAN = re.compile(r"plan:[0-9a-f]{64}")
SINGLE_QUOTES = "Write a path with backslashes in single quotes: 'C:\\data\\x.csv'."


@final
@dataclass(frozen=True)
class Rule:
    """A check that returns the value in its canonical type, or raises a `PlanError` that names rule
    and fix.
    """

    check: Callable[[str, Any], Any]


def _interval(
    low: float | None, high: float | None, above: float | None, below: float | None
) -> str:
    left = f"[{low:g}" if low is not None else f"({above:g}" if above is not None else "(−∞"
    right = f"{high:g}]" if high is not None else f"{below:g})" if below is not None else "∞)"
    return f"{left}, {right}"


def number(
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Rule:
    """A finite real number in an interval; `above` and `below` are open ends."""

    def check(name: str, value: Any) -> float:
        interval = _interval(low, high, above, below)
        rule = f"must be a finite number in {interval}"
        # NaN fails too
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not abs(value) < math.inf
        ):
            raise PlanError(name, value, rule, f"Give a number in {interval}.")
        try:
            # minus zero becomes zero, so that equal plans have equal hashes
            real = float(value) + 0.0
        except OverflowError:
            raise PlanError(name, "a huge integer", rule, f"Give a number in {interval}.") from None
        fits = (low is None or real >= low) and (high is None or real <= high)
        if not (fits and (above is None or real > above) and (below is None or real < below)):
            raise PlanError(name, value, rule, f"Give a number in {interval}.")
        return real

    return Rule(check)


def whole(*, low: int, high: int | None = None) -> Rule:
    """A whole number in a closed interval."""

    def check(name: str, value: Any) -> int:
        interval = f"at least {low}" if high is None else f"between {low} and {high}"
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < low
            or (high is not None and value > high)
        ):
            raise PlanError(
                name,
                value,
                f"must be a whole number {interval}",
                f"Give a whole number {interval}.",
            )
        return value

    return Rule(check)


def bit_count(*, low: int, high: int) -> Rule:
    """The exponent of a power of two; a caller who writes the power itself is told the exponent."""
    inner = whole(low=low, high=high)

    def check(name: str, value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value > high:
            bits = min(max((value - 1).bit_length(), low), high)
            rule = f"must be the exponent of a power of two between {low} and {high}"
            raise PlanError(
                name, value, rule, f"For a ring of at least {value} elements write {bits}."
            )
        return int(inner.check(name, value))

    return Rule(check)


def choice(*options: str) -> Rule:
    """One of a few words."""

    def check(name: str, value: Any) -> str:
        if value not in options:
            raise PlanError(
                name, value, f"must be one of {', '.join(options)}", "Choose one of them."
            )
        return str(value)

    return Rule(check)


def digest() -> Rule:
    """A SHA-256, in hexadecimal behind its name."""

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or not _DIGEST.fullmatch(value):
            rule = 'must be "sha256:" and 64 hexadecimal digits'
            raise PlanError(name, value, rule, "Copy it from the model line of the run.")
        return value

    return Rule(check)


def digest_or_plan() -> Rule:
    """A SHA-256 of a model, or the plan whose released model is meant, each in hexadecimal behind
    its name.
    """

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or not (_DIGEST.fullmatch(value) or _PLAN.fullmatch(value)):
            rule = 'must be "sha256:" or "plan:" and 64 hexadecimal digits'
            fix = "Copy the model line of the run, or the hash of the plan that comes before."
            raise PlanError(name, value, rule, fix)
        return value

    return Rule(check)


def text() -> Rule:
    """A non-empty string without control characters."""

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or not value or not value.isprintable():
            # "C:\\temp" in double quotes holds a tab
            fix = SINGLE_QUOTES if isinstance(value, str) and value else "Write it in quotes."
            raise PlanError(name, value, "must be a non-empty printable string", fix)
        return value

    return Rule(check)


def word_or(word: str, rule: Rule) -> Rule:
    """The same rule, or one word."""
    return Rule(lambda name, value: word if value == word else rule.check(name, value))


def name_or_place() -> Rule:
    """A string, or a whole number that stands for one."""
    return Rule(lambda name, value: text().check(name, str(value) if type(value) is int else value))


def flag() -> Rule:
    """True or false."""

    def check(name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise PlanError(
                name, value, "must be true or false", "Write true or false without quotes."
            )
        return value

    return Rule(check)


def optional(rule: Rule) -> Rule:
    """The same rule, or nothing at all."""
    return Rule(lambda name, value: None if value is None else rule.check(name, value))


def names(rule: Rule) -> Rule:
    """A list whose members all satisfy one rule."""

    def check(name: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise PlanError(name, value, "must be a list", "Write it in square brackets.")
        return tuple(rule.check(f"{name}[{index}]", member) for index, member in enumerate(value))

    return Rule(check)


def table(kind: str) -> Rule:
    """A table from column names to `[low, high]` bounds or to lists of categories."""
    real, word = number(), text()

    def check(name: str, value: Any) -> Mapping[str, tuple[Any, ...]]:
        if not isinstance(value, Mapping):
            raise PlanError(
                name, value, "must be a table from column names to lists", "Write {column = [...]}."
            )
        out: dict[str, tuple[Any, ...]] = {}
        for column, entries in sorted(value.items()):
            path = f"{name}.{column}"
            if not isinstance(entries, list | tuple) or not entries:
                raise PlanError(
                    path, entries, "must be a non-empty list", "Write it in square brackets."
                )
            if kind == "bounds":
                pair = tuple(real.check(path, entry) for entry in entries)
                if len(pair) != 2 or not pair[0] < pair[1]:
                    raise PlanError(
                        path,
                        entries,
                        "must be [low, high] with low < high",
                        "Give two increasing numbers.",
                    )
                out[str(column)] = pair
            else:
                if not all(isinstance(entry, str | int | float) for entry in entries):
                    raise PlanError(
                        path, entries, "must be a list of strings or numbers", 'Write ["a", "b"].'
                    )
                words = tuple(word.check(path, str(entry)) for entry in entries)
                if len(set(words)) != len(words):
                    raise PlanError(
                        path, entries, "must not repeat a category", "Remove the duplicates."
                    )
                out[str(column)] = words
        return MappingProxyType(out)

    return Rule(check)


def named_choices(*options: str) -> Rule:
    """A table from column names to one of a few words."""
    one = choice(*options)

    def check(name: str, value: Any) -> Mapping[str, str]:
        if not isinstance(value, Mapping) or not value:
            rule = "must be a table from column names to words"
            raise PlanError(name, value, rule, f'Write {{column = "{options[0]}"}}.')
        return MappingProxyType(
            {
                str(column): one.check(f"{name}.{column}", each)
                for column, each in sorted(value.items())
            }
        )

    return Rule(check)


def weights() -> Rule:
    """Positive numbers, in a list or by name."""
    positive = number(low=1e-6, high=1e6)

    def check(name: str, value: Any) -> tuple[float, ...] | Mapping[str, float]:
        if isinstance(value, Mapping) and value:
            return MappingProxyType(
                {
                    str(key): float(positive.check(f"{name}.{key}", each))
                    for key, each in sorted(value.items())
                }
            )
        if isinstance(value, list | tuple) and value:
            return tuple(
                float(positive.check(f"{name}[{index}]", each)) for index, each in enumerate(value)
            )
        raise PlanError(
            name,
            value,
            "must be a list of positive numbers, or a table of them by name",
            "Write [1, 5] or {no = 1, yes = 5}.",
        )

    return Rule(check)
