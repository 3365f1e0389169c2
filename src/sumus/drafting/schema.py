"""What is publicly known about columns: bounds of numbers and lists of categories.

A schema file is TOML or JSON, a line a column:

    age = [0, 110]                              two numbers: bounds
    ward = ["cardiology", "general"]            texts: categories
    smoker = {categories = ["no", "yes"]}       the same with its name, likewise {bounds = [0, 10]}

A plan, or the `bounds.toml` of a description, is one as well: its `[data.bounds]` and
`[data.categories]` are taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from sumus.errors import PlanError
from sumus.files import closest, parse_toml, read_toml
from sumus.plan import DataPlan

__all__ = ["Known", "check_commas", "typed_bounds", "typed_names", "typed_numbers"]

_SHAPE = "Write two numbers [low, high], or a list of texts."


@final
@dataclass(frozen=True)
class Known:
    """Public facts about columns, by name."""

    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Known:
        """Read a schema file; what is none is refused by the name of its entry."""
        text = read_toml(path, "--schema")
        return cls.of(
            _parsed_json(text) if path.suffix == ".json" else parse_toml(text, "--schema")
        )

    @classmethod
    def of(cls, entries: Mapping[str, Any]) -> Known:
        """From a table of columns, or from the tables of a plan."""
        tables = _tables_of_plan(entries)
        bounds: dict[str, Any] = dict(tables.get("bounds", {}))
        categories: dict[str, Any] = dict(tables.get("categories", {}))
        if not tables:
            for name, entry in entries.items():
                kind, value = _entry(name, entry)
                (bounds if kind == "bounds" else categories)[name] = value
        both = sorted({*bounds} & {*categories})
        if both:
            rule = "cannot have both bounds and categories"
            raise PlanError(f"schema.{both[0]}", both[0], rule, "Keep one of them.")
        # the rules of the plan's own tables check every value
        checked = DataPlan(path="table", bounds=bounds or None, categories=categories or None)
        return cls(dict(checked.bounds or {}), dict(checked.categories or {}))

    def __contains__(self, name: object) -> bool:
        return name in self.bounds or name in self.categories

    def joined(self, other: Known) -> Known:
        """Both; of a column that is in both what `other` says."""
        return Known(
            {k: v for k, v in self.bounds.items() if k not in other.categories} | {**other.bounds},
            {k: v for k, v in self.categories.items() if k not in other.bounds}
            | {**other.categories},
        )

    def check_columns(self, columns: Iterable[str]) -> None:
        """Refuse what names no column: a misspelt line would silently do nothing."""
        known = list(columns)
        for what, names in (("bounds", self.bounds), ("categories", self.categories)):
            for name in names:
                if name not in known:
                    rule = "must name a column of the table"
                    raise PlanError(f"{what} of {name}", name, rule, closest(name, known[:40]))


def typed_bounds(text: str, name: str) -> tuple[float, float]:
    """Bounds as somebody types them: 0 110, 0,110 or 0 … 110."""
    words = text.replace("…", " ").replace("..", " ").replace(",", " ").strip("[] ").split()
    rule = "must be two numbers, the smaller one first"
    try:
        low, high = (float(word) for word in words)
        checked = DataPlan(path="table", bounds={name: (low, high)})
    except (ValueError, PlanError):
        raise PlanError(f"bounds of {name}", text, rule, "Write them as 0,110.") from None
    return (checked.bounds or {})[name]


def typed_numbers(text: str, what: str) -> tuple[float, ...]:
    """Numbers as somebody types them, with commas between, at least one."""
    try:
        numbers = tuple(float(word) for word in text.split(",") if word.strip())
    except ValueError:
        numbers = ()
    if not numbers:
        raise PlanError(what, text, "must be numbers with commas between", "Write 30,90,365.")
    return numbers


def typed_names(text: str, name: str) -> tuple[str, ...]:
    """Categories as somebody types them, with commas between."""
    names = tuple(word.strip() for word in text.split(",") if word.strip())
    try:
        checked = DataPlan(path="table", categories={name: names})
    except PlanError as error:
        fix = f"{error.fix} Values that hold commas go into a --schema file."
        raise PlanError(f"categories of {name}", text, error.rule, fix) from None
    return (checked.categories or {})[name]


def check_commas(names: Iterable[str], values: Iterable[str], name: str) -> None:
    """Refuse a typed list that took a value apart because it holds a comma.

    Args:
        names: as `typed_names` read them.
        values: of the column.
        name: of the column.
    """
    typed = set(names)
    for value in values:
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if len(parts) > 1 and typed.issuperset(parts):
            rule = "cannot list values that hold commas, as this column has"
            fix = f"List them in a --schema file, or give --list {name} if all may be public."
            raise PlanError(f"categories of {name}", ",".join(names), rule, fix)


def _tables_of_plan(entries: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """`bounds` and `categories` of a plan, or of a file that holds only these; nothing of others."""
    data = entries.get("data")
    for holder in (data, entries):
        if isinstance(holder, Mapping):
            found = {
                key: holder[key]
                for key in ("bounds", "categories")
                if isinstance(holder.get(key), Mapping)
            }
            if found:
                return found
    return {}


def _entry(name: str, entry: object) -> tuple[str, object]:
    if isinstance(entry, Mapping) and len(entry) == 1 and {*entry} <= {"bounds", "categories"}:
        return next(iter(entry.items()))
    if isinstance(entry, list) and entry:
        if all(isinstance(each, str) for each in entry):
            return "categories", entry
        if len(entry) == 2 and not any(isinstance(each, str) for each in entry):
            return "bounds", entry
    rule = "must be bounds or categories of a column"
    raise PlanError(f"schema.{name}", entry, rule, _SHAPE)


def _parsed_json(text: str) -> Mapping[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError("--schema", text.strip()[:40], "must be valid JSON", f"{error}.") from None
    if not isinstance(parsed, Mapping):
        raise PlanError("--schema", parsed, "must be an object of columns", _SHAPE)
    return parsed
