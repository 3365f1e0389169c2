"""Applies growths to a copy of the project, and says which files of src they touch.

A growth is a folder: `src/…` and `tests/…` hold new files, `edits.toml` changes files that are there.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "plans", "docs", "pyproject.toml")


@dataclass(frozen=True)
class Grown:
    """A copy of the project with something added to it."""

    root: Path

    def touched(self) -> list[str]:
        """Files of src that are new or changed; of a new folder its name alone."""
        here = self.root / "src"
        return sorted(
            {
                self._unit(path.relative_to(here))
                for path in here.rglob("*")
                if path.is_file() and "__pycache__" not in path.parts and self._differs(path)
            }
        )

    def _unit(self, path: Path) -> str:
        new = [folder for folder in path.parents if not (ROOT / "src" / folder).exists()]
        return f"{new[-1]}/" if new else str(path)

    def _differs(self, path: Path) -> bool:
        original = ROOT / path.relative_to(self.root)
        return not original.exists() or not filecmp.cmp(path, original, shallow=False)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Python in the copy, which sees the copy's source only."""
        environment = os.environ | {"PYTHONPATH": str(self.root / "src"), "OMP_NUM_THREADS": "1"}
        environment = {key: value for key, value in environment.items() if "XDIST" not in key}
        return subprocess.run(
            [sys.executable, *command],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


def grow(folder: Path, *kinds: Path) -> Grown:
    """A copy of the project in this folder, with the growths applied.

    Raises:
        ValueError: an edit's text does not stand in its file exactly once.
    """
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            # machine code that numba keeps beside the source comes along: nothing is compiled again
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("growth"))
        else:
            shutil.copy2(source, folder / name)
    for kind in kinds:
        _apply(kind, folder)
    return Grown(folder)


def _apply(kind: Path, folder: Path) -> None:
    for name in ("src", "tests"):
        if (kind / name).is_dir():
            shutil.copytree(kind / name, folder / name, dirs_exist_ok=True)
    edits = kind / "edits.toml"
    for edit in tomllib.loads(edits.read_text())["edit"] if edits.exists() else []:
        path = folder / edit["file"]
        text = path.read_text(encoding="utf-8")
        if text.count(edit["find"]) != 1:
            raise ValueError(f"{edits}: {edit['find']!r} must stand once in {edit['file']}")
        path.write_text(text.replace(edit["find"], edit["replace"]), encoding="utf-8")
