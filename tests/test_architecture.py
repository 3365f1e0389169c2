"""Import arrows as a table: who may import whom, and which heavy packages live where."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

from sumus.files.machine_code import _digest
from sumus.plan import RULES, SiloPlan
from sumus.plan.sections import MECHANISMS, SECTIONS

DOCS = Path(__file__).parent.parent / "docs"
SOURCE = Path(__file__).parent.parent / "src" / "sumus"

# Lowest first: a room imports rooms above its own line of this table, through their doors.
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "randomness": set(),
    "files": {"errors"},
    "events": {"errors", "randomness", "files"},
    "service": {"errors", "files"},
    "noise": {"errors", "randomness", "files"},
    "tasks": {"errors"},
    "accounting": {"errors", "files", "noise"},
    "secagg": {"errors", "randomness", "files"},
    "plan": {"errors", "files", "noise", "tasks"},
    "texts": {"errors"},
    "data": {"errors", "randomness", "files", "tasks", "plan", "texts"},
    "guarantee": {"errors", "files", "noise", "tasks", "accounting", "plan", "data"},
    "purity": {"errors"},
    "gradients": {"errors", "randomness", "files", "noise", "tasks", "purity"},
    "features": {"errors", "randomness", "files", "plan", "purity"},
    "books": {"errors", "randomness", "files", "events", "plan", "guarantee"},
    "training": {
        "tasks",
        "errors",
        "randomness",
        "files",
        "noise",
        "plan",
        "data",
        "guarantee",
        "purity",
        "gradients",
        "features",
    },
    "comparing": {
        "tasks",
        "errors",
        "randomness",
        "files",
        "plan",
        "data",
        "purity",
        "training",
    },
    "describing": {"errors", "files", "tasks", "plan", "data", "guarantee", "books"},
    "drafting": {"errors", "files", "tasks", "plan", "data", "guarantee"},
    "report": {
        "errors",
        "files",
        "tasks",
        "plan",
        "guarantee",
        "books",
        "comparing",
        "describing",
    },
    "predicting": {
        "errors",
        "files",
        "tasks",
        "plan",
        "data",
        "purity",
        "books",
        "training",
    },
    "exporting": {
        "errors",
        "files",
        "tasks",
        "data",
        "purity",
        "features",
        "books",
        "training",
        "report",
        "predicting",
    },
    "parties": {
        "tasks",
        "errors",
        "randomness",
        "files",
        "events",
        "service",
        "noise",
        "secagg",
        "plan",
        "data",
        "guarantee",
        "purity",
        "books",
        "training",
        "report",
        "predicting",
        "exporting",
    },
    "runs": {
        "errors",
        "randomness",
        "files",
        "events",
        "secagg",
        "plan",
        "data",
        "guarantee",
        "purity",
        "books",
        "training",
        "comparing",
        "describing",
        "report",
        "parties",
        "predicting",
        "tasks",
    },
    "estimators": {
        "errors",
        "files",
        "plan",
        "data",
        "guarantee",
        "books",
        "drafting",
        "predicting",
        "runs",
    },
    "watching": {
        "errors",
        "randomness",
        "files",
        "service",
        "tasks",
        "plan",
        "guarantee",
        "books",
        "report",
        "runs",
    },
    "alerting": {"errors", "files", "events", "watching"},
    "engines": {
        "errors",
        "randomness",
        "files",
        "events",
        "service",
        "secagg",
        "plan",
        "books",
        "parties",
        "runs",
        "watching",
        "alerting",
    },
    "tuning": {
        "tasks",
        "errors",
        "randomness",
        "files",
        "plan",
        "data",
        "guarantee",
        "books",
        "training",
        "report",
        "parties",
    },
    "audit": {
        "tasks",
        "errors",
        "randomness",
        "noise",
        "accounting",
        "plan",
        "data",
        "guarantee",
        "gradients",
        "books",
        "training",
        "parties",
        "report",
        "runs",
    },
    "care": {
        "errors",
        "randomness",
        "files",
        "events",
        "secagg",
        "plan",
        "data",
        "books",
        "parties",
        "engines",
        "audit",
    },
    "cli": set(),
    "paper": {
        "tasks",
        "errors",
        "randomness",
        "files",
        "accounting",
        "plan",
        "data",
        "guarantee",
        "gradients",
        "books",
        "training",
        "report",
        "parties",
        "secagg",
        "audit",
        "cli",
    },
}
ROOMS["cli"] = set(ROOMS) - {"cli", "paper"}  # paper is the last room: nothing imports it
TOP = {"", "__main__"}  # the package's own door and the command line's
HEAVY = {
    "torch": {
        "tasks",
        "texts",
        "purity",
        "gradients",
        "features",
        "training",
        "comparing",
        "predicting",
        "exporting",
        "parties",
        "runs",
        "estimators",
        "tuning",
        "audit",
        "paper",
        "engines",
        "cli",
    },
    "nvflare": {"engines"},
    "flwr": {"engines"},
    "prometheus_client": {"watching"},
    "matplotlib": {"report"},  # in plots.py
    "opacus": set(),
    "mpmath": set(),
}


MOST_COMPARED = 11  # comparisons with the name of an algorithm or a mechanism


def _room(module: str) -> str:
    names = module.removesuffix(".__init__").split(".")
    return names[1] if len(names) > 1 else ""


def _is_module(name: str) -> bool:
    path = SOURCE.parent.joinpath(*name.split("."))
    return name.startswith("sumus.") and (
        path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
    )


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
            if isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                targets = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{module}: relative import"
                base = node.module or ""
                targets = [
                    f"{base}.{each.name}" if _is_module(f"{base}.{each.name}") else base
                    for each in node.names
                ]
            else:
                continue
            found += [(module, target, id(node) not in typing_only) for target in targets]
    return tuple(found)


def test_nothing_lies_loose_at_the_root() -> None:
    assert {path.stem for path in SOURCE.glob("*.py")} == {
        "__init__",
        "__main__",
        "errors",
        "randomness",
    }
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert rooms | {"errors", "randomness"} == set(ROOMS)


def test_arrows_point_down() -> None:
    wrong, order = [], list(ROOMS)
    assert all(order.index(lower) < order.index(room) for room in order for lower in ROOMS[room])
    for module, target, at_run_time in _imports():
        here, there = _room(module), _room(target)
        if target.split(".")[0] != "sumus" or not at_run_time or here in TOP or there in ("", here):
            continue
        if there not in ROOMS[here] and target != "sumus.files.doors":
            wrong.append(f"{module} imports {target}")
    assert not wrong, wrong


def test_rooms_are_entered_through_their_doors() -> None:
    wrong = []
    for module, target, _ in _imports():
        here, there = _room(module), _room(target)
        if target.split(".")[0] != "sumus" or there in ("", here, "errors", "randomness"):
            continue
        behind_the_door = target.count(".") > 1 and target != "sumus.files.doors"
        if behind_the_door and there not in ("engines", "cli"):
            wrong.append(f"{module} imports {target}")
    assert not wrong, wrong


def test_the_room_of_the_paper_is_named_by_the_table_of_commands_alone() -> None:
    naming = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if "sumus.paper" in path.read_text(encoding="utf-8")
        and path.relative_to(SOURCE).parts[0] != "paper"
    ]
    assert naming == ["cli/__init__.py"]


def _rooms_with_a_door() -> list[Path]:
    return sorted(
        path
        for path in SOURCE.glob("**/__init__.py")
        if "door(" in path.read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("path", _rooms_with_a_door(), ids=lambda path: path.parent.name)
def test_a_door_lists_the_same_names_three_times(path: Path) -> None:
    """For readers (`__all__`), for type checkers (`TYPE_CHECKING`) and for loading on first use
    (`door`).
    """
    room = import_module(".".join(("sumus", *path.relative_to(SOURCE).parent.parts)))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typed = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        for imported in node.body
        if isinstance(imported, ast.ImportFrom)
        for alias in imported.names
    }
    assert typed == set(room.__all__) - {"__version__"}
    for name in room.__all__:
        assert getattr(room, name) is not None


@pytest.mark.parametrize(
    "path", sorted(SOURCE.glob("**/__init__.py")), ids=lambda path: path.parent.name
)
def test_every_package_says_what_is_inside(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_lines_fit_into_100_columns() -> None:
    """Tables in docstrings and long texts may stick out, at most one line in two hundred."""
    lines = [line for path in SOURCE.rglob("*.py") for line in path.read_text().splitlines()]
    assert sum(len(line) > 100 for line in lines) < 0.005 * len(lines)


@pytest.mark.parametrize("package", HEAVY)
def test_heavy_packages_stay_in_their_places(package: str) -> None:
    places = {
        _room(module)
        for module, target, at_run_time in _imports()
        if at_run_time and target.split(".")[0] == package
    }
    assert places <= HEAVY[package]


def test_there_are_no_cycles() -> None:
    """Between modules, counting what is imported when a module is loaded as well as what is
    imported later.
    """
    known = {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in SOURCE.rglob("*.py")
    }
    arrows: dict[str, set[str]] = {module: set() for module in known}
    for module, target, at_run_time in _imports():
        source = module.removesuffix(".__init__")
        if (
            at_run_time
            and target in known
            and target != source
            and source not in ("sumus", "sumus.cli")
        ):
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


@pytest.mark.parametrize(
    "module",
    [
        "sumus",
        "sumus.cli",
        "sumus.guarantee",
        "sumus.secagg",
        "sumus.books.journal",
        "sumus.cli.account",
    ],
)
def test_loading_it_does_not_load_torch(module: str) -> None:
    code = (
        f"import sys, {module}; sys.exit(any(name in sys.modules for name in ('torch', 'nvflare', "
        "'flwr', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_import_sumus_is_light() -> None:
    code = (
        "import sys, sumus; sys.exit(any(name in sys.modules for name in ('numpy', 'scipy', "
        "'rich', 'cryptography')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_compiled_loops_call_loops_of_their_own_file_only() -> None:
    """Compiled code is kept on disk until its own file changes: a loop of another file would go on
    being called as it was.
    """
    modules = [
        import_module(_module(path))
        for path in SOURCE.rglob("*.py")
        if "numba" in path.read_text() or "compiled" in path.read_text()
    ]
    loops = {
        id(loop): loop
        for module in modules
        for loop in vars(module).values()
        if isinstance(loop, Dispatcher)
    }
    assert len(loops) > 15
    for loop in loops.values():
        called = [loop.py_func.__globals__.get(name) for name in loop.py_func.__code__.co_names]
        foreign = [
            other.__name__
            for other in called
            if isinstance(other, Dispatcher) and other.__module__ != loop.__module__
        ]
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


@pytest.mark.deep
@pytest.mark.parametrize(
    ("decorator", "seen"),
    [
        pytest.param(
            "from sumus.files.machine_code import compiled as kept", ["7.0", "9.0"], id="compiled"
        ),
        pytest.param(
            "from functools import partial\nfrom numba import njit\nkept = partial(njit, "
            "cache=True)",
            ["7.0", "7.0"],
            id="numba",
        ),
    ],
)
def test_machine_code_is_made_anew_after_an_edit_that_keeps_time_and_size(
    decorator: str, seen: list[str], tmp_path: Path
) -> None:
    """Such is an edit in a reproducible wheel; numba alone, the control, goes on running what it
    kept of the file before.

    Newer versions of numba read the file, older ones look at its time and size; here every one
    does.
    """
    command = [
        sys.executable,
        "-B",
        "-c",
        _BY_TIME_AND_SIZE + "import kernel; print(kernel.loop(2))",
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(SOURCE.parent)])}
    file, shown = tmp_path / "kernel.py", []
    for factor in ("3.5", "4.5"):
        file.write_text(decorator + _LOOP.replace("3.5", factor))
        os.utime(file, (1_700_000_000, 1_700_000_000))
        shown.append(
            subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            ).stdout.strip()
        )
    assert shown == seen


def test_machine_code_is_made_anew_with_other_options() -> None:
    """The options of a loop may stand in another file than the loop."""
    digests = {
        _digest(_module, options)
        for options in ({}, {"fastmath": {"contract", "nsz"}}, {"fastmath": {"contract"}})
    }
    assert len(digests) == 3
    assert _digest(_module, {"fastmath": {"nsz", "contract"}}) in digests


def _module(path: Path) -> str:
    return ".".join(("sumus", *path.relative_to(SOURCE).with_suffix("").parts))


def _plan_numbers() -> set[str]:
    """Keys of the plan's sections; a resolved plan has a number for each that can be computed."""
    return {item.name for section in [*SECTIONS.values(), SiloPlan] for item in fields(section)}


