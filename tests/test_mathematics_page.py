"""docs/mathematics.md: its numbers are what the code computes, its displays can be cited, its
sections are where it says.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from sumus.accounting import Queries, Release, least_noise
from sumus.guarantee import release_of
from sumus.guarantee.claims import Setting

PAGE = (Path(__file__).parents[1] / "docs" / "mathematics.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| (\d+) \| ([\d.]+) " + r"\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) % " * 2 + r"\|$", re.MULTILINE
)
SAVED = {2: 17.0, 4: 8.8, 11: 3.0}  # per cent of split noise, at least


def _noise_of(name: str, *, steps: int, rate: float) -> float:
    def release(sigma: float) -> Release:
        if name == "every step with σ_eff":
            # σ_eff/σ = √((1+κ)/(k+κ))
            return Release((Queries(sigma * math.sqrt(3.0 / 12.0), rate, 20 * steps),))
        setting = Setting(
            algorithm="split-noise",
            mechanism="gaussian",
            rounds=20,
            local_steps=steps,
            sampling_rate=rate,
            noise_multiplier=sigma,
            contributors=10,
            resolution=1,
            l2_grid=1.0,
            dimension=1,
            state_noise=2.0,
        )
        return release_of(name, setting)

    return least_noise(release, epsilon=1.0, delta=1e-5)


@pytest.mark.deep
def test_the_table_of_the_last_step_is_what_the_code_computes() -> None:
    """S = 2, 4, 11 at k = 10: the noise of every step by itself against that of theorem 7."""
    rows = [tuple(map(float, cells)) for cells in ROW.findall(PAGE)]
    assert [row[:2] for row in rows] == [
        (steps, rate) for rate in (0.1, 1.0) for steps in (2, 4, 11)
    ]
    for steps, rate, *printed in rows:
        names = ("every step with σ_eff", "split-noise", "local", "last-step")
        before, split, local, last = (
            _noise_of(name, steps=int(steps), rate=rate) for name in names
        )
        assert [printed[0], printed[1], printed[3], printed[4]] == pytest.approx(
            [before, split, local, last], rel=5e-4
        )
        assert printed[2] == pytest.approx(100.0 * (1.0 - split / before), abs=0.1)
        assert printed[5] == pytest.approx(100.0 * (1.0 - last / local), abs=0.1)
        assert printed[2] >= SAVED[int(steps)]


def test_every_display_has_a_number_of_its_section() -> None:
    section, expected, blank = 0, 0, True
    lines = PAGE.split("\n")
    for position, line in enumerate(lines):
        if heading := re.match(r"## (\d+)\.", line):
            section, expected = int(heading[1]), 1
        if re.match(r" {4,6}\S", line) and blank:
            end = next(
                each
                for each in range(position, len(lines))
                if not lines[each + 1].startswith("    ")
            )
            assert lines[end].endswith(f"({section}.{expected})"), lines[end]
            expected += 1
        blank = not line.strip()


def test_the_table_of_contents_names_every_section() -> None:
    listed = re.findall(r"^\d+\. \[(.+)\]\(#", PAGE, re.MULTILINE)
    assert listed == re.findall(r"^## \d+\. (.+)$", PAGE, re.MULTILINE)
