"""Runs spin on the model of a silo (tests/model/silo.pml), and reads its steps."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).parents[1] / "model" / "silo.pml"
NEEDED = ("spin", "gcc")
# small enough for every run of the tests, and what `make verify` adds
SMALL = ("SETS=1",)
SMALL_WITH_BACKUPS = ("SETS=1", "IDS=1", "BACKUPS")
LARGE = (
    ("SUMS=2", "IDS=2", "SETS=2"),
    ("SUMS=3", "IDS=2", "SETS=1"),
    ("SUMS=2", "IDS=2", "SETS=1", "BACKUPS"),
    ("SUMS=3", "IDS=1", "SETS=2", "BACKUPS"),
)

FAULTS = {
    "NO_GUARD": "signed_set",
    "NO_ROUND_IN_FLIGHT": "answered[",
    "LEDGER_LATE": "ledger[",
    "ROOTS_STAY": "ring_root[",
    "PRIVATE_HALVES_STAY": "ring_pending",
    "REDRAW": "answered_id[",
    "EPOCH_FORGETS": "answered[",
    "RESTORE_ANSWERS_AGAIN": "answered[",
    "RESTORE_FORGETS": "ledger[",
    "RESTORE_COUNTS_FROM_RING": "ledger[",
    "RESTORE_KEEPS_ROOTS": "ring_root[",
    "RESTORE_NOTHING": "restored",
    "NOTHING": "has_crashed",
}
"""A step that is left out → what the violated assertion speaks of. NOTHING leaves out no step: it
asserts that no sum is ever finished after a crash, which must be false; so does RESTORE_NOTHING of
a restore.
"""


@dataclass(frozen=True)
class Verdict:
    """What the checker says of one form of the model.

    Args:
        states: visited.
        violated: the assertion that fails somewhere; None: all hold everywhere.
    """

    states: int
    violated: str | None


def seeded(fault: str) -> tuple[str, ...]:
    """The macros that put a fault into the model."""
    return f"FAULT_{fault}", *(("BACKUPS", "IDS=1") if fault.startswith("RESTORE") else ())


def missing() -> str | None:
    """What has to be installed before anything can be checked, in one line."""
    absent = [name for name in NEEDED if shutil.which(name) is None]
    if not absent:
        return None
    return f"{' and '.join(absent)} missing. Run: apt-get install -y {' '.join(NEEDED)}"


def check(*defines: str, shortest: bool = False) -> Verdict:
    """Search all states of the model with these macros; breadth first for a shortest violation."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run(folder, "spin", *(f"-D{define}" for define in defines), "-a", str(MODEL))
        how = ("-DBFS",) if shortest else ("-DCOLLAPSE",)
        _run(folder, "gcc", "-w", "-O1", "-DSAFETY", "-DNOFAIR", *how, "-o", "pan", "pan.c")
        said = _run(folder, str(folder / "pan"), "-m1000000")
    violated = re.search(r"assertion violated (.*) \(at depth", said)
    errors = re.search(r"errors: (\d+)", said)
    states = re.search(r"(\S+) states, stored", said)
    if errors is None or states is None or (errors[1] != "0") != (violated is not None):
        raise RuntimeError(f"the checker did not finish:\n{said}")
    if violated is None and ("not completed" in said or "depth too small" in said):
        raise RuntimeError(f"the search is not complete:\n{said}")
    return Verdict(int(float(states[1])), violated and violated[1].strip())


def _run(folder: Path, *command: str) -> str:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def steps(part: str) -> list[str]:
    """The durable writes of one part of the model, in order, as it is without a fault."""
    text = MODEL.read_text(encoding="utf-8")
    text = text.split(f"/* {part}: begin */")[1].split(f"/* {part}: end */")[0]
    # faults are compiled in by #ifdef and right steps by #ifndef or #else
    text = re.sub(r"#ifdef FAULT_.*?(#else|#endif)", "", text, flags=re.DOTALL)
    return re.findall(r"DURABLE\((\w+),", text)
