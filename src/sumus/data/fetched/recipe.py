"""What is taken out of which package, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, final

__all__ = ["Package", "Recipe", "Table", "Value"]

Value = str | int | float | None
Table = dict[str, list[Value]]
"""Columns of equal length by name; None: no value."""


class Package(Protocol):
    """A package's file: what asks for it, and name, version, SHA-256 and kind as pip knows them."""

    @property
    def name(self) -> str: ...
    @property
    def package(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def sha256(self) -> str: ...
    @property
    def built(self) -> bool: ...


@final
@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One table of a package.

    Args:
        name: of the table, its files and its plan.
        title: what it is, in one line.
        package, version: as pip knows them.
        sha256: of the package's file.
        megabytes: of that file.
        built: whether that file is a source distribution, whose metadata pip must build.
        members: paths inside the package's file, by a name for `convert`.
        columns: of pickled frames that are read, by the same name; members without an entry are CSV.
        terms: under which the data and the package come.
        convert: from what the members hold to the table; drops what names a person.
        rows: of the table.
        table_sha256: of the converted table (`prepare.digest`).
    """

    name: str
    title: str
    package: str
    version: str
    sha256: str
    megabytes: float
    built: bool = False
    members: Mapping[str, str]
    columns: Mapping[str, tuple[str, ...]]
    terms: str
    convert: Callable[[Mapping[str, Table]], Table]
    rows: int
    table_sha256: str
