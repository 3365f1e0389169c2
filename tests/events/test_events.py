"""An event holds values of vetted kinds and nothing else, on one line whatever others wrote."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from sumus.events import EVENTS, Event, PlanApproved, SiloRefused, event, kinds_of, tell
from sumus.events.kinds import Count, plain_text


def test_every_field_of_the_catalogue_has_a_vetted_kind() -> None:
    for name, declared in EVENTS.items():
        assert name == declared.name
        assert declared.__doc__
        assert declared.at
        for field, (kind, _) in kinds_of(declared).items():
            assert kind.says, field


def test_every_event_that_is_declared_is_in_the_catalogue() -> None:
    declared = {each for each in Event.__subclasses__() if each.__module__.startswith("sumus.")}
    assert declared == set(EVENTS.values())


@pytest.mark.parametrize("kind", [str, list[float], "np.ndarray", bytes, "Count | str", Any])
def test_a_field_without_a_vetted_kind_cannot_be_declared(kind: Any) -> None:
    with pytest.raises((TypeError, NameError)):

        @event("some.thing", at="silo")
        class Thing(Event):
            """Would carry whatever it is given."""

            __annotations__ = {"vector": kind}


def test_a_field_cannot_pass_for_what_stands_in_every_line() -> None:
    with pytest.raises(TypeError, match="'time' stands in every line"):

        @event("some.thing", at="silo")
        class Thing(Event):
            """Would forge when it happened."""

            time: Count


@pytest.mark.parametrize(
    "secret", [np.ones(3), [1.5, 2.5], b"key", "42 years", True, 2.5, -3, 1 << 80]
)
def test_a_value_of_another_kind_is_refused_and_not_repeated(secret: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        EVENTS["vault.retired"](destroyed=secret)  # type: ignore[call-arg]
    assert str(refused.value).startswith("vault.retired: destroyed must")
    assert "42" not in str(refused.value)
    assert "2.5" not in str(refused.value)


@given(st.text(max_size=500))
def test_whatever_a_silo_calls_itself_or_says_stays_one_value_on_one_line(text: str) -> None:
    happened = SiloRefused(silo=text, reason=text, unwritten=0)
    shown = str(happened)
    assert len(shown.splitlines()) == 1
    assert "\x1b" not in shown
    assert "\x7f" not in shown
    assert set(happened.values) == {"silo", "reason", "unwritten"}
    assert json.loads(json.dumps(happened.values))["silo"] == plain_text(text, 64)
    assert len(happened.silo) <= 6 * 64


@pytest.mark.parametrize(
    "hidden", ["\n", "\r", "\x1b", "\x7f", "\x9b", "\u202e", "\u2028", "\ud800"]
)
def test_characters_that_move_or_hide_are_escaped(hidden: str) -> None:
    assert plain_text(f"a{hidden}b", 64) == f"a\\u{ord(hidden):04x}b"


def test_library_code_configures_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    before = list(logging.getLogger().handlers)
    tell(PlanApproved(plan="0123456789abcdef"))
    assert logging.getLogger().handlers == before
    assert capfd.readouterr() == ("", "")


def test_a_user_who_configures_logging_gets_a_readable_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="sumus"):
        tell(PlanApproved(plan="0123456789abcdef"))
    assert caplog.messages == ["plan.approved plan=0123456789abcdef"]
