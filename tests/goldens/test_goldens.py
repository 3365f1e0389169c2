"""This tree computes, promises and sends what the tree did that the golden values were made from.

The default selection has every algorithm, every mechanism and every kind of entry.
`python tests/goldens/make.py --check --all` compares everything, and its docstring says how to go
on when something differs.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from goldens import compare, entries, surfaces
from goldens.cases import CASES


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    return entries.stored_values()


@pytest.fixture(scope="module")
def same_machine(stored: dict[str, Any]) -> bool:
    return bool(entries.fingerprint() == stored["fingerprint"])


@pytest.mark.parametrize("name", sorted(entries.QUICK))
def test_an_entry_is_what_it_was(
    name: str, stored: dict[str, Any], same_machine: bool, tmp_path: Path
) -> None:
    made = entries.make(name, tmp_path / "entry", big=False)
    assert compare.differences(name, stored["entries"][name], made, same_machine=same_machine) == []


@pytest.mark.bigdata
@pytest.mark.parametrize("name", sorted(entries.NEEDS))
def test_a_run_on_a_large_data_set_is_what_it_was(
    name: str, stored: dict[str, Any], same_machine: bool, tmp_path: Path
) -> None:
    if not surfaces.available(entries.NEEDS[name]):
        pytest.skip(f"the data set {entries.NEEDS[name]} is not on this machine")
    if "run" not in stored["entries"][name]:
        pytest.skip(
            f"no run is stored: {entries.NEEDS[name]} was not there when the values were made"
        )
    made = entries.make(name, tmp_path / "entry")
    assert "run" in made
    assert compare.differences(name, stored["entries"][name], made, same_machine=same_machine) == []


def test_every_entry_is_stored_and_every_stored_entry_is_made(stored: dict[str, Any]) -> None:
    assert list(stored["entries"]) == list(entries.all_entries())


def test_plan_hashes_hang_on_names_and_values_only(stored: dict[str, Any], tmp_path: Path) -> None:
    for case in CASES:
        path = entries.plan_file(case.base, tmp_path)
        assert surfaces.own_hash(path, case.changes) == stored["entries"][case.name]["plan_hash"], (
            case.name
        )


def test_selection_reaches_every_algorithm_and_every_mechanism(stored: dict[str, Any]) -> None:
    analyses, mechanisms = set(), set()
    for name in entries.QUICK & {case.name for case in CASES}:
        analyses.add(stored["entries"][name]["account"].get("analysis"))
        mechanisms.add(stored["entries"][name]["plan"]["design"].get("mechanism"))
    assert {"last-step", "split-noise", "convex-pass", "single-step"} <= analyses
    assert {"skellam", "discrete-gaussian", "gaussian", "poisson-binomial"} <= mechanisms


def test_variations_of_what_is_drawn_have_models_of_their_own(stored: dict[str, Any]) -> None:
    """Only what does not touch the model shares one: how it is summed, measured or accounted.

    And noise for a drop-out that did not happen, all of which is taken back.
    """
    alike = (
        {"plans/digits", "embedded"},
        {"dp-sgd", "dp-sgd-trusted", "dp-sgd-tuned", "dp-sgd-secure-metrics"},
        {
            "convex-pass",
            "convex-pass-public-counts",
            "convex-pass-secure-metrics",
            "convex-pass-removable-calibrated",
        },
    )
    names: dict[str, set[str]] = {}
    for name, entry in stored["entries"].items():
        if "model" in entry.get("run", {}):
            names.setdefault(entry["run"]["model"]["sha256"], set()).add(name)
    assert [shared for shared in names.values() if len(shared) > 1 and shared not in alike] == []


def test_a_changed_value_is_told(stored: dict[str, Any]) -> None:
    """The comparison finds less noise, another model, another ε and a lost round."""
    entry = stored["entries"]["dp-sgd"]

    def told(change: Any, *, same_machine: bool) -> list[str]:
        made = compare.renamed(copy.deepcopy(entry))
        change(made)
        return [
            line.partition(":")[0]
            for line in compare.differences("dp-sgd", entry, made, same_machine=same_machine)
        ]

    def less_noise(made: dict[str, Any]) -> None:
        made["account"]["noise_multiplier"] *= 1.0 - 1e-8

    def another_last_bit(made: dict[str, Any]) -> None:
        made["run"]["model"]["sha256"] = "0" * 64

    def another_model(made: dict[str, Any]) -> None:
        made["run"]["model"]["norm"] += 0.03 * entry["run"]["moved"]

    def another_epsilon_in_words(made: dict[str, Any]) -> None:
        made["text"][0] = made["text"][0].replace("ε ≤ 2", "ε ≤ 2.1")

    def a_lost_round(made: dict[str, Any]) -> None:
        del made["run"]["rounds"][1]

    for same in (True, False):
        assert told(lambda made: None, same_machine=same) == []
        assert told(less_noise, same_machine=same) == ["dp-sgd.account.noise_multiplier"]
        assert told(another_model, same_machine=same) == ["dp-sgd.run.model.norm"]
        assert told(another_epsilon_in_words, same_machine=same) == ["dp-sgd.text.0"]
        assert told(a_lost_round, same_machine=same) == ["dp-sgd.run.rounds"]
    assert told(another_last_bit, same_machine=True) == ["dp-sgd.run.model.sha256"]
    assert told(another_last_bit, same_machine=False) == []


def test_renamed_and_new_keys_of_a_plan_leave_its_old_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if `silo.*.std_factor` had been `noise_share`, and `training.task` were new."""

    class Renamed:
        def as_table(self) -> dict[str, Any]:
            return {
                "training": {"model": "mlp", "task": "classification"},
                "silo": {"a": {"std_factor": 2.0}},
            }

    class Old:
        def as_table(self) -> dict[str, Any]:
            return {"training": {"model": "mlp"}, "silo": {"a": {"noise_share": 2.0}}}

    before = surfaces.hash_under_old_names(Old())
    monkeypatch.setitem(surfaces.RENAMED, "noise_share", "std_factor")
    monkeypatch.setitem(surfaces.ADDED, "training.task", "classification")
    assert surfaces.hash_under_old_names(Renamed()) == before
    assert surfaces.sets(["silo.a.noise_share=2"]) == ["--set", "silo.a.std_factor=2"]