def _is_zero_or_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (0, 1) and node.value is not False


def test_no_number_of_a_plan_has_a_second_default() -> None:
    """`plan.training.dimension or 1` sizes noise for one coordinate where the dimension is missing:
    numbers come from a `ResolvedPlan`, which has them all.
    """
    numbers, wrong = _plan_numbers(), []
    assert {"dimension", "divisor", "std_factor"} <= numbers
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or)):
                continue
            *values, last = node.values
            if _is_zero_or_one(last) and any(
                isinstance(value, ast.Attribute) and value.attr in numbers for value in values
            ):
                wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno} {ast.unparse(node)}")
    assert not wrong, wrong


def _compared_names(node: ast.Compare) -> set[str]:
    """Names of algorithms and mechanisms that are compared with something."""
    names = {*RULES, *MECHANISMS}
    constants = {
        part.value
        for side in [node.left, *node.comparators]
        for part in ast.walk(side)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    } & names
    # a unit of privacy and a table of the plan are called "silo" too
    return constants if "algorithm" in ast.unparse(node) else constants - {"silo"}


def test_kinds_are_objects_and_not_names() -> None:
    """What an algorithm or a mechanism can do is asked of its object, not told from its name."""
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno} {ast.unparse(node)}"
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare) and _compared_names(node)
    ]
    assert len(found) <= MOST_COMPARED, found


def test_files_are_one_idea_long() -> None:
    long = {
        str(path.relative_to(SOURCE)): count
        for path in SOURCE.rglob("*.py")
        if (count := len(path.read_text().splitlines())) > 600
    }
    assert not long


def test_the_map_is_drawn_from_these_sources() -> None:
    """`python docs/gen_map.py` draws it anew."""
    spec = importlib.util.spec_from_file_location("gen_map", DOCS / "gen_map.py")
    assert spec is not None
    assert spec.loader is not None
    gen_map = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gen_map)
    assert (DOCS / "figures" / "house.svg").read_text(encoding="utf-8") == gen_map.draw()


def test_the_architecture_page_names_every_room_and_the_way_of_one_record() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rooms = set(re.findall(r"^\| `(\w+)` \|", page, flags=re.M))
    assert rooms == set(ROOMS) - {"errors", "randomness"}
    way = re.findall(r"^\| +\d+ \| `([\w/]+)(?:\.py)?` \|", page, flags=re.M)
    listed = (DOCS / "one-record-files.txt").read_text(encoding="utf-8").splitlines()
    assert way == [line.split()[0] for line in listed if line.strip()]
