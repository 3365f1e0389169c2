"""Measurements on the disk: whole or not at all, found again only for their own plan; means and
errors as in a textbook.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from sumus.errors import StorageError
from sumus.paper.experiments.results import Measurement, Store, mean_and_sem, summarise
from sumus.paper.experiments.tables import experiment_table, percent


def made(
    seed: int = 0, *, accuracies: tuple[float, ...] = (0.5, 0.7), **changes: object
) -> Measurement:
    base = Measurement(
        experiment="fashion-mnist",
        setting="convex-pass-2-rounds",
        label="convex pass",
        group="proved",
        seed=seed,
        rounds=2,
        plan_hash="ab" * 32,
        plan={"privacy": {"epsilon": 1.0}, "federation": {"silos": 10}},
        accuracies=accuracies,
        losses=tuple(1.0 - each for each in accuracies),
        silo_accuracies=(0.4, 0.9),
        bytes_up_per_silo=1e6,
        protocol="secagg",
        prepare_seconds=1.0,
        train_seconds=2.0,
        epsilon=0.9999,
        delta=1e-5,
        analysis="convex-pass",
        accountant="pld",
        noise_multiplier=16.7,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_a_measurement_comes_back_as_it_was(tmp_path: Path) -> None:
    store, one = Store(tmp_path), made()
    store.write(one)
    assert store.find("fashion-mnist", one.setting, 0, plan_hash=one.plan_hash) == one
    assert store.all("fashion-mnist") == [one]


def test_another_plan_or_seed_is_measured_again(tmp_path: Path) -> None:
    store, one = Store(tmp_path), made()
    store.write(one)
    assert store.find("fashion-mnist", one.setting, 0, plan_hash="cd" * 32) is None
    assert store.find("fashion-mnist", one.setting, 1, plan_hash=one.plan_hash) is None


def test_a_cut_off_file_is_refused_with_a_line_that_says_what_to_do(tmp_path: Path) -> None:
    store, one = Store(tmp_path), made()
    path = store.write(one)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StorageError, match="Delete it to measure again"):
        store.find("fashion-mnist", one.setting, 0, plan_hash=one.plan_hash)


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=8))
def test_mean_and_sem_against_the_statistics_module(values: list[float]) -> None:
    mean, sem = mean_and_sem(values)
    assert mean == pytest.approx(statistics.fmean(values), abs=1e-12)
    assert sem == pytest.approx(statistics.stdev(values) / math.sqrt(len(values)), abs=1e-12)


def test_one_seed_has_no_error() -> None:
    assert math.isnan(mean_and_sem([0.5])[1])
    assert percent(0.5, math.nan) == "50.00 %"
    assert percent(0.875, 0.0125) == "87.50 ± 1.25 %"


def test_summary_takes_the_final_and_the_best_round_of_each_seed() -> None:
    (found,) = summarise([made(0, accuracies=(0.5, 0.9, 0.7)), made(1, accuracies=(0.8, 0.6, 0.5))])
    assert found.seeds == 2
    assert found.accuracy == pytest.approx(0.6)
    assert found.best_accuracy == pytest.approx(0.85)
    assert found.accuracies == pytest.approx((0.65, 0.75, 0.6))


def test_no_epsilon_without_analysis_and_whether_it_is_proved() -> None:
    proved = experiment_table(summarise([made()]))
    assert "1 proved (convex-pass)" in proved
    claimed = experiment_table(
        summarise([made(claimed_epsilon=1.0, epsilon=7.123, analysis="local")])
    )
    assert "1 claimed, not proved for S > 1; proved 7.13 (local)" in claimed
    ends = experiment_table(summarise([made(epsilon_smallest_silo=0.5, epsilon_largest_silo=0.25)]))
    assert "smallest silo 0.5, largest 0.25" in ends
    assert "| none |" in experiment_table(summarise([made(epsilon=None, analysis=None)]))


def test_a_printed_epsilon_is_never_rounded_down() -> None:
    assert "1.01 proved" in experiment_table(summarise([made(epsilon=1.0001)]))
