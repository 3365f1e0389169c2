from __future__ import annotations

from pathlib import Path

from sumus.secagg import messages, server, server_setup, silo, silo_setup
from sumus.secagg.diagram import render, steps_of

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_the_documentation_shows_the_diagrams_of_this_code() -> None:
    """To update: replace the text between the two markers by the output of `python -m
    sumus.secagg.diagram`.
    """
    text = PROTOCOL.read_text()
    shown = text.split("<!-- diagrams: begin -->\n")[1].split("\n<!-- diagrams: end -->")[0]
    assert shown == render()


def test_every_message_is_sent_by_one_side_and_taken_by_the_other() -> None:
    """But for greeting, welcome, ready and refusal, which the parties exchange around the states."""
    silo_steps, server_steps = steps_of(silo_setup, silo), steps_of(server_setup, server)
    around = (messages.Greeting, messages.Welcome, messages.Ready, messages.Refusal)
    for kind in set(messages._KINDS.values()) - set(around):
        name = kind.__name__
        sent = [
            {name} & {sent for step in steps for sent in step.sends}
            for steps in (silo_steps, server_steps)
        ]
        taken = [
            {name} & {taken for step in steps for taken in step.takes}
            for steps in (server_steps, silo_steps)
        ]
        # what the server forwards whole is read by silos too
        if name in ("KeyAdvert", "Encapsulation"):
            assert taken[0], name
        else:
            assert sent == taken, name
        assert sum(map(bool, sent)) == 1, name
        assert kind.from_server == bool(sent[1]), name


def test_a_round_takes_three_exchanges() -> None:
    replies = [step for step in steps_of(silo) if step.sends]
    assert {sent for step in replies for sent in step.sends} == {
        "MaskedInput",
        "SetSignature",
        "RevealedShares",
    }


def test_every_attack_the_documentation_names_exists() -> None:
    """The table of pitfalls names tests as `file::test`; a renamed test must not leave a dangling
    promise.
    """
    tests = PROTOCOL.parents[1] / "tests"
    named = [word for word in PROTOCOL.read_text().replace("`", " ").split() if "::test_" in word]
    assert len(named) >= 20
    for word in named:
        file, _, test = word.partition("::")
        assert f"def {test}(" in (tests / file).read_text(), word


def test_the_example_runs() -> None:
    example = PROTOCOL.read_text().split("```python\n")[1].split("```")[0]
    exec(compile(example, str(PROTOCOL), "exec"), {})  # noqa: S102  our own documentation
