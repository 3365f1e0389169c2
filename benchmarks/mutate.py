"""`make mutate`: break the guarantee on purpose, one change at a time; a test must fail each time.

Every mutation of tests/mutations/mutations.toml is applied to a copy of the source tree, and its
tests run against it. Prints a table and exits with 1 if a mutation survives, that is, if all its
tests pass, or if they cannot be run at all or do not end in time: only a test that failed has
caught anything.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from mutations.anchors import AnchorError, SourceTree  # noqa: E402  tests are no package

PARTS = ("src", "tests", "plans", "docs", "pyproject.toml")
CACHES = shutil.ignore_patterns("__pycache__", "*.egg-info", ".hypothesis")
# Exit codes of pytest: a test failed, all passed; and our own for no end in time.
FAILED, PASSED, UNFINISHED = 1, 0, -1


@dataclass(frozen=True)
class Mutation:
    """One entry of the catalogue, which explains the fields."""

    name: str
    where: str
    old: str
    new: str
    tests: Sequence[str]


@dataclass(frozen=True)
class Outcome:
    """Whether a mutation was caught, and by which test, or why not."""

    mutation: Mutation
    verdict: str  # "caught", "SURVIVED" or "BROKEN"
    reason: str
    seconds: float


def catalogue(root: Path = ROOT) -> list[Mutation]:
    """All mutations, in the order of their file."""
    text = (root / "tests" / "mutations" / "mutations.toml").read_text(encoding="utf-8")
    return [Mutation(**entry) for entry in tomllib.loads(text)["mutation"]]


def copy_of_the_tree(folder: Path) -> Path:
    """Sources, tests, plans and pages, without caches."""
    for part in PARTS:
        origin = ROOT / part
        if origin.is_dir():
            shutil.copytree(origin, folder / part, ignore=CACHES)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(origin, folder / part)
    return folder


def run_tests(tree: Path, tests: Sequence[str], *, timeout: float) -> tuple[int, str]:
    """Exit code of pytest on the copy, and its first failure or else its last line."""
    environment = os.environ | {
        "PYTHONPATH": str(tree / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": str(tree / "numba"),
    }
    options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        pytest = subprocess.run(
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
    lines = [line for line in f"{pytest.stderr}\n{pytest.stdout}".splitlines() if line.strip()]
    failures = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return pytest.returncode, (failures or lines[-1:] or ["pytest said nothing"])[0]


def try_mutation(tree: Path, mutation: Mutation, *, timeout: float) -> Outcome:
    """Applies the mutation to the copy, runs its tests and takes it back."""
    began = time.perf_counter()
    sources = SourceTree(tree)
    try:
        file, mutated = sources.mutated(mutation.where, mutation.old, mutation.new)
        tests = [sources.test(test) for test in mutation.tests]
    except AnchorError as error:
        return Outcome(mutation, "BROKEN", str(error), time.perf_counter() - began)
    source = (tree / file).read_text(encoding="utf-8")
    (tree / file).write_text(mutated, encoding="utf-8")
    try:
        code, line = run_tests(tree, tests, timeout=timeout)
    finally:
        (tree / file).write_text(source, encoding="utf-8")
    verdict = {FAILED: "caught", PASSED: "SURVIVED"}.get(code, "BROKEN")
    reason = line.removeprefix("FAILED ").split(" - ")[0] if code == FAILED else line
    return Outcome(mutation, verdict, reason, time.perf_counter() - began)


def changed_files(revision: str) -> set[Path]:
    """Files that differ from `revision` in the working tree, new ones included."""
    commands = (
        ["git", "diff", "--name-only", "--no-renames", "-z", revision, "--"],
        ["git", "ls-files", "--others", "--exclude-standard", "-z"],
    )
    listings = [
        subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
        for command in commands
    ]
    return {Path(name) for listing in listings for name in listing.split("\0") if name}


def selected(mutations: Sequence[Mutation], patterns: Sequence[str], since: str) -> list[Mutation]:
    """Mutations that fit a pattern, and whose definition lies in a file changed since then.

    A mutation whose definition cannot be found is kept: it has to be reported.
    """
    selection = [
        mutation
        for mutation in mutations
        if not patterns or any(fnmatch.fnmatchcase(mutation.name, f"*{p}*") for p in patterns)
    ]
    if not since:
        return selection
    changed, sources = changed_files(since), SourceTree(ROOT)

    def is_changed(mutation: Mutation) -> bool:
        try:
            return sources.definition(mutation.where).file in changed
        except AnchorError:
            return True

    return [mutation for mutation in selection if is_changed(mutation)]


def try_all(mutations: Sequence[Mutation], *, jobs: int, timeout: float) -> int:
    """Prints a row for every mutation as it ends; how many were not caught."""
    width = max((len(mutation.name) for mutation in mutations), default=0)
    missed = 0
    with tempfile.TemporaryDirectory(prefix="sumus-mutate-") as folder:
        trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(min(jobs, len(mutations))):
            trees.put(copy_of_the_tree(Path(folder) / str(number)))

        def in_a_free_copy(mutation: Mutation) -> Outcome:
            tree = trees.get()
            try:
                return try_mutation(tree, mutation, timeout=timeout)
            finally:
                trees.put(tree)

        print(f"{'verdict':8}  {'seconds':>7}  {'mutation':{width}}  by", flush=True)
        with ThreadPoolExecutor(jobs) as pool:
            attempts = [pool.submit(in_a_free_copy, mutation) for mutation in mutations]
            for attempt in as_completed(attempts):
                outcome = attempt.result()
                missed += outcome.verdict != "caught"
                name = f"{outcome.mutation.name:{width}}"
                row = f"{outcome.verdict:8}  {outcome.seconds:7.1f}  {name}  {outcome.reason}"
                print(row, flush=True)
    return missed


def fault_without_mutation(mutations: Sequence[Mutation], *, timeout: float) -> str | None:
    """Why the tests of these mutations fail on the source as it is; None if they pass."""
    sources = SourceTree(ROOT)
    try:
        tests = sorted({sources.test(test) for mutation in mutations for test in mutation.tests})
    except AnchorError as error:
        return str(error)
    with tempfile.TemporaryDirectory(prefix="sumus-mutate-") as folder:
        code, line = run_tests(copy_of_the_tree(Path(folder)), tests, timeout=timeout)
    return None if code == PASSED else line


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="mutations whose name contains this (* and ? as in a shell); may be repeated",
    )
    parser.add_argument(
        "--since",
        default="",
        metavar="REV",
        help="mutations of definitions in files that differ from this revision",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="copies side by side")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds per mutation")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {options.jobs}")
    mutations = selected(catalogue(), options.only, options.since)
    if not mutations:
        print("no mutation fits --only and --since")
        return 0 if options.since else 1
    fault = fault_without_mutation(mutations, timeout=4 * options.timeout)
    if fault is not None:
        print(f"the tests fail without any mutation: {fault}")
        return 1
    missed = try_all(mutations, jobs=options.jobs, timeout=options.timeout)
    print(f"\n{len(mutations) - missed} of {len(mutations)} mutations caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
