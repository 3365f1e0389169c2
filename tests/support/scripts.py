"""Scripts that people run, as main programs of this process: what they import is here already."""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path

import pytest

__all__ = ["run_script"]


def run_script(
    script: Path,
    *options: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """What a script prints that is called in a folder and keeps its ledgers there; raises what it
    raises.
    """
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SUMUS_STATE", str(folder / "state"))
    monkeypatch.setattr(sys, "argv", [str(script), *options])
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for those who run it, not errors as in tests
        runpy.run_path(str(script), run_name="__main__")
    return capsys.readouterr().out
