"""Make the golden values, or check this tree against them.

    python tests/goldens/make.py --out tests/goldens/values.json   # write all of them
    python tests/goldens/make.py --check --all                     # compare all of them
    python tests/goldens/make.py --check dp-sgd 'silo*'            # compare some
    python tests/goldens/make.py --hashes                          # write plan hashes anew, no more

| file | says |
|---|---|
| `cases.py` | which plans |
| `entries.py` | which values of a plan, a run, a ledger, the protocol |
| `changes.py` | what a rebuild may change: RENAMED and four more tables |
| `surfaces.py` | how Sumus is reached: the one file to mend when modules move |
| `compare.py` | how near is near enough on another machine |

Values are never written anew to make a check pass: a difference is a mistake, or it has its line
and its reason in `changes.py`. Runs on Income need SUMUS_DATA to name the folder of its file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # sums in one order
_TREE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_TREE / "tests"), str(_TREE / "src")]  # this tree, whatever is installed

from goldens import entries, surfaces  # noqa: E402
from goldens.cases import CASES  # noqa: E402
from goldens.compare import differences  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 if a value differs."""
    parser = argparse.ArgumentParser(
        description="Golden values: write them, or check this tree against them."
    )
    parser.add_argument(
        "names", nargs="*", help="entries, as patterns; omitted: the default selection of the test"
    )
    parser.add_argument("--out", type=Path, help="write the values of this tree to this file")
    parser.add_argument("--check", action="store_true", help="compare with the stored values")
    parser.add_argument(
        "--hashes",
        action="store_true",
        help="write the plan hashes anew under today's names of keys",
    )
    parser.add_argument(
        "--all", action="store_true", help="all entries, and all data sets that are here"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        help="silos that compute at the same time; changes no value",
    )
    parser.add_argument(
        "--values", type=Path, default=entries.VALUES, help="the stored values to compare with"
    )
    chosen = parser.parse_args(arguments)
    if chosen.hashes:
        return _write_hashes(chosen.values)
    if chosen.out is None and not chosen.check:
        parser.error("say --out FILE, --check or --hashes")
    known = list(entries.all_entries())
    everything = chosen.all or (chosen.out is not None and not chosen.names)
    patterns = chosen.names or (["*"] if everything else sorted(entries.QUICK))
    names = [name for name in known if any(fnmatch(name, pattern) for pattern in patterns)]
    if not names:
        parser.error(f"no entry is called {' '.join(chosen.names)}; there are {', '.join(known)}")
    made = _made(names, threads=chosen.threads)
    if chosen.out is not None:
        _write(chosen.out, {"fingerprint": entries.fingerprint(), "entries": made})
        return 0
    return _check(made, entries.stored_values(chosen.values), complete=everything)


def _made(names: list[str], *, threads: int) -> dict[str, Any]:
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            began = time.process_time()
            made[name] = entries.make(name, Path(folder) / "entry", threads=threads)
            _say(f"{time.process_time() - began:6.1f} s  {name}{_missing(name, made[name])}")
    return made


def _missing(name: str, entry: dict[str, Any]) -> str:
    return (
        f"  (no run: the data set {entries.NEEDS[name]} is not here)"
        if name in entries.NEEDS and "run" not in entry
        else ""
    )


def _check(made: dict[str, Any], stored: dict[str, Any], *, complete: bool) -> int:
    here = entries.fingerprint()
    same = here == stored["fingerprint"]
    other = [name for name in here if here[name] != stored["fingerprint"].get(name)]
    _say(
        "same fingerprint: compared to the last bit"
        if same
        else f"other {', '.join(other)}: compared with tolerances"
    )
    wrong = [
        f"{name}: is not among the stored values" for name in made if name not in stored["entries"]
    ]
    wrong += [f"{name}: is gone" for name in stored["entries"] if complete and name not in made]
    for name in made:
        wrong += differences(name, stored["entries"].get(name, {}), made[name], same_machine=same)
    for line in wrong:
        _say(line)
    _say(f"{len(made)} entries, {len(wrong)} differences")
    return 1 if wrong else 0


def _write_hashes(path: Path) -> int:
    values = entries.stored_values(path)
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            file = entries.plan_file(case.base, Path(folder))
            values["entries"][case.name]["plan_hash"] = surfaces.own_hash(file, case.changes)
    _write(path, values)
    return 0


def _write(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    _say(f"wrote {path}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
