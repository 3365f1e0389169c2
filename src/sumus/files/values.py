"""Frozen dataclasses to and from JSON objects, strictly: what is read back has the declared types
or is refused.

Files come from other machines and other people, so a line is checked field by field before
anything computes with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from sumus.errors import StorageError

__all__ = ["from_json", "plain_json"]

Value = TypeVar("Value")

_NOT_IN_JSON = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def plain_json(value: Any) -> Any:
    """The value with tuples as lists and the numbers that JSON lacks as words ("inf", "-inf",
    "nan").
    """
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def from_json(cls: type[Value], entries: Any, *, where: str) -> Value:
    """A dataclass from a JSON object: no unknown keys, no missing ones without a default, every
    value of its declared type.

    Args:
        where: file and line, for the message.
    """
    if not isinstance(entries, Mapping):
        raise StorageError(
            f"{where} must hold a JSON object, got {type(entries).__name__}. Restore the file from "
            "a backup."
        )
    declared: dict[str, Field[Any]] = {item.name: item for item in fields(cls) if item.init}  # type: ignore[arg-type]
    types, values = get_type_hints(cls), dict[str, Any]()
    for key, value in entries.items():
        if key not in declared:
            raise StorageError(
                f"{where} holds {key!r}, which this version does not know. Use the version that "
                "wrote the file."
            )
        try:
            values[key] = _decoder(types[key], where)(value)
        except (TypeError, ValueError, AttributeError):
            raise StorageError(
                f"{where}: {key} must be {declared[key].type}, got {value!r:.40}. Restore the file "
                "from a backup."
            ) from None
    for name, item in declared.items():
        if name not in values and item.default is MISSING and item.default_factory is MISSING:
            raise StorageError(f"{where} lacks {name}. Restore the file from a backup.")
    return cls(**values)


def _decoder(declared: Any, where: str) -> Callable[[Any], Any]:
    """The check for a declared type."""
    kind, inner = get_origin(declared), get_args(declared)
    if kind in (Union, UnionType):
        (only,) = [option for option in inner if option is not NoneType]
        decode = _decoder(only, where)
        return lambda value: None if value is None else decode(value)
    if kind is tuple:
        decode = _decoder(inner[0], where)
        return lambda value: tuple(map(decode, _instance(value, list)))
    if kind in (dict, Mapping):
        decode = _decoder(inner[1], where)
        return lambda value: {
            str(key): decode(item) for key, item in _instance(value, dict).items()
        }
    if isinstance(declared, type) and is_dataclass(declared):
        return lambda value: from_json(declared, value, where=where)
    return _SCALARS[declared]


def _instance(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError
    return value


def _number(value: Any) -> float:
    if isinstance(value, str):
        if value not in _NOT_IN_JSON:
            raise ValueError
        return _NOT_IN_JSON[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)


_SCALARS: dict[Any, Callable[[Any], Any]] = {
    float: _number,
    int: lambda value: _instance(value, int),
    bool: lambda value: _instance(value, bool),
    str: lambda value: _instance(value, str),
    Any: lambda value: value,
}
