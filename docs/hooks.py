"""Hook of mkdocs: a page of API reference for the package and for each of its rooms, from its door.

Nothing is listed by hand. A room without a door has no public names and no page; its names are read
from the source, so that building the site imports nothing.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # tests read the names without mkdocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PACKAGE = "sumus"
SOURCE = Path(__file__).parents[1] / "src" / PACKAGE


def public_names(init: Path) -> list[str]:
    """What a door offers to type checkers, in the order of the source: `from … import Name as Name`."""
    return [
        alias.asname or alias.name
        for node in ast.parse(init.read_text(encoding="utf-8")).body
        if isinstance(node, ast.If)
        for imported in node.body
        if isinstance(imported, ast.ImportFrom)
        for alias in imported.names
    ]


def rooms() -> dict[str, list[str]]:
    """Public names by module: the package itself, then its rooms in alphabetical order."""
    inits = [SOURCE / "__init__.py", *sorted(SOURCE.glob("*/__init__.py"))]
    named = {
        ".".join(init.relative_to(SOURCE.parent).parts[:-1]): public_names(init) for init in inits
    }
    return {module: names for module, names in named.items() if names}


def page(module: str, names: list[str]) -> str:
    """What a reader of one room sees: its docstring, then every public name."""
    head = f"# {module}\n\n::: {module}\n    options:\n      members: false\n      show_root_heading: false\n"
    return head + "".join(f"\n::: {module}.{name}\n" for name in names)


def address(module: str) -> str:
    return f"reference/{module}.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages behind the others."""
    entries: list[Any] = [{module: address(module)} for module in rooms()]
    config.nav = [*(config.nav or []), {"API reference": entries}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages themselves."""
    from mkdocs.structure.files import File

    for module, names in rooms().items():
        files.append(File.generated(config, address(module), content=page(module, names)))
    return files
