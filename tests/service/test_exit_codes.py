"""Exit codes: one table, which every error, the page and the units agree with."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from sumus import errors
from sumus.errors import PolicyError, StorageError, SumusError
from sumus.service import EXIT_CODES, beyond_restart, exit_code_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "services.md"
SOURCES = [*(ROOT / "src" / "sumus").rglob("*.py")]
NOT_OURS = {"frame_reader.py", "start.py", "silo_processes.py"}
"""A program for one pickle, the engine's own codes, and `keep_silo`'s 0."""


def every(kind: type[SumusError]) -> list[type[SumusError]]:
    return [kind, *(each for below in kind.__subclasses__() for each in every(below))]


def test_every_error_of_ours_ends_with_a_code_of_the_table() -> None:
    for kind in every(SumusError):
        assert kind.exit_code in EXIT_CODES, kind
    drawn = dict(re.findall(r"(\w+Error) .*\(exit (\d)\)", errors.__doc__ or ""))
    assert {name: str(getattr(errors, name).exit_code) for name in drawn} == drawn
    assert len(drawn) == 8


def test_the_page_has_the_table_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+?) \| (yes|no) \|$", PAGE.read_text(), re.MULTILINE)
    wanted = [
        (str(code), row.means, "yes" if row.again else "no") for code, row in EXIT_CODES.items()
    ]
    assert rows == wanted


def test_no_command_ends_with_a_code_that_the_table_lacks() -> None:
    """`typer.Exit(3)` and `sys.exit(2)` in the sources, and constants that `main` returns."""
    for path in SOURCES:
        text = path.read_text()
        if path.name in NOT_OURS or not re.search(r"\b(typer\.Exit|sys\.exit)\b", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("typer.Exit", "sys.exit"):
                for given in node.args:
                    assert not isinstance(given, ast.JoinedStr), (path, ast.unparse(node))
                    if isinstance(given, ast.Constant):
                        assert given.value in EXIT_CODES, (path, ast.unparse(node))
    returned = {
        node.value.value
        for node in ast.walk(ast.parse((ROOT / "src/sumus/cli/__init__.py").read_text()))
        if isinstance(node, ast.Return)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int)
    }
    assert {2, 130, 141} <= returned <= set(EXIT_CODES)


def test_what_nobody_but_a_person_can_mend_is_not_tried_again() -> None:
    assert beyond_restart() == (2, 3, 7)


@pytest.mark.parametrize(
    ("error", "code"),
    [(StorageError("x"), 5), (PolicyError("x"), 3), (KeyError("x"), 1), (PermissionError(), 1)],
)
def test_an_error_that_was_not_foreseen_ends_with_1(error: Exception, code: int) -> None:
    assert exit_code_of(error) == code
