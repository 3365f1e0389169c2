"""Values as typed JSON: what is read back has the declared types at every depth, or is refused in one
line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from sumus.errors import StorageError
from sumus.files import from_json, plain_json


@dataclass(frozen=True)
class Analysis:
    name: str
    epsilon: float


@dataclass(frozen=True)
class Entry:
    round: int
    epsilon: float
    proved: bool = True
    survivors: tuple[str, ...] = ()
    seconds: Mapping[str, float] | None = None
    analyses: tuple[Analysis, ...] = ()


ENTRY = Entry(3, math.inf, False, ("a", "b"), {"update": 0.5}, (Analysis("joint", 1.0),))


def test_what_is_written_is_read_back() -> None:
    stored = json.loads(json.dumps(plain_json(asdict(ENTRY)), allow_nan=False))
    assert stored["epsilon"] == "inf"
    assert from_json(Entry, stored, where="x") == ENTRY
    assert from_json(Entry, {"round": 1, "epsilon": 2}, where="x") == Entry(1, 2.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"round": True}, "x: round must be int, got True."),
        ({"round": 1.0}, "x: round must be int, got 1.0."),
        ({"epsilon": "1"}, "x: epsilon must be float, got '1'."),
        ({"epsilon": False}, "x: epsilon must be float, got False."),
        ({"epsilon": None}, "x: epsilon must be float, got None."),
        ({"proved": 1}, "x: proved must be bool, got 1."),
        ({"survivors": "ab"}, "x: survivors must be tuple[str, ...], got 'ab'."),
        ({"survivors": [1]}, "x: survivors must be tuple[str, ...], got [1]."),
        ({"seconds": {"update": []}}, "x: seconds must be Mapping[str, float] | None"),
        ({"analyses": [7]}, "x, analyses: Analysis must hold a JSON object, got int."),
        ({"analyses": [{"name": "joint"}]}, "x, analyses: Analysis lacks epsilon."),
        (
            {"analyses": [{"name": "joint", "epsilon": "?"}]},
            "x, analyses: Analysis: epsilon must be float, got '?'.",
        ),
        (
            {"analyses": [{"name": "joint", "epsilon": 1.0, "secret": 1}]},
            "x, analyses: Analysis holds 'secret', which this version does not know.",
        ),
        ({"secret": 1}, "x holds 'secret', which this version does not know."),
    ],
)
def test_what_has_another_type_or_is_unknown_is_refused_in_one_line(
    change: dict[str, Any], words: str
) -> None:
    with pytest.raises(StorageError) as refused:
        from_json(Entry, plain_json(asdict(ENTRY)) | change, where="x")
    assert str(refused.value).startswith(words)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("entries", [None, [], "round", 1])
def test_what_is_no_object_is_refused(entries: object) -> None:
    with pytest.raises(StorageError, match="x must hold a JSON object"):
        from_json(Entry, entries, where="x")


def test_what_is_missing_is_named() -> None:
    with pytest.raises(StorageError, match="x lacks epsilon"):
        from_json(Entry, {"round": 1}, where="x")
