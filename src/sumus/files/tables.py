"""A TOML table as a frozen value whose every key carries its rule; unknown keys are refused with
the closest known one.

class Policy(RuledTable):
    max_epsilon: float | None = key(None, optional(number(above=0.0)))
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self

from sumus.errors import PlanError
from sumus.files.rules import SINGLE_QUOTES, Rule

__all__ = ["RuledTable", "closest", "key", "parse_toml", "read_toml", "toml_value"]


def key(default: Any, rule: Rule, *, only: tuple[str, ...] | None = None) -> Any:
    """A field with a default and the rule that its value must satisfy.

    Args:
        default: its value where none is given.
        rule: what every value is checked against.
        only: another key, as table.key, and the values of it under which this key means something;
            without values: wherever it is set.
    """
    return field(default=default, metadata={"rule": rule, "only": only})


@dataclass(frozen=True, kw_only=True)
class RuledTable:
    """One table; checks every value against its rule when it is made."""

    document: ClassVar[str] = "plan"  # what the table is part of, for messages

    def __post_init__(self) -> None:
        for item in fields(self):
            rule: Rule = item.metadata["rule"]
            checked = rule.check(f"{self.title()}.{item.name}", getattr(self, item.name))
            object.__setattr__(self, item.name, checked)

    @classmethod
    def title(cls) -> str:
        return cls.__name__.removesuffix("Plan").removesuffix("Section").lower()

    @classmethod
    def from_table(cls, entries: object, *, prefix: str | None = None) -> Self:
        """Build the value from a TOML table, refusing keys it does not know."""
        title = prefix or cls.title()
        if not isinstance(entries, Mapping):
            raise PlanError(
                title, entries, "must be a table of keys", f"Write [{title}] on a line of its own."
            )
        known = [item.name for item in fields(cls)]
        for name in entries:
            if name not in known:
                raise PlanError(
                    f"{title}.{name}",
                    entries[name],
                    f"is not a key of the {cls.document}",
                    closest(str(name), known),
                )
        try:
            return cls(**entries)
        except PlanError as error:  # a table does not know which of several it is
            raise PlanError(
                error.field.replace(cls.title(), title, 1), error.value, error.rule, error.fix
            ) from None

    @classmethod
    def has(cls, name: str) -> bool:
        """Whether the table has such a key."""
        return any(item.name == name for item in fields(cls))

    @classmethod
    def may_be_unset(cls, name: str) -> bool:
        """Whether the table has such a key and can do without a value for it."""
        return any(item.name == name and item.default is None for item in fields(cls))

    @classmethod
    def default_of(cls, name: str) -> object:
        """The value of a key that was not given."""
        return next(item.default for item in fields(cls) if item.name == name)

    def without_effect(self, values: Mapping[str, object], *, title: str) -> list[str]:
        """The keys that were set although another key takes their meaning away, in words.

        Args:
            values: of every key that decides over others, as table.key.
            title: of this table.
        """
        lines = []
        for item in fields(self):
            other, *meaningful = item.metadata["only"] or ("",)
            given = getattr(self, item.name)
            if (
                not other
                or given == item.default
                or (values[other] in meaningful if meaningful else values[other] is not None)
            ):
                continue
            where = (
                f"{other} = " + " or ".join(map(json.dumps, meaningful))
                if meaningful
                else f"plans with {other}"
            )
            lines.append(f"{title}.{item.name} = {_plain(given)} has no effect: it is for {where}")
        return lines

    def as_table(self) -> dict[str, Any]:
        """Every key that has a value, in declaration order."""
        return {
            item.name: _plain(value)
            for item in fields(self)
            if (value := getattr(self, item.name)) is not None
        }


def read_toml(path: str | Path, document: str) -> str:
    """The text of a TOML file; `document` says what it should hold."""
    try:
        # editors on Windows put a byte order mark in front
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise PlanError(
            document, str(path), "must be a readable TOML file", f"Check the path: {reason}."
        ) from None


def parse_toml(source: str, document: str) -> dict[str, Any]:
    """The tables of TOML text."""
    try:
        return tomllib.loads(source.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
        place = re.search(r"at line (\d+)", str(error))
        line = source.splitlines()[int(place[1]) - 1] if place else ""
        fix = f"{error}. {SINGLE_QUOTES}" if "\\" in line else f"{error}."
        raise PlanError(document, source.strip()[:40], "must be valid TOML", fix) from None


def toml_value(value: Any) -> str:
    """A value as TOML on one line (tomli-w would give every entry of a list a line of its own)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, dict):
        entries = (f"{toml_value(name)} = {toml_value(entry)}" for name, entry in value.items())
        return "{" + ", ".join(entries) + "}"
    return repr(value)


def closest(name: str, known: Sequence[str]) -> str:
    """The fix for a misspelt name."""
    match = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {match[0]}?" if match else f"Known: {', '.join(known)}."


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in sorted(value.items())}
    return value
