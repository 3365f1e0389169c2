"""An event: a name, who may write it down, and fields of vetted kinds. All that is ever logged.

@event("plan.approved", at="silo", audited=True)
class PlanApproved(Event):
    '''The silo's people put a plan among those that it runs.'''

    plan: Digest

tell(PlanApproved(plan=plan.hash))           # to the log of this process
trail.append(PlanApproved(plan=plan.hash))   # to the audit trail, and to the log
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from sumus.events.kinds import Kind

__all__ = ["PARTIES", "RESERVED", "Event", "event", "kinds_of", "tell"]

PARTIES: Mapping[str, str] = {
    "server": "the server and its jobs",
    "silo": "a silo's vault, and what keeps it alive",
    "relay": "the engine's process of a silo",
    "operator": "whoever starts training, and a simulation on one machine",
}
"""Who writes events; a server's words are read by somebody who must not know a silo's numbers."""
RESERVED = frozenset(
    {"time", "level", "event", "party", "process", "pid", "logger", "text", "error", "where"}
    | {"line", "hash"}
)
"""What a line says beside an event's fields."""

_Event = TypeVar("_Event", bound="Event")

logging.getLogger("sumus").addHandler(logging.NullHandler())  # a library is silent by itself


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened.

    Guarantee: every value is of its field's kind; one that is not is a TypeError or ValueError that
        does not repeat it.
    """

    name: ClassVar[str]
    at: ClassVar[frozenset[str]]
    level: ClassVar[int]
    audited: ClassVar[bool]

    def __post_init__(self) -> None:
        for field, (kind, optional) in kinds_of(type(self)).items():
            value = getattr(self, field)
            if value is None and optional:
                continue
            try:
                object.__setattr__(self, field, kind.admit(value))
            except (TypeError, ValueError) as error:
                raise type(error)(f"{self.name}: {field} {error}.") from None

    @property
    def values(self) -> dict[str, Any]:
        """What the fields hold, by name; those that hold nothing are left out."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in held.items() if value is not None}

    def __str__(self) -> str:
        return " ".join(
            [self.name, *(f"{key}={_shown(value)}" for key, value in self.values.items())]
        )


def _shown(value: Any) -> str:
    """A value in a line of text: a plain word as it is, anything else as JSON."""
    if isinstance(value, str) and value and value.isascii() and not set(value) & set(' "\\=[]{},'):
        return value
    return json.dumps(value, separators=(",", ":"))


@dataclass_transform(frozen_default=True, kw_only_default=True)
def event(
    name: str, *, at: str, level: int = logging.INFO, audited: bool = False
) -> Callable[[type[_Event]], type[_Event]]:
    """Declare an event.

    Args:
        name: in dotted words, the thing first.
        at: who may write it, of `PARTIES`, separated by spaces.
        level: of the log line.
        audited: whether it belongs into the audit trail.
    """
    writers = frozenset(at.split())
    if not writers or writers - set(PARTIES):
        raise TypeError(f"{name}: at must name some of {sorted(PARTIES)}, got {at!r}.")

    def declare(cls: type[_Event]) -> type[_Event]:
        cls.name, cls.at, cls.level, cls.audited = name, writers, level, audited
        declared = dataclass(frozen=True, kw_only=True)(cls)
        taken = RESERVED & set(kinds_of(declared))
        if taken:
            raise TypeError(f"{name}: {sorted(taken)[0]!r} stands in every line already.")
        return declared

    return declare


_kinds: dict[type, Mapping[str, tuple[Kind, bool]]] = {}


def kinds_of(cls: type[Event]) -> Mapping[str, tuple[Kind, bool]]:
    """The kind of every field, and whether it may hold nothing; a field without one is refused."""
    if cls not in _kinds:
        hints = get_type_hints(cls, include_extras=True)
        _kinds[cls] = {
            field.name: _kind(hints[field.name], f"{cls.__name__}.{field.name}")
            for field in fields(cls)
        }
    return _kinds[cls]


def _kind(hint: Any, where: str) -> tuple[Kind, bool]:
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    vetted = [option for option in options if option is not NoneType]
    marks = [
        mark
        for option in vetted
        if get_origin(option) is Annotated
        for mark in get_args(option)[1:]
        if isinstance(mark, Kind)
    ]
    if len(vetted) != 1 or len(marks) != 1:
        raise TypeError(f"{where} must have a kind of sumus.events.kinds, or that or None.")
    return marks[0], len(options) > 1


def tell(happened: Event, *, trail_of: str | None = None, **place: str | int) -> None:
    """Log an event, to whatever this process has configured; nothing by default.

    Args:
        trail_of: the party in whose audit trail it stands.
        place: where it stands there.
    """
    logger = logging.getLogger("sumus.audit" if place else _logger(happened))
    more = {"happened": happened, "place": place, "trail_of": trail_of}
    logger.log(happened.level, "%s", happened, extra=more)


def _logger(happened: Event) -> str:
    return f"sumus.{happened.name.partition('.')[0]}"
