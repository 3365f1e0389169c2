"""Values of a plan as TOML text, and the names by which `--set` reaches a key."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from sumus.errors import PlanError

__all__ = ["TABLES", "parse_value", "quoted", "steps_to", "toml_value"]

# keys that hold a table, whose entries `--set` reaches by name
TABLES = ("data.bounds", "data.categories")


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


def quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{quoted(key)} = {toml_value(entry)}" for key, entry in value.items())
            + "}"
        )
    return repr(value)


def parse_value(source: str) -> Any:
    """A TOML value as typed on a command line; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {source}")["value"]
    except (ValueError, RecursionError):  # ValueError: also of a number with thousands of digits
        return source
