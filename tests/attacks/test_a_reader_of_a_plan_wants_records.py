"""Whoever reads a drafted plan wants to know what the records hold: the plan is the same for all
records of one kind and order of magnitude.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sumus.cli import main


def table(seed: int, rows: int, wards: tuple[str, ...], lowest: int, share: float) -> str:
    rng = random.Random(seed)
    lines = [
        f"{rng.choice('ABC')},{rng.uniform(lowest, 4 * lowest):.2f},{rng.choice(wards)},"
        f"{rng.randrange(lowest)},{'yes' if rng.random() < share else 'no'}"
        for _ in range(rows)
    ]
    return "\n".join(["site,lab,ward,visits,y", *lines, ""])


FIRST = table(1, 640, ("north", "south"), 40, 0.5)
OTHER = table(2, 900, ("oncology", "psychiatry", "palliative"), 700, 0.06)


def drafted(content: str, *options: str) -> str:
    Path("t.csv").write_text(content)
    assert main(["new", "t.csv", "--silo", "site", "--label", "y", "--force", *options]) == 0
    return Path("plan.toml").read_text()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_other_values_counts_and_shares_give_the_same_plan() -> None:
    assert drafted(FIRST) == drafted(OTHER)


def test_no_value_of_the_table_stands_in_the_plan_or_in_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("oncology", "psychiatry", "palliative", "900", "54")
    text = drafted(OTHER)
    assert not [word for word in words if word in text]
    capsys.readouterr()
    drafted(OTHER, "--json")
    told = capsys.readouterr().out
    assert not [word for word in words[:3] if word in told]


def test_control_a_list_that_is_asked_for_tells() -> None:
    text = drafted(OTHER, "--list", "ward")
    assert 'ward = ["oncology", "palliative", "psychiatry"]' in text
    assert "declared to be public: ward" in " ".join(text.replace("#", "").split())


def test_a_value_that_few_people_have_is_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    rare = OTHER + "A,800,leprosy,3,no\n" * 4
    Path("t.csv").write_text(rare)
    assert main(["new", "t.csv", "--silo", "site", "--label", "y", "--list", "ward"]) == 2
    err = capsys.readouterr().err
    assert "at least 5 records" in err
    assert "leprosy" not in err
    assert not Path("plan.toml").exists()
