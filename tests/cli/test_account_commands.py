"""`sumus plan`, `sumus account`, `sumus average`: what scripts read, what people read, and how they
fail.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sumus
from sumus.cli import COMMANDS, main
from sumus.files import encode_arrays

PLAN = """
[privacy]
epsilon = 1.0
delta = 1e-4
[federation]
silos = 5
rounds = 4
local_steps = 144
[training]
algorithm = "convex-pass"
learning_rate = 0.8
[data]
name = "digits"
"""


@pytest.fixture
def plan_file(tmp_path: Path) -> str:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return str(path)


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(arguments) == 0
    captured = capsys.readouterr()
    last = captured.out.strip().splitlines()[-1]
    assert "NaN" not in last
    assert "Infinity" not in last
    found: dict[str, Any] = json.loads(last)
    return found


def _fails(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> str:
    assert main(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert "Traceback" not in captured.err
    return lines[0]


# -- account


def test_account_of_a_plan(capsys: pytest.CaptureFixture[str], plan_file: str) -> None:
    found = _json(capsys, "account", plan_file, "--json")
    made = sumus.account(sumus.TrainingPlan.load(plan_file))
    for field in ("epsilon", "delta", "proved", "analysis", "accountant", "noise_multiplier"):
        assert found[field] == getattr(made, field)
    assert [each["name"] for each in found["analyses"]] == [each.name for each in made.analyses]


def test_a_key_without_effect_is_named_beside_the_answer(
    capsys: pytest.CaptureFixture[str], plan_file: str
) -> None:
    assert main(["account", plan_file, "--set", "training.state_noise=4", "--json"]) == 0
    captured = capsys.readouterr()
    assert (
        captured.err
        == 'note: training.state_noise = 4.0 has no effect: it is for training.algorithm = "split-noise"\n'
    )
    assert json.loads(captured.out.splitlines()[-1])["epsilon"] <= 1.0


def test_account_says_what_it_counts_on(capsys: pytest.CaptureFixture[str], plan_file: str) -> None:
    assert main(["account", plan_file, "--set", "federation.colluding=1"]) == 0
    shown = capsys.readouterr().out
    for part in (
        "ε ≤ ",
        " at δ = 0.0001",
        "proved (convex-pass)",
        "add or remove",
        "4 of 5 silos present and honest",
        "for comparison",
    ):
        assert part in shown


def test_account_of_a_run_counts_the_rounds_that_ran(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, plan_file: str
) -> None:
    from sumus.books import RoundEntry, RunFolder
    from sumus.guarantee import account_of, calibrated

    built = calibrated(sumus.TrainingPlan.load(plan_file))
    whole = account_of(built)
    names = tuple(silo.name for silo in built.silos)
    with RunFolder.create(built.plan, whole, tmp_path, silos=names) as run:
        folder = str(run.path)
        assert "completed no round" in _fails(capsys, 3, "account", folder)
        for number in (1, 2):
            run.append(
                RoundEntry(
                    round=number, round_id=f"r{number}", epsilon_spent=0.1 * number, delta=1e-4
                )
            )
    found = _json(capsys, "account", folder, "--json")
    assert found["rounds_completed"] == found["rounds_accounted"] == 2
    assert found["noise_multiplier"] == whole.noise_multiplier
    assert found["epsilon"] == pytest.approx(
        sumus.epsilon(noise_multiplier=whole.noise_multiplier, steps=2, delta=1e-4), rel=2e-2
    )
    assert found["epsilon"] < 0.75 * whole.epsilon
    assert main(["account", folder]) == 0
    assert "2 completed" in capsys.readouterr().out
    # nobody drew that noise
    for untrue in (
        "noise.noise_multiplier=100",
        "federation.colluding=2",
        "training.clip_norm=0.1",
    ):
        assert "--set must name privacy.delta or privacy.accountant for a run" in _fails(
            capsys, 2, "account", folder, "--set", untrue
        )
    assert (
        _json(capsys, "account", folder, "--json", "--set", "privacy.delta=1e-6")["epsilon"]
        > found["epsilon"]
    )
    with RunFolder.open(folder, resume=True) as run:
        run.note("invited", {"round": 3, "silos": list(names)})
        run.note("aborted", {"round": 3, "reason": "the server says that it saw no sum"})
    lost = _json(capsys, "account", folder, "--json")
    assert (lost["rounds_completed"], lost["rounds_accounted"]) == (2, 3)
    assert lost["epsilon"] > 1.1 * found["epsilon"]


def test_account_shows_what_metrics_cost_test_records(
    capsys: pytest.CaptureFixture[str], plan_file: str
) -> None:
    secure = ("--set", "evaluation.metrics=secure", "--set", "evaluation.noise_multiplier=9")
    found = _json(capsys, "account", plan_file, "--json", *secure)
    assert 0.0 < found["metrics_epsilon"] < found["epsilon"]
    assert main(["account", plan_file, *secure]) == 0
    assert "for one test record, add or remove" in capsys.readouterr().out


def test_account_of_a_folder_that_is_no_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "not a run folder" in _fails(capsys, 5, "account", str(tmp_path))


# -- plan


@pytest.mark.deep
def test_plan_turns_a_target_into_numbers(
    capsys: pytest.CaptureFixture[str], plan_file: str, tmp_path: Path
) -> None:
    out = tmp_path / "calibrated.toml"
    found = _json(capsys, "plan", plan_file, "--json", "--write", str(out))
    assert found["account"]["epsilon"] <= 1.0
    facts = found["design"]
    assert facts["bits_per_silo_and_round"] == 32 * 650
    # one of five may know its own
    assert facts["local_noise_multiplier"] == pytest.approx(
        facts["noise_multiplier"] / math.sqrt(4)
    )
    assert facts["saturation_clip_norms"] > 4.0
    costs = {each["analysis"]: each for each in found["algorithms"]}
    assert set(costs) == {
        "single-step",
        "last-step",
        "local",
        "split-noise",
        "convex-pass",
        "per-step",
    }
    assert not costs["per-step"]["proved"]
    assert (
        costs["convex-pass"]["average_noise"]
        < costs["split-noise"]["average_noise"]
        < costs["local"]["average_noise"]
    )
    written = sumus.TrainingPlan.load(out)
    assert written.noise.noise_multiplier == facts["noise_multiplier"]
    again = sumus.account(written)
    assert again.epsilon == found["account"]["epsilon"]
    assert again.plan_hash == facts["plan_hash"]


def test_plan_reproduces_the_comparison_of_the_theory(capsys: pytest.CaptureFixture[str]) -> None:
    """Noise of the averaged update at ε = 1 for Fashion-MNIST: 17.3 (unproved), 54.6, 1.97,
    16.7.
    """
    found = _json(
        capsys, "plan", "plans/fashion-mnist-cnn.toml", "--set", "training.state_noise=2", "--json"
    )
    costs = {each["analysis"]: each["average_noise"] for each in found["algorithms"]}
    expected = {"per-step": 17.3, "local": 54.6, "single-step": 1.97, "convex-pass": 16.7}
    assert {name: costs[name] for name in expected} == pytest.approx(expected, rel=4e-3)
    # all eleven steps of a round with σ_eff; the last of them counts with all noise
    every_step = 54.6 * math.sqrt(0.4)
    assert costs["split-noise"] == pytest.approx(0.967 * every_step, rel=5e-3)
    assert costs["last-step"] == pytest.approx(0.960 * 54.6, rel=5e-3)


@pytest.mark.deep
def test_plan_draws(capsys: pytest.CaptureFixture[str], plan_file: str, tmp_path: Path) -> None:
    folder = tmp_path / "plots"
    found = _json(capsys, "plan", plan_file, "--json", "--plot", str(folder))
    assert sorted(path.name for path in folder.iterdir()) == [
        "epsilon-against-rounds.png",
        "epsilon-against-rounds.svg",
        "noise-against-silos.png",
        "noise-against-silos.svg",
    ]
    assert len(found["files"]) == 4
    assert all(path.stat().st_size > 5_000 for path in folder.iterdir())


def test_plan_says_it_in_words(capsys: pytest.CaptureFixture[str], plan_file: str) -> None:
    assert main(["plan", plan_file, "--set", "privacy.accountant=renyi"]) == 0
    shown = capsys.readouterr().out
    for part in (
        "each silo adds",
        "on the wire",
        "2.6 kB per silo and round",
        "probability below 2^-40",
        "not proved, paper's theorem 4.5",
    ):
        assert part in shown


# -- average

TABLE = (
    "average --local-epsilon 5 --delta 1e-5 --sampling-rate 0.1 --steps 10 --parties 1,2,5,10 "
    "--accountant renyi-mironov"
)


def test_average_prints_table_1(capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(capsys, *TABLE.split(), "--json")
    rows = [
        (row["parties"], round(row["noise_multiplier"], 2), round(row["epsilon"], 2))
        for row in found["rows"]
    ]
    assert rows == [(1, 0.9, 5.0), (2, 1.28, 2.61), (5, 2.02, 1.19), (10, 2.85, 0.72)]
    assert main(TABLE.split()) == 0
    shown = capsys.readouterr().out
    assert "not proved: paper's theorem 4.5" in shown
    assert "only the average is released" in shown


@pytest.mark.parametrize("suffix", ["npz", "pt"])
def test_average_of_checkpoints(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str
) -> None:
    rng = np.random.default_rng(1)
    models = [
        {
            "w": rng.normal(size=(3, 2)).astype(np.float32),
            "b": rng.normal(size=3),
            "count": np.array(7),
        }
        for _ in range(3)
    ]
    files = [tmp_path / f"m{i}.{suffix}" for i in range(3)]
    for path, model in zip(files, models, strict=True):
        if suffix == "npz":
            np.savez(path, **model)
        else:
            torch = pytest.importorskip("torch")
            torch.save(
                {name: torch.from_numpy(np.array(each)) for name, each in model.items()}, path
            )
    out = tmp_path / f"mean.{suffix}"
    names = ",".join(map(str, files))
    found = _json(
        capsys, "average", "--checkpoints", names, "--out", str(out), "--steps", "1", "--json"
    )
    (row,) = found["rows"]
    assert (row["parties"], row["proved"], row["proved_epsilon"]) == (3, False, 5.0)
    assert row["epsilon"] < 3.0
    assert main(["average", "--checkpoints", names, "--out", str(out), "--steps", "1"]) == 0
    assert "not proved: files are rounded" in capsys.readouterr().out
    if suffix == "npz":
        with np.load(out) as archive:
            mean = dict(archive)
    else:
        mean = {name: each.numpy() for name, each in torch.load(out, weights_only=True).items()}
    assert np.allclose(mean["w"], np.mean([model["w"] for model in models], axis=0))
    assert mean["w"].dtype == np.float32
    assert np.allclose(mean["b"], np.mean([model["b"] for model in models], axis=0))
    assert mean["count"] == 7


def test_average_refuses_unlike_models(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=np.zeros(3))
    np.savez(tmp_path / "b.npz", w=np.zeros(4))
    (tmp_path / "c.npz").write_bytes(b"not an archive")
    out = str(tmp_path / "out.npz")
    assert "'w' differs in name, shape or type" in _fails(
        capsys, 2, "average", "--checkpoints", f"{tmp_path}/a.npz,{tmp_path}/b.npz", "--out", out
    )
    assert "not a readable checkpoint" in _fails(
        capsys, 5, "average", "--checkpoints", f"{tmp_path}/a.npz,{tmp_path}/c.npz", "--out", out
    )
    (tmp_path / "run.npz").write_bytes(encode_arrays({"w": np.zeros(3)}, {}))
    state = f"{tmp_path}/run.npz,{tmp_path}/run.npz"
    assert "is no array. Give models; that of a run is its model.pt" in _fails(
        capsys, 5, "average", "--checkpoints", state, "--out", out
    )
    assert "does not exist" in _fails(
        capsys, 5, "average", "--checkpoints", f"{tmp_path}/a.npz,{tmp_path}/none.npz", "--out", out
    )
    assert "must come with --checkpoints" in _fails(capsys, 2, "average", "--out", out)
    assert "whole numbers separated by commas" in _fails(capsys, 2, "average", "--parties", "1,two")
    assert not Path(out).exists()


# -- how commands fail

BAD = [
    ("privacy.epsilon=0", "privacy.epsilon must be a finite number in (0, ∞), got 0."),
    ("privacy.epsilon=-2", "privacy.epsilon must be a finite number in (0, ∞), got -2."),
    ("privacy.epsilon=nan", "privacy.epsilon must be a finite number in (0, ∞), got nan."),
    ("privacy.delta=0", "privacy.delta must be a finite number in (0, 1), got 0."),
    ("privacy.delta=1", "privacy.delta must be a finite number in (0, 1), got 1."),
    (
        "training.sampling_rate=0",
        "training.sampling_rate must be a finite number in (0, 1], got 0.",
    ),
    (
        "training.sampling_rate=1.2",
        "training.sampling_rate must be a finite number in (0, 1], got 1.2.",
    ),
    (
        "noise.noise_multiplier=0",
        "noise.noise_multiplier must be a finite number in (0, 1e+09], got 0.",
    ),
    ("aggregation.modulus_bits=18", "aggregation.modulus_bits must hold the sum of 5 silos"),
    ("federation.dropouts=5", "federation.dropouts must leave at least one of 5 silos"),
    ("noise.mechanism=laplace", "noise.mechanism must be one of"),
    ("privacy.epsilom=1", "privacy.epsilom is not a key of the plan"),
    ("privacy.epsilon", "--set must look like section.key=value"),
]


@pytest.mark.parametrize(("override", "message"), BAD)
@pytest.mark.parametrize("command", ["account", "plan"])
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], plan_file: str, command: str, override: str, message: str
) -> None:
    assert message in _fails(capsys, 2, command, plan_file, "--set", override)


def test_a_guarantee_that_cannot_be_certified_is_exit_code_3(
    capsys: pytest.CaptureFixture[str], plan_file: str
) -> None:
    assert "is not met" in _fails(
        capsys, 3, "plan", plan_file, "--set", "noise.noise_multiplier=2.0"
    )
    fedavg = ("--set", "training.algorithm=fedavg", "--set", "training.sampling_rate=0.5")
    assert "adds no noise" in _fails(capsys, 3, "account", plan_file, *fedavg)


def test_a_missing_file_and_a_typo_in_toml(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "must be a readable TOML file" in _fails(
        capsys, 2, "account", str(tmp_path / "none.toml")
    )
    (tmp_path / "typo.toml").write_text("[privacy\n")
    assert "must be valid TOML" in _fails(capsys, 2, "plan", str(tmp_path / "typo.toml"))


def test_usage_errors_are_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such command 'acount'" in _fails(capsys, 2, "acount")
    assert "No such option" in _fails(capsys, 2, "account", "--jsno")
    assert "Missing argument" in _fails(capsys, 2, "account")


def test_an_unexpected_error_is_one_line_with_a_hint(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by a bug")

    monkeypatch.setattr("sumus.accounting.average", broken)
    assert "ZeroDivisionError: by a bug (set SUMUS_TRACEBACK=1 to see where)" in _fails(
        capsys, 1, "average"
    )
    monkeypatch.setenv("SUMUS_TRACEBACK", "1")
    assert main(["average"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_interruption_is_exit_code_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sumus.accounting.average", interrupted)
    assert main(["average"]) == 130
    assert capsys.readouterr().err.strip() == "stopped"


def test_a_missing_extra_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def needs_torch(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("sumus.accounting.average", needs_torch)
    assert "pip install 'sumus[train]'" in _fails(capsys, 2, "average")


def test_help_lists_commands_without_importing_them() -> None:
    code = (
        "import sys; from sumus.cli import main; main(['--help']); print('sumus.cli.plan' in "
        "sys.modules or 'scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")
    assert all(name in COMMANDS for name in ("plan", "account", "average"))
    assert "ε of a plan, or of what a run really released" in done.stdout


@pytest.mark.deep
@pytest.mark.parametrize(
    ("override", "code"),
    [("privacy.epsilon=0", 2), ("noise.noise_multiplier=2.0", 3)],
    ids=["bad plan", "refused guarantee"],
)
def test_the_installed_command(plan_file: str, override: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sumus", "plan", plan_file, "--set", override],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
