"""Unpickling in a process that has nothing at hand: the standard library, no site packages, no
environment, a folder of its own, one file to read and one to write.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from sumus.data.fetched import frame_reader
from sumus.data.fetched.recipe import Recipe, Table
from sumus.errors import DataError

__all__ = ["read_pickle"]

_SECONDS = 300


def read_pickle(recipe: Recipe, path: Path, columns: tuple[str, ...]) -> Table:
    """Columns of a pickled frame, read by `frame_reader` in a process of its own.

    Guarantee: this process unpickles nothing; what comes back is JSON.

    Args:
        path: of the pickle, in a folder of our own, in which the process runs.
    """
    target = path.with_suffix(".json")
    reader = os.fspath(Path(frame_reader.__file__).resolve())
    command = [sys.executable, "-I", "-S", "-B", reader, path.name, target.name, *columns]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=path.parent,
            env={"LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise DataError(
            f"{recipe.name}: its pickle was not read within {_SECONDS} s. Try again on a machine "
            "with less to do."
        ) from None
    if done.returncode:
        told = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise DataError(
            f"{recipe.name}: the pickle of {recipe.package} {recipe.version} was refused, {told}. "
            "Use another package index."
        )
    table: Table = json.loads(target.read_text(encoding="utf-8"))
    return table
