"""A run whose rounds differ in rates and noise: what is drawn, resumed, journalled and entered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from sumus.books import Ledger, RunFolder
from sumus.guarantee import NoiseDesign
from sumus.guarantee.accounts import spent
from sumus.plan import ResolvedPlan, TrainingPlan
from sumus.runs import RunOptions, train
from support.small_data import small_data

RATIOS = [2.0, 1.0, 0.5]
PLAN = f"""
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
silos = 5
rounds = 3
local_steps = 100
colluding = 0
[training]
features = "centred"
rate_schedule = "cosine"
server_rate_schedule = "linear"
[noise]
schedule = {RATIOS}
[data]
name = "digits"
"""


class StopError(Exception):
    """Ends a run in the middle."""


def options(**changes: Any) -> RunOptions:
    return RunOptions(**({"root": Path("runs"), "threads": 1} | changes))


def stop_after(number: int) -> Any:
    def stop(design: object, record: Any) -> None:
        if record.round == number:
            raise StopError

    return stop


def test_it_is_resumed_in_the_middle_and_charged_round_by_round(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sumus.runs.secret.fresh_secret", lambda: b"\7" * 32)
    monkeypatch.chdir(tmp_path)
    plan = TrainingPlan.from_toml(PLAN)
    whole = train(plan, options=options(root=Path("whole")))
    with pytest.raises(StopError):
        train(plan, options=options(), progress=stop_after(1))
    (path,) = Path("runs").iterdir()
    resumed = train(options=options(resume=path))
    assert torch.equal(next(resumed.module.parameters()), next(whole.module.parameters()))
    run = RunFolder.open(path)
    design = NoiseDesign.of(ResolvedPlan.of(run.plan, run.silos))
    wanted = [spent(design, range(made)) for made in (1, 2, 3)]
    assert [entry.epsilon_spent for entry in run.rounds()] == wanted
    entered = [entry for entry in Ledger.of_dataset("digits").entries() if entry.run == path.name]
    assert [entry.epsilon for entry in entered] == wanted
    assert wanted[-1] == pytest.approx(2.0, rel=1e-3)
    expected = [entry.noise_norm_expected for entry in run.rounds()]
    rates = [1.0, 0.75, 0.25]  # ½(1 + cos(πt/3))
    assert expected == pytest.approx(
        [expected[0] * ratio / 2.0 * rate for ratio, rate in zip(RATIOS, rates, strict=True)]
    )


@pytest.mark.parametrize("gone", [{}, {"masked": frozenset({1, 4})}], ids=["nobody", "two"])
def test_noise_for_drop_outs_is_taken_back_at_the_round_s_own_size(federation, gone) -> None:
    """Every round keeps exactly (ρ_t·σ·r)², in a chi-square interval of false-alarm rate 1e-9."""
    run = federation(
        {
            "training.algorithm": "single-step",
            "federation.local_steps": 1,
            "training.sampling_rate": 1e-9,  # no records: the sum is noise
            "federation.dropouts": 2,
            "federation.rounds": 9,
            "noise.removable": True,
            "privacy.epsilon": "none",
            "noise.noise_multiplier": 3.0,
            "noise.schedule": RATIOS * 3,
        },
        data=small_data(silos=6),
    )
    run.vanishing = dict.fromkeys(range(9), gone)
    squares = np.stack([np.square(each.summed.total_grid / 65536.0) for each in run.rounds()])
    for place, ratio in enumerate(RATIOS):
        of_ratio = squares[place::3]
        low, high = chi2.ppf([5e-10, 1 - 5e-10], of_ratio.size) / of_ratio.size
        assert low < float(of_ratio.mean()) / (3.0 * ratio) ** 2 < high
