"""Import arrows as a table: who may import whom, and which heavy packages live where."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

from sumus.machine_code import _digest

SOURCE = Path(__file__).parent.parent / "src" / "sumus"

# lowest first; a part may import parts of lower layers, and of its own layer where no cycle arises
LAYERS: list[set[str]] = [
    {"errors", "machine_code"},
    {"randomness", "plan_rules", "ruled_table", "typed_json", "storage", "shapes", "records_in_words", "notebook", "uncertainty"},
    {"chain", "mechanism", "secagg"},
    {"accounting"},
    {"plan", "plan_sections"},
    {"data"},
    {"coins", "delta", "secure_counts", "trust"},
    {"resolve", "design"},
    {"exactness", "searches", "metrics_guarantee"},
    {"silo_analyses"},
    {"guarantee"},
    {"comparison", "joint", "record_lines", "run_checkpoint", "run_naming"},
    {"record", "ledger"},
    {"policy"},
    {"report"},
    {"training"},
    {"engines"},
    {"audit"},
    {"experiments"},
    {"cli", "__init__", "__main__"},
]
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}

# stricter than the layers
ONLY = {
    "secagg": {"errors", "machine_code", "randomness"},
    "mechanism": {"errors", "machine_code", "randomness"},
    "accounting": {"errors", "mechanism", "plan_rules"},
    "plan": {"errors", "plan_sections", "ruled_table"},
    "plan_sections": {"plan_rules", "ruled_table"},
    "report": {"errors", "plan", "record", "record_lines", "records_in_words", "storage", "uncertainty"},
    "data": {"errors", "plan", "randomness"},
}
HEAVY = {
    "torch": {"training", "audit", "experiments", "engines", "cli"},
    "nvflare": {"engines"},
    "flwr": {"engines"},
    "matplotlib": {"audit", "experiments", "report", "cli"},
    "opacus": set(),
    "mpmath": set(),
}


def _part(module: str) -> str:
    names = module.split(".")
    return names[1] if len(names) > 1 else "__init__"


def _is_module(name: str) -> bool:
    path = SOURCE.parent.joinpath(*name.split("."))
    return name.startswith("sumus.") and (path.with_suffix(".py").is_file() or (path / "__init__.py").is_file())


@cache
def _imports() -> tuple[tuple[str, str, bool], ...]:
    """Every import as (importing module, imported module, whether it happens at run time)."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        names = path.relative_to(SOURCE.parent).with_suffix("").parts
        module = ".".join(names)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        typing_only = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                targets = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{module}: relative import"
                base = node.module or ""
                targets = [f"{base}.{each.name}" if _is_module(f"{base}.{each.name}") else base for each in node.names]
            else:
                continue
            found += [(module, target, id(node) not in typing_only) for target in targets]
    return tuple(found)


def test_every_part_has_a_layer() -> None:
    parts = {_part(module) for module, _, _ in _imports()} | {path.stem for path in SOURCE.glob("*.py")}
    assert parts <= set(LEVEL), f"add to LAYERS: {sorted(parts - set(LEVEL))}"


def test_arrows_point_down() -> None:
    wrong = []
    for module, target, at_run_time in _imports():
        if target.split(".")[0] != "sumus" or not at_run_time:
            continue
        here, there = _part(module), _part(target)
        if here == there or there == "__init__":
            continue
        allowed = LEVEL[there] <= LEVEL[here] and (here not in ONLY or there in ONLY[here])
        if not allowed:
            wrong.append(f"{module} imports {target}")
    assert not wrong, wrong


@pytest.mark.parametrize("package", HEAVY)
def test_heavy_packages_stay_in_their_places(package: str) -> None:
    places = {_part(module) for module, target, at_run_time in _imports() if at_run_time and target.split(".")[0] == package}
    assert places <= HEAVY[package]


