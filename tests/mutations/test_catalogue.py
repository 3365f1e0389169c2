"""The catalogue of mutations fits the source, however its lines are broken."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mutations.anchors import SourceTree

ROOT = Path(__file__).parents[2]
SOURCES = SourceTree(ROOT)
CATALOGUE = Path(__file__).with_name("mutations.toml")
MUTATIONS: list[dict[str, Any]] = tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))["mutation"]
NAMES = [mutation["name"] for mutation in MUTATIONS]


def test_there_are_enough_of_them_with_names_of_their_own() -> None:
    assert len(MUTATIONS) >= 150
    assert len(set(NAMES)) == len(MUTATIONS)


@cache
def _program(file: Path) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


@cache
def _dumped(statement: str) -> str:
    """The syntax tree of one statement; of docstrings a formatter strips blanks, so strings that
    stand alone are left out.
    """
    program = ast.parse(statement)
    for node in ast.walk(program):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = None
    return ast.dump(program)


def _tree(source: str) -> list[str]:
    """The syntax trees of a program's statements, of those of a class each: of a thousand programs
    that differ in one, every statement is looked at once.
    """
    lines, trees = source.split("\n"), []
    statements = [("", node) for node in ast.parse(source).body]
    while statements:
        before, node = statements.pop()
        if isinstance(node, ast.ClassDef):
            statements += [("if 1:\n", inner) for inner in node.body]
            node.body = []
            trees.append(ast.dump(node))
        else:
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            trees.append(_dumped(before + "\n".join(lines[first - 1 : node.end_lineno])))
    return trees


@cache
def _tree_of(file: Path) -> list[str]:
    return _tree((ROOT / file).read_text(encoding="utf-8"))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=NAMES)
def test_a_mutation_applies(mutation: dict[str, Any]) -> None:
    assert set(mutation) == {"name", "where", "old", "new", "tests"}
    file, mutated = SOURCES.mutated(mutation["where"], mutation["old"], mutation["new"])
    assert _tree(mutated) != _tree_of(file)
    compile(mutated, str(file), "exec")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=NAMES)
def test_a_mutation_has_tests(mutation: dict[str, Any]) -> None:
    assert mutation["tests"]
    for test in mutation["tests"]:
        file, *path = SOURCES.test(test).split("::")
        body = _program(Path(file)).body
        for name in path:
            named = [node for node in body if getattr(node, "name", None) == name]
            assert named, f"{file} has no {name}"
            body = getattr(named[0], "body", [])


@pytest.mark.parametrize("mutation", MUTATIONS, ids=NAMES)
def test_a_mutation_names_no_more_of_its_module_than_it_needs(mutation: dict[str, Any]) -> None:
    module, _, name = mutation["where"].rpartition(":")
    if module and name:
        with pytest.raises(ValueError, match="must name one definition"):
            SOURCES.definition(name)


def test_no_mutation_is_caught_only_because_it_uses_an_unknown_name(tmp_path: Path) -> None:
    for number, mutation in enumerate(MUTATIONS):
        _, mutated = SOURCES.mutated(mutation["where"], mutation["old"], mutation["new"])
        (tmp_path / f"mutation_{number}.py").write_text(mutated, encoding="utf-8")
    names = ["check", "--isolated", "--no-cache", "--quiet", "--select", "F821"]
    ruff = _ruff(*names, "--target-version", "py311", "--output-format", "concise", str(tmp_path))
    assert ruff.returncode == 0, ruff.stdout


@pytest.mark.deep
@pytest.mark.parametrize("columns", [60, pytest.param(160, marks=pytest.mark.long)])
def test_no_formatter_moves_a_mutation_away(columns: int, tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    options = ["--isolated", "--no-cache", "--quiet", "--target-version", "py311"]
    # Without magic trailing commas, what was broken into lines is joined again where it fits.
    joined = ["--config", "format.skip-magic-trailing-comma = true"]
    layout = [*options, *joined, "--config", 'format.quote-style = "single"']
    ruff = _ruff("format", *layout, "--line-length", str(columns), str(tmp_path / "src"))
    assert ruff.returncode == 0, ruff.stderr
    elsewhere = SourceTree(tmp_path)
    for mutation in MUTATIONS:
        anchor = mutation["where"], mutation["old"], mutation["new"]
        file, mutated = SOURCES.mutated(*anchor)
        same_file, mutated_there = elsewhere.mutated(*anchor)
        assert file == same_file
        assert _tree(mutated) == _tree(mutated_there), mutation["name"]


def _ruff(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ruff", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
