"""How `--set section.key=value` names a key and writes a value."""

from __future__ import annotations

import tomllib
from typing import Any

from sumus.errors import PlanError

__all__ = ["TABLES", "parse_value", "steps_to"]

# keys that hold a table, whose entries `--set` reaches by name
TABLES = ("data.bounds", "data.categories", "data.texts")


def steps_to(dotted: str, value: object) -> list[str]:
    """The nested names of an override; names of silos and of columns may have dots in them."""
    head, _, rest = dotted.partition(".")
    if head == "silo" and "." in rest:
        return ["silo", *rest.rsplit(".", 1)]
    table = next((name for name in TABLES if dotted.startswith(f"{name}.")), None)
    if table is not None:
        return [*table.split("."), dotted.removeprefix(f"{table}.")]
    if head == "silo":
        raise PlanError(
            dotted,
            value,
            "must name a key as silo.NAME.key",
            "For example --set silo.Oslo.local_steps=3.",
        )
    if not rest or "." in rest:
        raise PlanError(
            dotted or "--set",
            value,
            "must name a key as section.key",
            "For example --set privacy.epsilon=3.",
        )
    return [head, rest]


def parse_value(source: str) -> Any:
    """A TOML value as typed on a command line; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {source}")["value"]
    except (ValueError, RecursionError):  # ValueError: also of a number with thousands of digits
        return source
