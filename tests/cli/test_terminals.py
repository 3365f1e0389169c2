"""Terminals that are narrow, plain or without Greek letters, pipes and scripts: each shows
something sensible.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text

from books.test_ledger import made_entry
from sumus.books import Ledger
from sumus.cli import main
from sumus.cli.terminal import Hanging, _Spelling, speak_plainly, spelled

PLAN = """
[privacy]
epsilon = 1.0
delta = 1e-4
[federation]
rounds = 2
[data]
name = "digits"
"""
NAMES = [
    "patients-of-the-northern-hospitals-20261117T090334Z-d10fafd0",
    "patients-20261117T090334Z-0a1b2c3d",
]


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def _stream(encoding: str) -> tuple[io.TextIOWrapper, io.BytesIO]:
    kept = io.BytesIO()
    stream = io.TextIOWrapper(kept, encoding=encoding)
    speak_plainly(stream)
    return stream, kept


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("ascii", "epsilon <= 1 at delta = 1e-05 ... +/-2, Delta_2, gammaC/b, Alesund ?"),
        ("latin-1", "epsilon <= 1 at delta = 1e-05 ... ±2, Delta_2, gammaC/b, Ålesund ?"),
        ("utf-8", "ε ≤ 1 at δ = 1e-05 … ±2, Δ_2, γC/b, Ålesund 漢"),
    ],
)
def test_a_stream_without_greek_letters_spells_them_out(encoding: str, shown: str) -> None:
    stream, kept = _stream(encoding)
    stream.write("ε ≤ 1 at δ = 1e-05 … ±2, Δ_2, γC/b, Ålesund 漢")
    stream.flush()
    assert kept.getvalue().decode(encoding) == shown


def test_every_symbol_of_our_own_texts_has_a_spelling() -> None:
    source = Path(__file__).parents[2] / "src" / "sumus"
    parts = [source / "cli", source / "data", *source.glob("*.py")]
    files = [path for part in parts for path in (part.rglob("*.py") if part.is_dir() else [part])]
    symbols = {
        sign for path in files for sign in path.read_text(encoding="utf-8") if ord(sign) > 127
    }
    assert {sign for sign in symbols if spelled(sign) == "?"} == set()


def _as_a_user(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM", "PYTHONUTF8")
    }
    command = [sys.executable, "-m", "sumus", *map(str, arguments)]
    return subprocess.run(command, env=kept | environment, capture_output=True, check=False)


@pytest.mark.deep
def test_an_ascii_terminal_reads_epsilon_and_delta_in_words(plan_file: Path) -> None:
    done = _as_a_user("account", plan_file, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.decode("ascii").startswith("epsilon <= 1 at delta = 0.0001 ")
    assert b"?" not in done.stdout
    refused = _as_a_user(
        "account", plan_file, "--set", "privacy.epsilon=-1", PYTHONIOENCODING="ascii"
    )
    assert refused.returncode == 2
    assert b"?" not in refused.stderr


def test_json_is_escaped_and_never_respelled_where_the_stream_cannot_hold_it(
    tmp_path: Path,
) -> None:
    Ledger.of_dataset("patients", state=tmp_path).enter(made_entry("Ålesund-ε", 1, 0.5))
    done = _as_a_user("ledger", "show", "--state", tmp_path, "--json", PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout.decode("ascii"))["ledgers"][0]["runs"][0]["run"] == "Ålesund-ε"


@pytest.mark.parametrize("quiet", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_an_error_has_no_colour_where_none_is_wanted(
    quiet: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for key in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(key, raising=False)
    assert main(["account", "nowhere.toml"]) == 2
    assert "\x1b[31m" in capsys.readouterr().err
    for key, value in quiet.items():
        monkeypatch.setenv(key, value)
    assert main(["account", "nowhere.toml"]) == 2
    assert "\x1b" not in capsys.readouterr().err


LINES = (
    "ε ≤ 1 at δ = 1e-05\n  counts on    5 of 5 silos present and honest; server "
    "honest-but-curious\n  for comparison: nothing"
)


def _lines_at(width: int, *, terminal: bool) -> list[str]:
    file = io.StringIO()
    _Spelling(file=file, width=width, force_terminal=terminal, color_system=None).print(
        Hanging(Text(LINES))
    )
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_a_long_line_goes_on_below_itself() -> None:
    assert _lines_at(60, terminal=True)[1:3] == [
        "  counts on    5 of 5 silos present and honest; server",
        " " * 15 + "honest-but-curious",
    ]
    assert _lines_at(30, terminal=True)[1:4] == [
        "  counts on",
        "    5 of 5 silos present and",
        "    honest; server",
    ]
    assert _lines_at(200, terminal=True) == LINES.splitlines()


def test_a_pipe_gets_whole_lines() -> None:
    assert _lines_at(30, terminal=False) == LINES.splitlines()


@pytest.fixture
def spent(tmp_path: Path) -> Path:
    ledger = Ledger.of_dataset("patients", state=tmp_path)
    for name in NAMES:
        ledger.enter(made_entry(name, 1, 0.5))
    return tmp_path


@pytest.mark.parametrize("columns", [24, 40, 60, 80, 120])
def test_the_ledger_shows_every_name_whole_on_every_width(
    columns: int, spent: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["ledger", "show", "--state", str(spent)]) == 0
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert [name for name in NAMES if name not in shown] == []
    assert "1e-05" in shown
