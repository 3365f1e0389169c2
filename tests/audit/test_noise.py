"""The samplers' self-test: silent on ours, loud on samplers that are wrong in one way each.

A correct machine fails once in 10⁷ runs; a planted error is missed with probability below 1e-10.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable

import numpy as np
import pytest

from sumus.audit import audit_noise, usual_laws
from sumus.audit.noise import FALSE_ALARM, check_law
from sumus.noise import Skellam, noise_law
from sumus.randomness import RandomSource

DRAWS = 200_000
Sampler = Callable[[Skellam, int | tuple[int, ...], RandomSource], np.ndarray]


def test_every_law_passes_on_this_machine() -> None:
    # secret as far as the audit can see, and the same in every run
    keys = (hashlib.sha256(b"laws %d" % number).digest() for number in itertools.count())
    audit = audit_noise(
        usual_laws(),
        accounted=(noise_law("skellam", 100.0), 4, 400.0),
        draws=DRAWS,
        new_source=lambda: RandomSource.from_key(next(keys)),
    )
    assert audit.passed, [check for check in audit.checks if not check.passed]
    assert audit.false_alarm_rate == pytest.approx(len(audit.checks) * FALSE_ALARM)


def _failing(monkeypatch: pytest.MonkeyPatch, sampler: Sampler, variance: float = 1e6) -> set[str]:
    monkeypatch.setattr(Skellam, "sample", sampler)
    return {
        check.check
        for check in check_law("law", Skellam(variance), DRAWS, RandomSource)
        if not check.passed
    }


def _real(law: Skellam, size: int | tuple[int, ...], source: RandomSource) -> np.ndarray:
    return super(Skellam, law).sample(size, source)


def test_finds_less_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "variance" in _failing(
        monkeypatch,
        lambda law, size, source: np.rint(0.98 * _real(law, size, source)).astype(np.int64),
    )


def test_finds_zero_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _failing(monkeypatch, lambda law, size, source: np.zeros(size, dtype=np.int64))
    assert {"variance", "cells"} <= found


def test_finds_a_shift(monkeypatch: pytest.MonkeyPatch) -> None:
    # 18 standard errors of the mean, where 6.1 are noticed
    assert "mean" in _failing(monkeypatch, lambda law, size, source: _real(law, size, source) + 40)


def test_finds_a_uniform_law_of_the_same_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    def uniform(law: Skellam, size: int | tuple[int, ...], source: RandomSource) -> np.ndarray:
        reach = round((12.0 * law.variance_grid) ** 0.5)
        return source.below(reach, int(np.prod(size))).reshape(size) - reach // 2

    assert {"cells", "tail"} <= _failing(monkeypatch, uniform)


def test_finds_cut_off_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(law: Skellam, size: int | tuple[int, ...], source: RandomSource) -> np.ndarray:
        limit = round(3.0 * law.variance_grid**0.5)
        return np.clip(_real(law, size, source), -limit, limit)

    assert "tail" in _failing(monkeypatch, cut)


def test_finds_even_numbers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _failing(
        monkeypatch, lambda law, size, source: _real(law, size, source) // 2 * 2, variance=9.0
    )
    assert "cells" in found


def test_finds_neighbours_that_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    def pairs(law: Skellam, size: int | tuple[int, ...], source: RandomSource) -> np.ndarray:
        drawn = _real(law, size, source)
        return np.repeat(drawn[::2], 2)[: len(drawn)]

    assert "neighbours" in _failing(monkeypatch, pairs)


def test_finds_silos_that_share_their_bits() -> None:
    audit = audit_noise(
        {"law": Skellam(1e6)}, draws=DRAWS, new_source=lambda: RandomSource.simulation(1)
    )
    assert {"silos", "fresh", "secret"} <= {
        check.check for check in audit.checks if not check.passed
    }


def test_finds_rounds_that_share_their_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    # by the source itself: the id of one that is gone may come back
    kept: dict[RandomSource, np.ndarray] = {}

    def remembered(law: Skellam, size: int | tuple[int, ...], source: RandomSource) -> np.ndarray:
        return kept.setdefault(source, _real(law, size, source))

    assert "rounds" in _failing(monkeypatch, remembered)


def test_finds_a_sum_that_lacks_a_silo() -> None:
    share = noise_law("skellam", 100.0)
    audit = audit_noise({}, accounted=(share, 4, 500.0), draws=400_000)
    assert [check.check for check in audit.checks if not check.passed] == ["sum"]
