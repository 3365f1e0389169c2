"""The model of guard, crash and ratchet holds, and finds what each of its steps is for."""

from __future__ import annotations

import pytest

from oracles.model_checker import FAULTS, SMALL, SMALL_WITH_BACKUPS, check, missing, seeded

needs_spin = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@needs_spin
def test_one_answer_one_set_one_entry_whatever_crashes() -> None:
    verdict = check(*SMALL)
    assert verdict.violated is None
    assert verdict.states > 100_000


@needs_spin
def test_one_answer_and_its_entry_whatever_is_lost_and_restored() -> None:
    verdict = check(*SMALL_WITH_BACKUPS)
    assert verdict.violated is None
    assert verdict.states > 50_000


@needs_spin
@pytest.mark.parametrize("fault", ["NO_GUARD", "RESTORE_COUNTS_FROM_RING", "NOTHING"])
def test_a_step_that_is_left_out_is_missed(fault: str) -> None:
    """The control: the same checker finds what a missing or late write costs; `make verify` seeds
    the faults that need a larger model.
    """
    verdict = check(*dict.fromkeys([*seeded(fault), *SMALL, "IDS=1"]), shortest=True)
    assert verdict.violated is not None
    assert FAULTS[fault] in verdict.violated
