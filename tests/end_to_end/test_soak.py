"""What `make soak` does to processes: the clock that jumps."""

# ruff: noqa: E402

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))  # scripts, no package

from soaking.federation import compiled_clock
from support.notes import IN_TEST_NETWORK

pytestmark = IN_TEST_NETWORK


def test_the_wall_clock_of_a_soaked_process_jumps_and_its_monotonic_clock_does_not(
    tmp_path: Path,
) -> None:
    library, offset = compiled_clock(tmp_path), tmp_path / "offset"
    if library is None:
        pytest.skip("no C compiler here")
    script = (
        "import pathlib, sys, time\n"
        "wall, steady = time.time(), time.monotonic()\n"
        "pathlib.Path(sys.argv[1]).write_text('7200')\n"
        "time.sleep(0.5)\n"
        "print(time.time() - wall, time.monotonic() - steady)\n"
    )
    offset.write_text("0")
    done = subprocess.run(
        [sys.executable, "-c", script, str(offset)],
        env=os.environ | {"LD_PRELOAD": str(library), "SOAK_CLOCK": str(offset)},
        capture_output=True,
        text=True,
        check=True,
    )
    wall, steady = map(float, done.stdout.split())
    assert 0.5 <= steady < 3600.0
    assert wall - steady == pytest.approx(7200.0, abs=0.1)
