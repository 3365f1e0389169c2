"""Whether the command line's own parser takes a line, without anything being done."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from sumus.cli import _root


def parsed(words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The command that a line names, "federation start", and its options; raises what the parser
    raises.

    Args:
        words: after `sumus`.
    """
    command, context, rest = _root(), None, list(words)
    names: list[str] = []
    while True:
        context = command.make_context(command.name or "sumus", rest, parent=context)
        if not hasattr(command, "resolve_command"):
            return " ".join(names), dict(context.params)
        left = [*getattr(context, "_protected_args", []), *context.args]
        name, command, rest = command.resolve_command(context, left)
        assert command is not None, words
        names.append(name)


def parsed_line(line: str) -> tuple[str, dict[str, Any]]:
    """The same, for a line as people type it."""
    first, *words = shlex.split(line)
    assert first == "sumus", line
    return parsed(words)
