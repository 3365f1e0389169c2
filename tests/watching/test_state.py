"""The state of a live page: survives JSON, shows no ε where none holds, and stays small."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings, strategies as st

from sumus.errors import StorageError
from sumus.watching import LiveState
from sumus.watching.history import MOST_POINTS, Point, Rounds
from sumus.watching.state import (
    MEASURED_HOW,
    MOST_LISTED,
    PRESENCES,
    QUEUED,
    STAGES,
    WATCHED,
    Books,
    Connection,
    Costs,
    History,
    Lost,
    Measured,
    Part,
    PlanInWords,
    Presence,
    Promise,
    Queued,
    Refused,
    Result,
    short,
)
from support.live import begun, made_board, told

_numbers = st.floats(allow_nan=False, width=64)
_finite = st.floats(allow_nan=False, allow_infinity=False)
_texts = st.text(max_size=30)
_counts = st.integers(0, 2**53)


def _or_none(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


@st.composite
def _promises(draw: st.DrawFn) -> Promise:
    verdict = draw(st.sampled_from(["proved", "not proved", "void", "none"]))
    if verdict in ("void", "none"):
        return Promise(verdict=verdict, why=draw(_texts))
    words = {
        name: draw(st.text(min_size=1)) for name in ("unit", "neighbours", "trust", "analysis")
    }
    return Promise(
        verdict=verdict, spent=draw(_or_none(_finite)), epsilon=draw(_finite), delta=0.5, **words
    )


@st.composite
def _histories(draw: st.DrawFn) -> History:
    points = draw(st.integers(0, 6))

    def column(values: st.SearchStrategy[Any]) -> tuple[Any, ...]:
        return tuple(draw(st.lists(values, min_size=points, max_size=points)))

    return History(
        every=draw(st.integers(1, 1024)),
        round=column(_counts),
        epsilon=column(_or_none(_numbers)),
        value=column(_or_none(_finite)),
        plus_minus=column(_or_none(_finite)),
        bytes=column(_counts),
        seconds=column(_finite),
    )


def _some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=4).map(tuple)


_states = st.builds(
    LiveState,
    watched=st.sampled_from(WATCHED),
    began=_finite,
    at=_finite,
    stage=st.sampled_from(list(STAGES)),
    since=_finite,
    name=_texts,
    said=_texts,
    ready=st.booleans(),
    unready=_texts,
    plan=_or_none(
        st.builds(PlanInWords, title=_texts, hash=_texts, terms=_some(st.tuples(_texts, _texts)))
    ),
    round=_counts,
    rounds=_counts,
    promise=_or_none(_promises()),
    books=_or_none(
        st.builds(
            Books,
            dataset=_texts,
            spent=_numbers,
            delta=_finite,
            unit=_texts,
            runs=_counts,
            proved=st.booleans(),
            neighbours=_texts,
            trust=_texts,
            limit=_or_none(_finite),
            said_by=_texts,
        )
    ),
    measured=_or_none(
        st.builds(
            Measured,
            name=_texts,
            title=_texts,
            text=_texts,
            value=_finite,
            how=st.sampled_from(MEASURED_HOW),
            round=_counts,
            plus_minus=_or_none(_finite),
            share=st.booleans(),
            larger_is_better=st.booleans(),
        )
    ),
    history=_histories(),
    queue=_some(
        st.builds(
            Queued,
            number=_counts,
            hash=_texts,
            words=_texts,
            state=st.sampled_from(QUEUED),
            done=_counts,
            rounds=_counts,
            why=_texts,
        )
    ),
    costs=st.builds(
        Costs,
        bytes_up=_counts,
        bytes_down=_counts,
        seconds=st.dictionaries(_texts, _finite, max_size=4),
        total_bytes_up=_counts,
        total_bytes_down=_counts,
        total_seconds=_finite,
    ),
    presences=_some(
        st.builds(
            Presence,
            name=_texts,
            presence=st.sampled_from(PRESENCES),
            since=_or_none(_finite),
            why=_texts,
        )
    ),
    refusals=_some(st.builds(Refused, who=_texts, reason=_texts, when=_finite, times=_counts)),
    lost=_some(st.builds(Lost, round=_counts, reason=_texts, when=_finite)),
    connection=_or_none(
        st.builds(
            Connection,
            up=st.booleans(),
            since=_finite,
            why=_texts,
            tries=_counts,
            next_try=_or_none(_finite),
        )
    ),
    parts=_some(st.builds(Part, name=_texts, up=st.booleans(), since=_finite, restarts=_counts)),
    result=_or_none(st.builds(Result, run=_texts, report=_texts, model=_texts)),
    remarks=_some(_texts),
)


@settings(max_examples=40)
@given(_states)
def test_a_state_survives_json(state: LiveState) -> None:
    text = json.dumps(state.as_json(), allow_nan=False)
    assert LiveState.from_json(json.loads(text)) == state


def test_a_key_that_nobody_knows_is_refused() -> None:
    entries = made_board().state.as_json() | {"silo_scores": [0.9]}
    with pytest.raises(StorageError, match="silo_scores"):
        LiveState.from_json(entries)


def _leaves(kind: Any, name: str) -> list[str]:
    """Every field below a type, by its path."""
    inner = [part for part in (kind, *get_args(kind)) for part in (part, *get_args(part))]
    found = [
        leaf
        for part in inner
        if is_dataclass(part) and isinstance(part, type)
        for leaf in _fields(part, name)
    ]
    return list(dict.fromkeys(found)) or [name]


def _fields(cls: Any, name: str) -> list[str]:
    hints = get_type_hints(cls)
    return [
        leaf for item in fields(cls) for leaf in _leaves(hints[item.name], f"{name}.{item.name}")
    ]


def test_of_a_silo_there_is_its_name_its_presence_and_what_it_said_in_public() -> None:
    """Every field that is about single silos is named here: one more is a decision."""
    paths = _fields(LiveState, "state")
    assert len(paths) > 60
    about_silos = [path for path in paths if path.split(".")[1] in ("presences", "refusals")]
    assert about_silos == [
        *(f"state.presences.{name}" for name in ("name", "presence", "since", "why")),
        *(f"state.refusals.{name}" for name in ("who", "reason", "when", "times")),
    ]


@pytest.mark.parametrize("verdict", ["void", "none"])
def test_a_guarantee_that_does_not_hold_has_no_epsilon(verdict: str) -> None:
    with pytest.raises(StorageError, match="no ε"):
        Promise(verdict=verdict, epsilon=1.0)
    with pytest.raises(StorageError, match="no ε"):
        Promise(verdict=verdict, spent=0.0)


@pytest.mark.parametrize("word", ["unit", "neighbours", "trust", "analysis"])
def test_no_epsilon_is_shown_without_what_stands_beside_it(word: str) -> None:
    words = dict.fromkeys(("unit", "neighbours", "trust", "analysis"), "said") | {word: ""}
    with pytest.raises(StorageError, match=word):
        Promise(verdict="proved", epsilon=1.0, delta=1e-5, spent=0.1, **words)


@pytest.mark.parametrize(
    "wrong",
    [
        {"watched": "everything"},
        {"stage": "dancing"},
        {"remarks": ("a line",) * (MOST_LISTED + 1)},
        {"history": {"round": [1], "every": 1}},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_is_no_state_is_refused(wrong: dict[str, Any]) -> None:
    entries = made_board().state.as_json() | wrong
    with pytest.raises(StorageError):
        LiveState.from_json(json.loads(json.dumps(entries)))


def test_a_text_of_somebody_elses_is_one_short_line() -> None:
    assert short("one\ntwo\t three") == "one two three"
    assert len(short("x" * 10_000)) == 400


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=3 * MOST_POINTS))
def test_thinned_rounds_keep_first_last_and_extremes(values: list[float]) -> None:
    rounds = Rounds()
    for number, value in enumerate(values, start=1):
        rounds.add(Point(round=number, value=value))
    kept = rounds.history()
    assert len(kept.round) <= MOST_POINTS + 3
    assert (kept.round[0], kept.round[-1]) == (1, len(values))
    assert list(kept.round) == sorted(set(kept.round))
    shown = dict(zip(kept.round, kept.value, strict=True))
    assert all(values[number - 1] == value for number, value in shown.items())
    assert {min(values), max(values)} <= set(shown.values())
    even = [number for number in range(1, len(values) + 1) if (number - 1) % kept.every == 0]
    assert set(even) <= set(kept.round)


def test_a_hundred_thousand_rounds_cost_no_more_to_keep_than_a_thousand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied = 0
    add = Rounds.add

    def counting(self: Rounds, point: Point) -> None:
        nonlocal copied
        before = len(self._even)
        add(self, point)
        copied += before if len(self._even) < before else 0

    monkeypatch.setattr(Rounds, "add", counting)
    rounds, sizes = Rounds(), {}
    for number in range(1, 100_001):
        rounds.add(Point(round=number, value=math.sin(number)))
        if number in (1_000, 100_000):
            sizes[number] = len(json.dumps(rounds.history().round))
    assert copied < 100_000 * 0.1  # points that thinning has moved, in all
    assert sizes[100_000] < 2 * sizes[1_000]
    assert rounds.every == 1024


def test_a_round_that_is_passed_over_is_lost_with_its_reason() -> None:
    board = made_board()
    follow = begun(board)
    follow.round_ends(told(1))
    follow.aborted(2, "round 2 cannot be repeated")
    follow.round_ends(told(4))
    assert [(lost.round, lost.reason) for lost in board.state.lost] == [
        (2, "round 2 cannot be repeated"),
        (3, ""),
    ]
    assert board.state.lost_rounds == 2
    follow.round_ends(told(4))  # told twice
    assert board.state.lost_rounds == 2
    assert board.state.costs.total_bytes_up == 60_000


def test_many_refusals_are_counted_and_few_are_listed() -> None:
    board = made_board()
    follow = begun(board)
    for number in range(1_000):
        follow.refused("north", f"reason {number % 30}")
    assert board.state.refused == 1_000
    assert len(board.state.refusals) == 20
    assert all(entry.times >= 1 for entry in board.state.refusals)
    for _ in range(3):
        follow.refused("south", "the same")
    assert board.state.refusals[-1].times == 3


@pytest.mark.parametrize(("void", "private"), [("a public seed", True), (None, False)])
def test_a_run_without_a_guarantee_shows_no_epsilon(void: str | None, private: bool) -> None:
    board = made_board()
    follow = begun(board, void=void, private=private)
    follow.round_ends(told(1, epsilon=None))
    promise = board.state.promise
    assert promise is not None
    assert promise.verdict == ("void" if private else "none")
    assert (promise.spent, promise.epsilon, promise.delta) == (None, None, None)
    assert board.state.history.epsilon == (None,)


def test_an_epsilon_that_is_not_finite_voids_what_is_shown() -> None:
    board = made_board()
    begun(board).round_ends(told(1, epsilon=None))
    assert board.state.promise is not None
    assert board.state.promise.verdict == "void"
