"""The example with five hospitals, to its end: over loopback, and with every hospital in a network
namespace of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from sumus.books import RunFolder
from support.notes import IN_TEST_NETWORK

pytestmark = IN_TEST_NETWORK
EXAMPLE = Path(__file__).parents[2] / "examples" / "consortium" / "consortium.py"
VICTIM = "Leuven"


@pytest.mark.parametrize("network", [[], ["--namespaces"]], ids=["loopback", "namespaces"])
def test_five_hospitals_end_with_a_model_a_report_and_five_ledgers_though_one_was_killed(
    tmp_path: Path, network: list[str]
) -> None:
    out = tmp_path / "consortium-run"
    command = [sys.executable, str(EXAMPLE), "--out", str(out), *network]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=800).stdout
    if shown.splitlines()[-1].startswith("skipped:"):
        pytest.skip(shown.splitlines()[-1])
    assert f"killed {VICTIM}" in shown
    (path,) = (out / "runs").iterdir()
    run = RunFolder.open(path)
    run.verify()
    assert run.void is None
    assert (run.summary or {})["rounds"] == 12
    assert run.rounds()[0].dropped == ()
    assert run.rounds()[-1].dropped == (VICTIM,)
    assert (path / "model.pt").is_file()
    assert (path / "report.html").is_file()
    releases = {
        name: int(count)
        for name, count in re.findall(r"ledger  .*/organisations/(\w+)/.*  (\d+) releases", shown)
    }
    assert len(releases) == 5
    # a model a round, and the metrics of the last
    assert {count for name, count in releases.items() if name != VICTIM} == {13}
    assert 3 <= releases[VICTIM] < 13  # until it was killed
