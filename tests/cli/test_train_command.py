"""What `sumus train` says: never an ε that does not hold, and after an interruption how to go
on.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sumus.books import Ledger, RunFolder, rounded_up
from sumus.cli import main
from support.loggers import logged, loggers as loggers

PLAN = Path(__file__).parent.parent.parent / "plans" / "digits.toml"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))


def trained(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    code = main(
        [
            "train",
            str(PLAN),
            "--set",
            "federation.rounds=2",
            "--threads",
            "1",
            "--no-report",
            *options,
        ]
    )
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def rounds_and_table(text: str) -> str:
    """All that is said once the first round is done."""
    return text[text.index("round   1") :]


@pytest.mark.usefixtures("loggers")
def test_a_private_run_shows_how_much_of_its_bound_each_round_spends(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = ("--log", str(tmp_path / "train.log"))
    code, out, _ = trained(
        capsys, "--set", "privacy.epsilon=none", "--set", "noise.noise_multiplier=9", *log
    )
    assert code == 0
    first, *rounds, last = logged(tmp_path / "train.log")
    assert (first["event"], last["event"]) == ("training.started", "training.ended")
    assert {line["event"] for line in rounds} == {"round.committed"}
    assert len(rounds) == first["rounds"] == last["rounds"]
    bound = re.search(r"^ε ≤ ([0-9.]+) at", out)
    assert bound is not None
    assert f"of {bound[1]}" in rounds_and_table(out)
    assert re.search(rf"all silos, private +[0-9.]+% +ε ≤ {bound[1]}, δ = 0.0001, proved", out)
    assert "nan" not in out


@pytest.mark.deep
@pytest.mark.parametrize(
    ("options", "row"),
    [
        (("--seed", "1"), "all silos, simulated .* VOID: the noise comes from a public seed"),
        (
            ("--set", "training.algorithm=fedavg", "--set", "training.batch_size=30"),
            "all silos, no privacy .* none",
        ),
    ],
)
def test_a_run_without_a_guarantee_shows_no_epsilon(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], row: str
) -> None:
    code, out, _ = trained(capsys, *options)
    assert code == 0
    assert re.search(row, out)
    assert "ε" not in rounds_and_table(out)
    code, out, _ = trained(capsys, *options, "--json")
    found = json.loads(out.splitlines()[-1])
    assert (found["epsilon"], found["proved"]) == (None, False)


def test_metrics_that_are_not_wanted_are_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = trained(capsys, "--set", "evaluation.metrics=none")
    assert "accuracy " not in rounds_and_table(out).partition("training")[0]
    assert "not measured" in out


def test_a_plan_with_secure_metrics_trains_and_tells_how_far_off_its_accuracy_may_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = trained(
        capsys, "--set", "evaluation.metrics=secure", "--set", "privacy.epsilon=1", "--json"
    )
    assert code == 0, err
    found = json.loads(out.splitlines()[-1])
    assert found["metrics_are"] == "secure"
    assert 0.0 < found["accuracy_plus_minus"] < 0.1, "useful at ε = 1 with 360 test records"
    assert 0.0 < found["loss_plus_minus"] < 1.0
    code, out, _ = trained(
        capsys, "--set", "evaluation.metrics=secure", "--set", "privacy.epsilon=1"
    )
    assert re.search(r"all silos, private +[0-9.]+% ± [0-9.]+% +ε ≤", out)
    assert "± holds with 95 % for the released model" in out
    assert "accuracy" not in next(
        line for line in out.splitlines() if line.startswith("round   1")
    ), "only the last model is measured"


@pytest.mark.deep
def test_the_total_of_the_data_set_stands_below_every_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for runs in (1, 2):
        code, out, _ = trained(capsys, "--set", "evaluation.metrics=secure")
        assert code == 0
        total = Ledger.of_dataset("digits").total("record")
        assert total.runs == runs
        many = "1 run" if runs == 1 else "2 runs"
        assert (
            f"ledger  digits: ε ≤ {rounded_up(total.epsilon)} at δ = {total.delta:.3g} for one "
            f"record, {many} by simple addition" in out
        )
    code, out, _ = trained(capsys, "--json")
    told = json.loads(out.splitlines()[-1])["ledger"]
    assert told["epsilon"] == Ledger.of_dataset("digits").total("record").epsilon > total.epsilon
    _, out, _ = trained(capsys, "--no-ledger")
    assert "ledger" not in out
    _, out, _ = trained(
        capsys, "--set", "training.algorithm=fedavg", "--set", "training.batch_size=30"
    )
    assert "ledger  digits: no bound for one record after 4 runs" in out


def test_who_interrupts_a_run_is_told_how_it_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = RunFolder.commit

    def interrupted(self: RunFolder, *arguments: Any) -> None:
        commit(self, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, "commit", interrupted)
    code, _, err = trained(capsys)
    assert code == 130
    told = re.fullmatch(r"\s*stopped after round 1; go on with: sumus (train --resume \S+)\s*", err)
    assert told is not None
    monkeypatch.setattr(RunFolder, "commit", commit)
    assert main([*told[1].split(), "--no-report"]) == 0


@pytest.mark.usefixtures("loggers")
def test_bad_places_and_numbers_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("")
    code, _, err = trained(capsys, "--out", "taken", "--log", str(tmp_path / "train.log"))
    (failed,) = logged(tmp_path / "train.log")
    assert (failed["event"], failed["cause"]) == ("process.failed", "StorageError")
    assert code == 5
    assert (
        err.strip()
        == "error: taken must be a directory, but a file has that name. Move it away, or choose another folder."
    )
    code, _, err = trained(capsys, "--threads", "-1")
    assert code == 2
    assert "is not in the range x>=0" in err
