"""What a field of an event may hold: a closed list, and nothing of it can carry a record.

There is no kind for a list of numbers, for bytes, for a path or for text of our own making: a
vector, a key, a label or the name of a file fits into no event. Text that others wrote (the name of
a silo, a reason that somebody signed, a library's remark) is cut and escaped, so that it stays one
value on one line whatever it holds.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, final

__all__ = [
    "Build",
    "Count",
    "Digest",
    "Epsilon",
    "Flag",
    "Kind",
    "Level",
    "Name",
    "Names",
    "Seconds",
    "Spoken",
    "Word",
    "plain_text",
]

_NAME_CHARACTERS = 64
_SPOKEN_CHARACTERS = 400
_MOST_NAMES = 1000
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of Unicode that move the cursor, hide or reorder what stands beside them."""


@final
@dataclass(frozen=True)
class Kind:
    """What a field may hold.

    Args:
        name: in the catalogue.
        says: what is admitted, for whoever reads it.
        admit: the value as it is written; raises TypeError for one of another type, ValueError for
            one that the kind does not have.
    """

    name: str
    says: str
    admit: Callable[[Any], Any]


def plain_text(text: str, most: int) -> str:
    """Text on one line that no terminal acts on, at most so many characters of it."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return "".join(
        f"\\u{ord(character):04x}" if unicodedata.category(character) in _UNSEEN else character
        for character in cut
    )


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("must be a whole number")
    if not 0 <= value < 1 << 63:
        raise ValueError("must not be negative, and below 2⁶³")
    return value


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("must be a number")
    if math.isnan(value) or value < 0.0:
        raise ValueError("must not be negative")
    return float(value)


def _text(most: int) -> Callable[[Any], str]:
    def admit(value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError("must be text")
        return plain_text(value, most)

    return admit


def _matching(pattern: str) -> Callable[[Any], str]:
    whole = re.compile(pattern)

    def admit(value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError("must be text")
        if not whole.fullmatch(value):
            raise ValueError(f"must match {pattern}")
        return value

    return admit


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("must be true or false")
    return value


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, tuple | list):
        raise TypeError("must be names")
    return tuple(map(_text(_NAME_CHARACTERS), value[:_MOST_NAMES]))


def _seconds(value: Any) -> float:
    if math.isinf(seconds := _real(value)):
        raise ValueError("must be finite")
    return round(seconds, 3)


def _epsilon(value: Any) -> float:
    return math.inf if value == "inf" else _real(value)  # as JSON has it


Count = Annotated[int, Kind("count", "a whole number, not negative", _whole)]
Seconds = Annotated[float, Kind("seconds", "rounded to a millisecond", _seconds)]
Epsilon = Annotated[float, Kind("ε", "not negative, or infinite", _epsilon)]
Flag = Annotated[bool, Kind("flag", "true or false", _flag)]
Digest = Annotated[str, Kind("digest", "8 to 64 hexadecimal digits", _matching("[0-9a-f]{8,64}"))]
Build = Annotated[
    str, Kind("build", "a version, and a digest of its files", _matching(r"[0-9A-Za-z.+_-]{1,80}"))
]
Word = Annotated[
    str, Kind("word", "one of our own words, in letters", _matching("[A-Za-z][A-Za-z0-9_.-]{0,63}"))
]
Level = Annotated[
    str, Kind("level", "a logging level", _matching("debug|info|warning|error|critical"))
]
Name = Annotated[
    str, Kind("name", f"of a party, escaped, at most {_NAME_CHARACTERS}", _text(_NAME_CHARACTERS))
]
Names = Annotated[tuple[str, ...], Kind("names", "of parties, each escaped", _names)]
Spoken = Annotated[
    str,
    Kind(
        "spoken",
        f"what another party or program said, escaped, at most {_SPOKEN_CHARACTERS} characters",
        _text(_SPOKEN_CHARACTERS),
    ),
]
