"""Stored values against those of this tree.

They are equal to the last bit where floats are computed alike, and near each other elsewhere:

| value | same fingerprint | another one |
|---|---|---|
| bytes of the protocol and of the wire, plan hashes, names, words, counts | equal | equal |
| accounts, designs, noise, entries of ledgers | equal | relative 1e-9 |
| what other algorithms would need, as far as their search goes | equal | relative 1e-7 |
| numbers in printed texts | equal | relative 1e-3, one unit of the last digit |
| digests of models, hashes that hold a calibrated noise | equal | not compared |
| norm and samples of a model | equal | 2 % of what the last round moved |
| accuracies and the like | equal | 0.02, or 2 % |
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from typing import Any

from goldens.changes import INTENDED, LAST_BITS, NEW_LINES, RENAMED, REWORDED

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
_HOLD_NOISE = (
    "*.sha256",
    "*.checkpoint.*",
    "*.round_id",
    "*.resolved_under_old_names",
    "*.promised.plan_hash",
    "*.entries.*.plan_hash",
    "*.account of the run.plan_hash",
)
_SEARCHED = ("*.plan.algorithms.*",)
_MODELS = ("*.run.model.*", "*.run.released.*")
_MEASURED = ("*.run.rounds.*", "*.run.summary.*", "*.run.moved")
_ACCOUNT, _SEARCH, _PRINTED, _MODEL = 1e-9, 1e-7, 1e-3, 2e-2


def differences(
    name: str, stored: Mapping[str, Any], made: Mapping[str, Any], *, same_machine: bool
) -> list[str]:
    """Every difference of one entry that `changes` does not allow, in words.

    Args:
        same_machine: the fingerprint is that of the stored values.
    """
    if "run" not in made and "run needs" in stored:  # its data set is not here
        stored = {key: value for key, value in stored.items() if key != "run"}
    if "run" not in stored and "run needs" in stored:  # its data set was not there
        made = {key: value for key, value in made.items() if key != "run"}
    exact = same_machine and not any(fnmatch(name, pattern) for pattern in LAST_BITS)
    moved = float(stored.get("run", {}).get("moved", 0.0))
    return (
        []
        if stored == made and not INTENDED
        else list(_walk(name, renamed(stored), made, exact=exact, moved=moved))
    )


def renamed(value: Any) -> Any:
    """A stored value under today's names."""
    if isinstance(value, Mapping):
        return {RENAMED.get(key, key): renamed(inner) for key, inner in value.items()}
    return [renamed(inner) for inner in value] if isinstance(value, list) else value


def _matches(path: str, patterns: Any) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


def _walk(
    path: str, stored: Any, made: Any, *, exact: bool, moved: float, length: int = 1
) -> Iterator[str]:
    if _matches(path, INTENDED) or (not exact and _matches(path, _HOLD_NOISE)):
        return
    if isinstance(stored, Mapping) and isinstance(made, Mapping):
        length = int(stored.get("length", length))
        for key in [*stored, *(key for key in made if key not in stored)]:
            inner = f"{path}.{key}"
            if key not in stored or key not in made:
                if not _matches(inner, INTENDED):
                    yield f"{inner}: {'is new' if key not in stored else 'is gone'}"
                continue
            yield from _walk(inner, stored[key], made[key], exact=exact, moved=moved, length=length)
    elif (
        isinstance(stored, list)
        and isinstance(made, list)
        and len(_kept(stored)) == len(_kept(made))
    ):
        for index, (old, new) in enumerate(zip(_kept(stored), _kept(made), strict=True)):
            yield from _walk(f"{path}.{index}", old, new, exact=exact, moved=moved, length=length)
    elif not _equal(path, stored, made, exact=exact, moved=moved, length=length):
        yield f"{path}: was {stored!r}, is {made!r}"


def _kept(items: list[Any]) -> list[Any]:
    """Without the lines that a text has more."""
    return [item for item in items if not (isinstance(item, str) and item.startswith(NEW_LINES))]


def _equal(path: str, stored: Any, made: Any, *, exact: bool, moved: float, length: int) -> bool:
    if isinstance(stored, str) and isinstance(made, str):
        return stored == made or _equal_texts(path, stored, made, exact=exact)
    if exact or not _is_number(stored) or not _is_number(made):
        return type(stored) is type(made) and stored == made
    if _matches(path, _MODELS):
        scale = (
            moved / math.sqrt(length) if ".samples." in path or path.endswith(".mean") else moved
        )
        return abs(stored - made) <= _MODEL * scale + 1e-12
    if _matches(path, _MEASURED):
        return math.isclose(stored, made, rel_tol=_MODEL, abs_tol=_MODEL)
    nearness = _SEARCH if _matches(path, _SEARCHED) else _ACCOUNT
    return math.isclose(stored, made, rel_tol=nearness, abs_tol=1e-15)


def _equal_texts(path: str, stored: str, made: str, *, exact: bool) -> bool:
    """Words are equal unless they were reworded, numbers are as near as the machine allows."""
    if exact and not _matches(path, REWORDED):
        return False
    if not _matches(path, REWORDED) and _NUMBER.sub("#", stored) != _NUMBER.sub("#", made):
        return False
    old, new = (
        [float(number.replace(",", "")) for number in _NUMBER.findall(text)]
        for text in (stored, made)
    )
    nearness = 0.0 if exact else _PRINTED
    return len(old) == len(new) and all(
        math.isclose(*pair, rel_tol=nearness) for pair in zip(old, new, strict=True)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
