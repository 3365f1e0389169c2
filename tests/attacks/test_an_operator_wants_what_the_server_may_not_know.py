"""Whoever reads the operator's or the server's page wants to know something of one silo that its
records could move: a score, a count, a norm, an update. The page is told by processes that might
say too much; only what has a place in the state gets through.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

from sumus.books import RoundEntry
from sumus.watching import FederationWatcher, LivePage, RoundTold
from sumus.watching.federation import federation_board
from support.live import TOKEN, asked
from support.synthetic_runs import made_account, made_plan

NAMES = ("north", "south", "east")
CANARY = 0.7313373133
WORD = "what nobody may know"
ALLOWED = {
    "round",
    "epsilon_spent",
    "metrics",
    "metrics_plus_minus",
    "metrics_are",
    "seconds",
    "bytes_up",
    "bytes_down",
    "notes",
}
"""Of a round's line: sums over silos, and what the operator should know."""


def line() -> dict[str, Any]:
    """A round in which every field that is not for the operator holds a canary."""
    entry = RoundEntry(
        round=1,
        round_id=WORD,
        epsilon_spent=0.25,
        delta=1e-5,
        survivors=NAMES,
        metrics={"accuracy": 0.5},
        metrics_are="secure",
        seconds={"local": 1.0},
    )
    told = {item.name: getattr(entry, item.name) for item in fields(entry)}
    secret = {name: CANARY for name in told if name not in ALLOWED} | {
        "silo_scores": [CANARY] * 3,
        "round_id": WORD,
        "a key of a later version": {"north": CANARY},
    }
    return told | secret


def pages(news: dict[str, Any]) -> str:
    """All that a reader can get after this news: the state, the metrics and the page."""
    board = federation_board("operator", "here")
    plan = made_plan()
    watcher = FederationWatcher(board)
    watcher.agreed(plan, made_account(plan), names=NAMES, needed=2)
    watcher.connected(dict.fromkeys(NAMES, 1.0))
    watcher.told(news)
    with LivePage(board, token=TOKEN) as page:
        return "".join(
            asked(page.port, f"/{TOKEN}/{route}")[2].decode() for route in ("", "state", "metrics")
        )


def news(**changes: Any) -> dict[str, Any]:
    return {
        "phase": "training",
        "stage": "local",
        "rounds": [line()],
        "refusals": {"north": "its policy forbids the plan"},
        "present": list(NAMES),
        "waiting": [{"silo": "south", "seconds": 9.0, "left": 1.0, "away": False}],
    } | changes


def test_by_a_job_that_says_too_much() -> None:
    too_much = {
        "vectors": {"north": [CANARY]},
        "silo_scores": [CANARY],
        "waiting": [
            {"silo": "south", "seconds": 9.0, "left": CANARY, "away": False, "norm": CANARY}
        ],
        "refusals": {"a stranger": WORD, "north": "its policy forbids the plan"},
        "present": [*NAMES, WORD],
    }
    text = pages(news(**too_much))
    assert "its policy forbids the plan" in text
    assert "waiting for south" in text
    for secret in (repr(CANARY), "0.731", WORD):
        assert secret not in text
    assert repr(CANARY) in json.dumps(news(**too_much))  # the control: it was told


def test_what_is_public_does_get_through() -> None:
    """The control of the search: a canary where the operator may see it is found."""
    public = line() | {"metrics": {"accuracy": CANARY}, "notes": [WORD]}
    text = pages(news(rounds=[public]))
    assert repr(CANARY) in text
    assert WORD in text


def test_a_simulations_journal_is_cut_down_to_the_same() -> None:
    entry = RoundEntry(
        round=1,
        round_id=WORD,
        epsilon_spent=0.25,
        delta=1e-5,
        silo_scores=(CANARY,) * 3,
        clipped_fraction=CANARY,
        nonfinite=731,
        saturated=731,
        headroom_bits=CANARY,
        update_norm=CANARY,
    )
    told = RoundTold.of_entry(entry)
    assert repr(CANARY) not in repr(told)
    assert "731" not in repr(told)
    assert RoundTold.of_entry(replace(entry, metrics={"accuracy": CANARY})).metrics == {
        "accuracy": CANARY
    }
