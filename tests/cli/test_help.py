"""What a newcomer sees: every command explains itself, and the README knows every command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import sumus.cli
from sumus.cli import COMMANDS, Command, _root, main

README = Path(__file__).parent.parent.parent / "README.md"


def _commands() -> Iterator[tuple[str, Any]]:
    root = _root()
    for name in COMMANDS:
        command = root.get_command(typer.Context(root), name)
        assert command is not None
        yield from _below(name, command)


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command, or those of a group of commands."""
    nested = getattr(command, "commands", {})
    for inner, each in nested.items():
        yield from _below(f"{name} {inner}", each)
    if not nested:
        yield name, command


def test_every_command_and_every_parameter_says_what_it_is_for() -> None:
    for name, command in _commands():
        assert command.help, name
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name}: {parameter.name}"
            assert "completion" not in str(parameter.name), (
                f"{name} offers to install completion for itself"
            )


def test_scripts_can_read_every_command_that_ends_by_itself() -> None:
    without = {
        name
        for name, command in _commands()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == {"federation start", "federation watch", "join"}


def test_the_readme_lists_every_command() -> None:
    table = README.read_text(encoding="utf-8").partition("## Commands")[2].partition("\n## ")[0]
    assert {name for name in COMMANDS if f"`sumus {name}" not in table} == set()


@pytest.mark.parametrize("arguments", [[], ["data"], ["federation"]])
def test_without_arguments_there_is_help_and_not_an_error_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert "Usage: sumus" in shown.out + shown.err
    assert "error:" not in shown.err


@pytest.mark.deep
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("sumus ", list(COMMANDS)),
        ("sumus le", ["ledger"]),
        ("sumus ledger s", ["show"]),
        ("sumus account --js", ["--json"]),
    ],
)
def test_a_shell_completes_commands_without_loading_them(words: str, offered: list[str]) -> None:
    asked = {
        "_SUMUS_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    code = "import sys; sys.argv[0] = 'sumus'; from sumus.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == offered, done.stderr


_ELSEWHERE = """
import typer

ledger_app = typer.Typer()


@ledger_app.command("weigh")
def weigh_command() -> None:
    print("weighed")
"""


def test_a_group_may_be_spread_over_rooms_and_loads_them_when_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere.py").write_text(_ELSEWHERE)
    monkeypatch.syspath_prepend(tmp_path)
    spread = Command("a group", "sumus.cli.ledger", "elsewhere")
    monkeypatch.setattr(sumus.cli, "COMMANDS", {**COMMANDS, "ledger": spread})
    assert main(["keys", "--help"]) == 0
    assert "elsewhere" not in sys.modules
    assert main(["ledger", "weigh"]) == 0
    assert "weighed" in capsys.readouterr().out
    assert main(["ledger", "--help"]) == 0
    assert {"weigh", "show"} <= set(capsys.readouterr().out.split())


_EVERY_HELP = """
import sys
from sumus.cli import COMMANDS, main

for name in ("train", "account", *COMMANDS):
    assert main([name, "--help"]) == 0, name
    loaded = {"numpy", "cryptography", "yaml", "asyncio"}.intersection(sys.modules)
    rooms = {each for each in sys.modules if each.startswith("sumus.") and each.count(".") > 1}
    rooms = {each for each in rooms if not each.startswith(("sumus.cli.", "sumus.files."))}
    print("LOADED", name, *sorted(loaded | rooms))
"""


@pytest.mark.deep
def test_no_help_waits_for_more_than_it_shows() -> None:
    """A command's module names what it needs for its options; all else is imported when it runs."""
    done = subprocess.run(
        [sys.executable, "-c", _EVERY_HELP], capture_output=True, text=True, check=True
    )
    shown = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("LOADED")]
    assert len(shown) == len(COMMANDS) + 2
    named = {"sumus.engines.engine", "sumus.engines.key_files", "sumus.engines.registry"}
    named |= {"sumus.paper.commands", "sumus.paper.experiments"}
    assert [(name, *set(loaded) - named) for name, *loaded in shown] == [
        (name,) for name, *_ in shown
    ]


def test_a_question_is_not_followed_by_a_full_stop(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["account", "--jsn"]) == 2
    assert "?." not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["keys", "new"], "letters, digits, dot"),
        (["account"], "the folder of a run"),
        (["reproduce"], "fashion-mnist, cifar10"),
    ],
)
def test_the_explanation_of_an_argument_is_shown(
    arguments: list[str],
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*arguments, "--help"]) == 0
    assert shown in " ".join(capsys.readouterr().out.split())