def test_there_are_no_cycles() -> None:
    """Between modules, counting what is imported when a module is loaded as well as what is imported later."""
    known = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__") for path in SOURCE.rglob("*.py")}
    arrows: dict[str, set[str]] = {module: set() for module in known}
    for module, target, at_run_time in _imports():
        source = module.removesuffix(".__init__")
        if at_run_time and target in known and target != source and source not in ("sumus", "sumus.cli"):
            arrows[source].add(target)
    finished: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join([*path[path.index(module) :], module])
        if module not in finished:
            for each in sorted(arrows[module]):
                visit(each, (*path, module))
            finished.add(module)

    for module in sorted(arrows):
        visit(module, ())


@pytest.mark.parametrize("module", ["sumus", "sumus.cli", "sumus.guarantee", "sumus.secagg", "sumus.record", "sumus.cli.account"])
def test_loading_it_does_not_load_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit(any(name in sys.modules for name in ('torch', 'nvflare', 'flwr', 'matplotlib')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_import_sumus_is_light() -> None:
    code = "import sys, sumus; sys.exit(any(name in sys.modules for name in ('numpy', 'scipy', 'rich', 'cryptography')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_compiled_loops_call_loops_of_their_own_file_only() -> None:
    """Compiled code is kept on disk until its own file changes: a loop of another file would go on being called as it was."""
    modules = [
        import_module(_module(path)) for path in SOURCE.rglob("*.py") if "numba" in path.read_text() or "compiled" in path.read_text()
    ]
    loops = {id(loop): loop for module in modules for loop in vars(module).values() if isinstance(loop, Dispatcher)}
    assert len(loops) > 15
    for loop in loops.values():
        called = [loop.py_func.__globals__.get(name) for name in loop.py_func.__code__.co_names]
        foreign = [other.__name__ for other in called if isinstance(other, Dispatcher) and other.__module__ != loop.__module__]
        assert not foreign, f"{loop.__module__}.{loop.__name__}"


_BY_TIME_AND_SIZE = """
import os
from numba.core.caching import _SourceFileBackedLocatorMixin as Locator
Locator.get_source_stamp = lambda self: (os.stat(self._py_file).st_mtime, os.stat(self._py_file).st_size)
"""
_LOOP = """
@kept
def loop(number):
    return number * 3.5
"""


@pytest.mark.parametrize(
    ("decorator", "seen"),
    [
        pytest.param("from sumus.machine_code import compiled as kept", ["7.0", "9.0"], id="compiled"),
        pytest.param("from functools import partial\nfrom numba import njit\nkept = partial(njit, cache=True)", ["7.0", "7.0"], id="numba"),
    ],
)
def test_machine_code_is_made_anew_after_an_edit_that_keeps_time_and_size(decorator: str, seen: list[str], tmp_path: Path) -> None:
    """Such is an edit in a reproducible wheel; numba alone, the control, goes on running what it kept of the file before.

    Newer versions of numba read the file, older ones look at its time and size; here every one does.
    """
    command = [sys.executable, "-B", "-c", _BY_TIME_AND_SIZE + "import kernel; print(kernel.loop(2))"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(SOURCE.parent)])}
    file, shown = tmp_path / "kernel.py", []
    for factor in ("3.5", "4.5"):
        file.write_text(decorator + _LOOP.replace("3.5", factor))
        os.utime(file, (1_700_000_000, 1_700_000_000))
        shown.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip())
    assert shown == seen


def test_machine_code_is_made_anew_with_other_options() -> None:
    """The options of a loop may stand in another file than the loop."""
    digests = {_digest(_module, options) for options in ({}, {"fastmath": {"contract", "nsz"}}, {"fastmath": {"contract"}})}
    assert len(digests) == 3
    assert _digest(_module, {"fastmath": {"nsz", "contract"}}) in digests


def _module(path: Path) -> str:
    return ".".join(("sumus", *path.relative_to(SOURCE).with_suffix("").parts))


def test_files_are_one_idea_long() -> None:
    long = {str(path.relative_to(SOURCE)): count for path in SOURCE.rglob("*.py") if (count := len(path.read_text().splitlines())) > 450}
    assert not long
