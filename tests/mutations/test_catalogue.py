"""The catalogue of mutations fits the source: every text to replace is there exactly once, every
named test exists.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MUTATIONS = tomllib.loads((Path(__file__).parent / "mutations.toml").read_text(encoding="utf-8"))[
    "mutation"
]


def test_there_are_enough_of_them_with_names_of_their_own() -> None:
    assert len(MUTATIONS) >= 12
    assert len({each["name"] for each in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[each["name"] for each in MUTATIONS])
def test_a_mutation_applies(mutation: dict[str, str]) -> None:
    source = (ROOT / mutation["file"]).read_text(encoding="utf-8")
    assert source.count(mutation["old"]) == 1, (
        f"{mutation['file']} changed: adapt tests/mutations/mutations.toml"
    )
    compile(source.replace(mutation["old"], mutation["new"]), mutation["file"], "exec")
    assert all((ROOT / test.split("::")[0]).is_file() for test in mutation["tests"])
