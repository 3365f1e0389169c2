"""Made-up packages with made-up tables, as pip finds them in a folder: no test needs an index."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import pickle
import sys
import types
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sumus.data.fetched import prepare
from sumus.data.fetched.recipe import Recipe, Table

MEMBER = "made_up/frame.pickle"


def _object(module: str, name: str, *arguments: Any, state: Any = None) -> Any:
    """Something that pickles as a call of `module.name`."""
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        path = ".".join(parts[:depth])
        sys.modules.setdefault(path, types.ModuleType(path))
    if not hasattr(sys.modules[module], name):

        def stands_for(*_: Any) -> Any:
            raise AssertionError("this test has unpickled it")

        stands_for.__module__, stands_for.__qualname__ = module, name
        setattr(sys.modules[module], name, stands_for)
    called = getattr(sys.modules[module], name)

    class Reduced:
        def __reduce__(self) -> Any:
            return (called, arguments) if state is None else (called, arguments, state)

    return Reduced()


def _index(names: list[str]) -> Any:
    kept = {"data": np.array(names, dtype=object), "name": None}
    return _object("pandas.core.indexes.base", "_new_Index", None, kept)


def frame(columns: Mapping[str, list[Any]]) -> bytes:
    """A pickle of a frame as pandas writes it, one block a column."""
    # the real one, where a test has loaded it, calls things by other names
    pandas = {
        name: sys.modules.pop(name) for name in [*sys.modules] if name.split(".")[0] == "pandas"
    }
    others = set(sys.modules)
    blocks = tuple(
        _object(
            "pandas._libs.internals",
            "_unpickle_block",
            np.array([values], dtype=object if isinstance(values[0], str) else np.float64),
            _object("builtins", "slice", place, place + 1, 1),
            2,
        )
        for place, values in enumerate(columns.values())
    )
    managed = _object(
        "pandas.core.internals.managers", "BlockManager", blocks, [_index(list(columns)), None]
    )
    held = pickle.dumps(_object("pandas.core.frame", "DataFrame", state={"_mgr": managed}))
    for name in set(sys.modules) - others:
        del sys.modules[name]
    sys.modules.update(pandas)
    return held


def wheel(folder: Path, content: bytes, *, version: str = "1.0") -> Path:
    """The wheel of the package made-up with one file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"made_up-{version}-py3-none-any.whl"
    notes = f"made_up-{version}.dist-info"
    files = {
        MEMBER: content,
        f"{notes}/METADATA": f"Metadata-Version: 2.1\nName: made-up\nVersion: {version}\n".encode(),
        f"{notes}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{notes}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, held in {**files, f"{notes}/RECORD": record.encode()}.items():
            archive.writestr(zipfile.ZipInfo(name), held)
    return path


def recipe(package: Path, table: Table) -> Recipe:
    """Of a table "dialysis" that is the member of a made-up package, as it is."""
    return Recipe(
        name="dialysis",
        title="made up",
        package="made-up",
        version="1.0",
        sha256=hashlib.sha256(package.read_bytes()).hexdigest(),
        megabytes=0.1,
        members={"frame": MEMBER},
        columns={"frame": tuple(table)},
        terms="none",
        convert=lambda members: dict(members["frame"]),
        rows=len(next(iter(table.values()))),
        table_sha256=prepare.digest(table),
    )


def only_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip know a folder and no index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")


def csv_zip(text: str) -> bytes:
    """A zip archive with one CSV file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("table.csv", text)
    return buffer.getvalue()


def replaced(made: Recipe, **changes: Any) -> Recipe:
    """The recipe with other entries."""
    return dataclasses.replace(made, **changes)
