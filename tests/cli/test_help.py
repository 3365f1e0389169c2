"""What `--help` shows: a reader must not have to open the source to learn what a command wants."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from sumus.cli import COMMANDS, _root, main


def leaves(command: click.Command, words: str) -> Iterator[tuple[str, click.Command]]:
    """A command, or all commands of a group, with what one types to call it."""
    below = getattr(command, "commands", None)
    if below is None:
        yield words, command
    else:
        for name, each in below.items():
            yield from leaves(each, f"{words} {name}")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_argument_and_option_is_explained(name: str) -> None:
    root = _root()
    command = root.get_command(click.Context(root), name)
    assert command is not None
    for words, each in leaves(command, name):
        assert each.help, f"{words} says nothing"
        silent = [parameter.name for parameter in each.params if not getattr(parameter, "help", None)]
        assert not silent, f"{words} does not explain {silent}"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [(["keys", "new"], "letters, digits, dot"), (["account"], "the folder of a run"), (["reproduce"], "fashion-mnist, cifar10")],
)
def test_the_explanation_of_an_argument_is_shown(
    arguments: list[str], shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*arguments, "--help"]) == 0
    assert shown in " ".join(capsys.readouterr().out.split())
