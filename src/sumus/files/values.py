"""Frozen dataclasses to and from JSON objects, strictly: what is read back has the declared types
or is refused.

Files come from other machines and other people, so a line is checked field by field, at every
depth, before anything computes with it. No library does this for us: msgspec lets unknown keys of
dataclasses pass and reads no "inf", cattrs needs a newer attrs than dp-accounting allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

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
        return {str(key): plain_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(entry) for entry in value]
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
    kind: Any = cls  # a type variable has no bound that says dataclass
    declared: dict[str, Field[Any]] = {item.name: item for item in fields(kind) if item.init}
    decoders = _decoders(kind)
    values: dict[str, Any] = {}
    for key, value in entries.items():
        if key not in declared:
            raise StorageError(
                f"{where} holds {key!r}, which this version does not know. Use the version that "
                "wrote the file."
            )
        try:
            values[key] = decoders[key](value)
        except StorageError as error:  # of a value within
            raise StorageError(f"{where}, {key}: {error}") from None
        except (TypeError, ValueError):
            raise StorageError(
                f"{where}: {key} must be {declared[key].type}, got {value!r:.40}. Restore the file "
                "from a backup."
            ) from None
    for name, item in declared.items():
        if name not in values and item.default is MISSING and item.default_factory is MISSING:
            raise StorageError(f"{where} lacks {name}. Restore the file from a backup.")
    return cls(**values)


Decoder = Callable[[Any], Any]


@cache
def _decoders(cls: type) -> dict[str, Decoder]:
    """By field, what checks a value against the field's type."""
    return {name: _decoder(kind) for name, kind in get_type_hints(cls).items()}


def _decoder(kind: Any) -> Decoder:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType and len(arguments) == 2 and NoneType in arguments:
        inner = _decoder(arguments[1] if arguments[0] is NoneType else arguments[0])
        return lambda value: None if value is None else inner(value)
    if origin is tuple and arguments[1:] == (...,):
        inner = _decoder(arguments[0])
        return lambda value: tuple(map(inner, _instance(list, value)))
    if origin is tuple:
        each = tuple(map(_decoder, arguments))
        return lambda value: tuple(
            decode(entry) for decode, entry in zip(each, _instance(list, value), strict=True)
        )
    if origin in (dict, Mapping) and arguments[0] is str:
        inner = _decoder(arguments[1])
        return lambda value: {key: inner(entry) for key, entry in _instance(dict, value).items()}
    if isinstance(kind, type) and is_dataclass(kind):
        return partial(from_json, kind, where=kind.__name__)
    return _SCALARS[kind]


def _instance(kind: type, value: Any) -> Any:
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


_SCALARS: dict[Any, Decoder] = {
    float: _number,
    int: partial(_instance, int),
    bool: partial(_instance, bool),
    str: partial(_instance, str),
    Any: lambda value: value,
}
