"""`make mutate`: break the guarantee on purpose, one change at a time, and see a test fail each
time.

Every mutation of tests/mutations/mutations.toml is applied to a copy of the source tree, and its
tests run against it. Prints a table and exits with 1 if a mutation survives, that is, if all its
tests pass, or if they cannot be run at all or do not end in time: only a test that failed has
caught anything.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("src", "tests", "plans", "pyproject.toml")
# exit codes of pytest: tests failed, all passed; and ours for no end
CAUGHT, SURVIVED, UNFINISHED = 1, 0, -1


def copy_of_the_tree(folder: Path) -> Path:
    """Sources, tests and plans, without caches."""
    for part in PARTS:
        origin = ROOT / part
        if origin.is_dir():
            shutil.copytree(
                origin,
                folder / part,
                ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", ".hypothesis"),
            )
        elif origin.exists():
            shutil.copy(origin, folder / part)
    return folder


def run_tests(tree: Path, tests: list[str], *, timeout: float) -> tuple[int, str]:
    """Exit code of pytest on the copy, and its last line."""
    environment = os.environ | {
        "PYTHONPATH": str(tree / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": str(tree / "numba"),
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "--no-header",
        *tests,
    ]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return UNFINISHED, f"no end within {timeout:g} seconds; give more with --timeout"
    lines = [
        line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))
    ] or done.stdout.splitlines()[-1:]
    return done.returncode, (lines or [done.stderr.strip()[-200:]])[0]


def try_mutation(tree: Path, mutation: dict[str, Any], *, timeout: float) -> tuple[str, str]:
    """("caught" | "SURVIVED" | "BROKEN", which test said so)."""
    file = tree / mutation["file"]
    source = file.read_text(encoding="utf-8")
    if source.count(mutation["old"]) != 1:
        return "BROKEN", f"{mutation['file']} no longer holds the text to replace exactly once"
    file.write_text(source.replace(mutation["old"], mutation["new"]), encoding="utf-8")
    try:
        code, line = run_tests(tree, mutation["tests"], timeout=timeout)
    finally:
        file.write_text(source, encoding="utf-8")
    if code == CAUGHT:
        return "caught", line.removeprefix("FAILED ").split(" - ")[0]
    return ("SURVIVED", line) if code == SURVIVED else ("BROKEN", line)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="run mutations whose name contains this")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds per mutation")
    options = parser.parse_args()
    catalogue = tomllib.loads(
        (ROOT / "tests" / "mutations" / "mutations.toml").read_text(encoding="utf-8")
    )["mutation"]
    chosen = [mutation for mutation in catalogue if options.only in mutation["name"]]
    survived = 0
    with tempfile.TemporaryDirectory(prefix="sumus-mutate-") as name:
        tree = copy_of_the_tree(Path(name))
        every_test = sorted({test for mutation in chosen for test in mutation["tests"]})
        code, line = run_tests(tree, every_test, timeout=4 * options.timeout)
        if code != SURVIVED:
            print(f"the tests fail without any mutation: {line}")
            return 1
        for mutation in chosen:
            began = time.perf_counter()
            verdict, by = try_mutation(tree, mutation, timeout=options.timeout)
            survived += verdict != "caught"
            print(
                f"{verdict:9} {mutation['name']:64} {time.perf_counter() - began:5.1f} s  {by}",
                flush=True,
            )
    print(f"\n{len(chosen) - survived} of {len(chosen)} mutations caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
