"""Records and models of one's own through `sumus.train`: one record moves nobody else, and a run
goes on with what it began with.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
import pytest
import torch

import sumus
from sumus.books import Ledger, RunFolder, dataset_of
from sumus.cli import main
from sumus.data import FederatedData, from_arrays, load, public_facts, write_patients
from sumus.errors import GuaranteeError, PlanError
from sumus.parties import Site
from sumus.plan import TrainingPlan, resolve
from sumus.report import write_report
from sumus.runs import RunOptions, train
from sumus.training import machine_arithmetic as arithmetic

PLAN = """
[privacy]
epsilon = 1.0
delta = 1e-4
[federation]
rounds = 3
local_steps = 4
[training]
algorithm = "convex-pass"
learning_rate = 0.3
"""
OWN_MODEL = {
    "training.algorithm": "split-noise",
    "training.sampling_rate": 0.3,
    "federation.local_steps": 2,
}
TABLE = '[data]\npath = "patients.csv"\nsilo_column = "hospital"\nlabel_column = "readmitted"\n'


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))


def arrays(records: int = 40, silos: int = 3, seed: int = 7) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        (rng.normal(size=(records, 6)).astype(np.float32), rng.integers(0, 3, records))
        for _ in range(silos)
    ]


def options(**changes: Any) -> RunOptions:
    return RunOptions(**({"root": Path("runs"), "threads": 1} | changes))


def interrupted(*arguments: Any, after: int = 1, **keywords: Any) -> tuple[Path, str]:
    """Train until round `after` is done, interrupt, and return the folder and what was said."""

    def stop(design: object, record: Any) -> None:
        if record.round == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        train(*arguments, progress=stop, options=options(), **keywords)
    (path,) = Path("runs").iterdir()
    return path, str(caught.value)


# -- one record more or less (A2)


class StopError(Exception):
    pass


def seen_by_training(plan: TrainingPlan, silos: Any = None) -> FederatedData:
    """The records that `sumus.train` trains on."""
    seen: list[FederatedData] = []

    def begun(design: object, account: object, data: FederatedData) -> None:
        seen.append(data)
        raise StopError

    with pytest.raises(StopError):
        train(plan, silos=silos, begun=begun, options=options())
    return seen[0]


def rows(data: FederatedData) -> list[set[tuple[float, ...]]]:
    return [
        {tuple(x) for x in part.x.tolist()}
        for silo in data.silos
        for part in (silo.train, silo.test)
    ]


@pytest.mark.parametrize(
    "bounds", ["", "records_per_silo = [700, 700, 700, 700]\n"], ids=["counts public", "bounded"]
)
def test_adding_a_row_of_a_table_moves_no_other_between_training_and_test(bounds: str) -> None:
    text = write_patients(Path("patients.csv"), records=800).read_text().splitlines(keepends=True)
    Path("less.csv").write_text("".join(text[:1] + text[2:]))
    plans = [
        TrainingPlan.from_toml(
            '[training]\nalgorithm = "fedavg"\nsampling_rate = 0.1\n' + TABLE + bounds
        )
    ] * 2
    plans[1] = plans[1].replace("data", path="less.csv")
    if bounds:
        silos = len(load(plans[0].replace("data", records_per_silo=None)).silos)
        plans = [plan.replace("data", records_per_silo=(700,) * silos) for plan in plans]
    whole, less = (rows(seen_by_training(plan)) for plan in plans)
    assert sorted(len(one ^ other) for one, other in zip(whole, less, strict=True)) == [0] * (
        len(whole) - 1
    ) + [1]


@pytest.mark.parametrize("bounds", [None, (300, 300)], ids=["counts public", "bounded"])
def test_adding_a_record_of_an_array_moves_no_other_between_training_and_test(
    bounds: tuple[int, ...] | None,
) -> None:
    plan = TrainingPlan.from_toml(
        '[training]\nalgorithm = "fedavg"\nsampling_rate = 0.1\n'
    ).replace("data", records_per_silo=bounds)
    (x, y), other = arrays(300, 2)
    whole, less = (
        rows(seen_by_training(plan, [(x[first:], y[first:]), other])) for first in (0, 1)
    )
    assert sorted(len(one ^ two) for one, two in zip(whole, less, strict=True)) == [0, 0, 0, 1]


# -- silos without records (A4)


@pytest.mark.parametrize(
    "algorithm", ["convex-pass", "split-noise", "dp-sgd", "single-step", "silo", "fedavg"]
)
def test_a_silo_without_records_takes_part_in_every_algorithm(algorithm: str) -> None:
    changes: dict[str, object] = {"training.algorithm": algorithm, "federation.rounds": 1}
    if algorithm != "convex-pass":
        changes |= {
            "training.sampling_rate": 0.5,
            "federation.local_steps": 1 if algorithm == "single-step" else 2,
        }
    if algorithm == "silo":
        changes |= {"privacy.unit": "silo", "privacy.epsilon": 20.0}
    elif algorithm == "convex-pass":
        changes |= {"evaluation.metrics": "secure", "evaluation.noise_multiplier": 60.0}
    plan = (
        TrainingPlan.from_toml(PLAN)
        .with_overrides(changes)
        .replace("data", records_per_silo=(60,) * 3)
    )
    compared = options(compare=plan.evaluation.metrics == "simulation")
    run = train(plan, silos=[*arrays(silos=2), ([], [])], classes=3, options=compared)
    assert run.rounds[0].survivors == ("silo-0", "silo-1", "silo-2")


# -- resuming (C2, C21, A9)


def test_an_interrupted_run_on_a_table_goes_on_to_the_same_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sumus.runs.secret.fresh_secret", lambda: b"\7" * 32)
    write_patients(Path("patients.csv"), records=600)
    plan = TrainingPlan.from_toml(PLAN + TABLE)
    whole = train(plan, options=options(root=Path("whole")))
    path, said = interrupted(plan)
    assert said.endswith(f"sumus train --resume {path}")
    assert main(["train", "--resume", str(path), "--no-report", "--threads", "1"]) == 0
    saved = torch.load(path / "model.pt", weights_only=True)
    assert torch.equal(next(iter(saved.values())), next(whole.module.parameters()).detach())


def test_a_written_plan_trains_the_same_model_and_is_sound(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_patients(Path("patients.csv"), records=600)
    Path("plan.toml").write_text(PLAN + TABLE)
    assert main(["plan", "plan.toml", "--write", "written.toml"]) == 0
    assert main(["data", "check", "written.toml"]) == 0
    models = []
    for file in ("plan.toml", "written.toml"):
        capsys.readouterr()
        assert main(["train", file, "--seed", "3", "--threads", "1", "--no-report", "--json"]) == 0
        run = json.loads(capsys.readouterr().out.splitlines()[-1])["run"]
        models.append(next(iter(torch.load(Path(run) / "model.pt", weights_only=True).values())))
    assert torch.equal(*models)


def test_a_table_that_changed_after_its_counts_were_written_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = write_patients(Path("patients.csv"), records=600).read_text().splitlines(keepends=True)
    Path("plan.toml").write_text(PLAN + TABLE)
    assert main(["plan", "plan.toml", "--write", "written.toml"]) == 0
    Path("patients.csv").write_text("".join(text[:300]))
    capsys.readouterr()
    assert main(["train", "written.toml"]) == 2
    assert "as its public count" in capsys.readouterr().err


@pytest.mark.parametrize("new_silo", [False, True])
def test_a_run_is_not_resumed_on_a_table_that_grew_and_is_not_told_to_change_its_plan(
    new_silo: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = write_patients(Path("patients.csv"), records=600).read_text().splitlines(keepends=True)
    path, _ = interrupted(TrainingPlan.from_toml(PLAN + TABLE))
    place = lines[0].strip().split(",").index("hospital")
    more = [line.split(",") for line in lines[1:41]]
    more = [
        [*cells[:place], "Elsewhere", *cells[place + 1 :]] if new_silo else cells for cells in more
    ]
    Path("patients.csv").write_text("".join([*lines, *map(",".join, more)]))
    capsys.readouterr()
    assert main(["train", "--resume", str(path), "--no-report", "--threads", "1"]) == 3
    said = capsys.readouterr().err
    assert "began with other records. Resume it with those, or start a new run." in said
    assert "records_per_silo" not in said


def test_a_table_that_changed_after_its_counts_were_written_has_no_account_either(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_patients(Path("patients.csv"), records=300)
    Path("plan.toml").write_text(PLAN + TABLE)
    assert main(["plan", "plan.toml", "--write", "resolved.toml"]) == 0
    assert main(["account", "resolved.toml"]) == 0
    lines = Path("patients.csv").read_text().splitlines()
    Path("patients.csv").write_text("\n".join([*lines, *lines[-20:]]) + "\n")
    assert main(["account", "resolved.toml"]) == 2
    assert "as its public count" in capsys.readouterr().err


@pytest.mark.parametrize("tested", [(), (1,)], ids=["no silo", "one silo"])
def test_silos_without_test_records_are_not_measured_and_never_not_a_number(
    tested: tuple[int, ...],
) -> None:
    silos = arrays()
    tests = [
        (x[:9], y[:9]) if silo in tested else (x[:0], y[:0]) for silo, (x, y) in enumerate(silos)
    ]
    plan = TrainingPlan.from_toml(PLAN).with_overrides({"federation.rounds": 1})
    run = train(plan, silos=from_arrays(silos, tests=tests), options=options(compare=True))
    assert (run.accuracy is None) == (run.loss is None) == (not tested)
    assert ("non_private" in run.baselines) == bool(tested)
    assert run.rounds[0].silo_scores == ((None, run.accuracy, None) if tested else None)
    assert ("not measured: no test records" in run._repr_html_()) == (not tested)
    for name in ("journal.jsonl", "summary.json"):
        assert '"nan"' not in (run.path / name).read_text().lower()
    page = run.path / "report.html"
    write_report([RunFolder.open(run.path)], page)
    assert "nan%" not in page.read_text().replace(" ", "").replace("\u202f", "").lower()


def test_data_check_points_out_silos_without_records_to_train_or_test_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [f"{'AB'[row % 2]},{row % 7},{row % 3 % 2}" for row in range(60)]
    Path("few.csv").write_text("\n".join(["silo,x,y", *rows, "C,1,1"]) + "\n")
    Path("p.toml").write_text(
        '[data]\npath = "few.csv"\nsilo_column = "silo"\nlabel_column = "y"\n'
    )
    assert main(["data", "check", "p.toml"]) == 0
    assert re.search(
        r"no (training|test) record in C \(nobody else is told\)", capsys.readouterr().out
    )


@pytest.mark.deep
def test_a_killed_run_on_a_table_is_resumed_from_the_command_line(tmp_path: Path) -> None:
    """A real process, killed in the middle of its rounds; the model is that of the rounds of one
    run.
    """
    write_patients(Path("patients.csv"), records=3000)
    Path("plan.toml").write_text(PLAN.replace("rounds = 3", "rounds = 8") + TABLE)
    command = [sys.executable, "-m", "sumus", "train"]
    process = subprocess.Popen(
        [*command, "plan.toml", "--no-report", "--out", "runs"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        until = time.monotonic() + 200
        while (
            time.monotonic() < until
            and not list(Path("runs").glob("*/checkpoint.npz"))
            and process.poll() is None
        ):
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    (path,) = Path("runs").iterdir()
    assert main(["train", "--resume", str(path), "--no-report"]) == 0
    assert RunFolder.open(path).last_round == 8


ROOT = Path(__file__).parents[2]


def shipped_plans() -> dict[str, TrainingPlan]:
    """Every plan that is shipped, and that of the example with a table."""
    plans = {path.stem: TrainingPlan.load(path) for path in sorted((ROOT / "plans").glob("*.toml"))}
    example = ROOT / "examples" / "hospitals.py"
    if not example.exists():  # in the copy that mutations are tried on
        return plans
    text = example.read_text().partition('PLAN = """')[2].partition('"""')[0]
    return plans | {"hospitals": TrainingPlan.from_toml(text.format(path="patients.csv"))}


@pytest.mark.parametrize("name", shipped_plans())
def test_every_example_plan_resolves_to_itself_and_to_the_same_facts(name: str) -> None:
    write_patients(Path("patients.csv"))
    plan = shipped_plans()[name]
    facts = public_facts(plan)
    once = resolve(plan, facts)
    assert resolve(once.plan, public_facts(once.plan)) == once
    assert public_facts(once.plan).records_per_silo == facts.records_per_silo


@pytest.mark.deep
# those whose records are at hand everywhere
@pytest.mark.parametrize("name", ["digits", "hospitals"])
def test_every_example_plan_can_be_interrupted_and_resumed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sumus.runs.secret.fresh_secret", lambda: b"\7" * 32)
    write_patients(Path("patients.csv"), records=2000)
    plan = shipped_plans()[name].with_overrides({"federation.rounds": 2})
    whole = train(plan, options=options(root=Path("whole")))
    path, _ = interrupted(plan)
    resumed = train(options=options(resume=path))
    assert torch.equal(next(resumed.module.parameters()), next(whole.module.parameters()))


def test_objects_are_resumed_in_python_and_the_interruption_says_how() -> None:
    path, said = interrupted(TrainingPlan.from_toml(PLAN), silos=arrays(), name="visits")
    assert f'sumus.train(silos=…, options=RunOptions(resume=Path("{path}")))' in said
    assert "--resume" not in said
    with pytest.raises(PlanError, match=r"^name "):
        train(silos=arrays(), name="others", options=options(resume=path))
    assert len(train(silos=arrays(), options=options(resume=path)).rounds) == 3
    assert [entry.round for entry in Ledger.of_dataset("visits").entries()] == [1, 2, 3]


def test_a_model_of_ones_own_is_named_in_the_record_and_asked_for_again() -> None:
    torch.manual_seed(0)
    plan = TrainingPlan.from_toml(PLAN).with_overrides(OWN_MODEL)
    path, said = interrupted(plan, silos=arrays(), model=Net())
    run = RunFolder.open(path)
    assert (run.records_are, run.own_model) == ("given in Python", f"{__name__}.Net")
    assert run.plan.training.model == f"{__name__}.Net (given in Python)"
    assert "model=…, silos=…" in said
    with pytest.raises(PlanError, match=r"model.*must be given"):
        train(silos=arrays(), options=options(resume=path))
    assert len(train(silos=arrays(), model=Net(), options=options(resume=path)).rounds) == 3


def test_a_run_on_the_plans_own_records_is_not_resumed_with_others() -> None:
    plan = TrainingPlan.from_toml(PLAN + '[data]\nname = "digits"\n')
    path, _ = interrupted(plan)
    with pytest.raises(PlanError, match=r"silos.*must be left out"):
        train(silos=arrays(), options=options(resume=path))


def test_a_run_is_not_resumed_on_other_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of a repeated round would be the same on other floats, and their difference has no
    noise at all.
    """
    path, _ = interrupted(TrainingPlan.from_toml(PLAN), silos=arrays())
    here = arithmetic.arithmetic()
    assert {"processor", "torch threads", "torch", "numpy", "sumus"} <= set(here)
    for fact in here:
        monkeypatch.setattr(
            arithmetic, "arithmetic", lambda *_, fact=fact: here | {fact: "another"}
        )
        with pytest.raises(
            GuaranteeError, match=rf"began with {fact} .*here it is another"
        ) as caught:
            train(silos=arrays(), options=options(resume=path))
        assert "\n" not in str(caught.value)
    monkeypatch.setattr(arithmetic, "arithmetic", lambda *_: here)
    assert len(train(silos=arrays(), options=options(resume=path)).rounds) == 3


@pytest.mark.parametrize(
    "setting",
    [
        "MKL_CBWR",
        "DNNL_MAX_CPU_ISA",
        "ONEDNN_MAX_CPU_ISA",
        "OPENBLAS_NUM_THREADS",
        "OPENBLAS_CORETYPE",
        "NUMBA_CPU_NAME",
        "NUMBA_CPU_FEATURES",
        "OMP_NUM_THREADS",
        "GOTO_NUM_THREADS",
    ],
)
def test_a_setting_that_chooses_kernels_is_part_of_the_arithmetic(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(setting, raising=False)
    before = arithmetic.arithmetic()
    monkeypatch.setenv(setting, "1")
    with pytest.raises(GuaranteeError, match=rf"began with {setting} not set, here it is 1: "):
        arithmetic.require_same(before, Path("runs/one"))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux says where to run")
def test_how_many_processors_there_are_is_part_of_the_arithmetic() -> None:
    """A tangent pass has other last bits with other threads of numpy, whatever torch is told."""
    every = os.sched_getaffinity(0)
    if len(every) == 1:
        pytest.skip("there is one processor")
    before = arithmetic.arithmetic()
    try:
        os.sched_setaffinity(0, {min(every)})
        rule = rf"began with processors {len(every)}, here it is 1: "
        with pytest.raises(GuaranteeError, match=rule):
            arithmetic.require_same(before, Path("runs/one"))
    finally:
        os.sched_setaffinity(0, every)


def test_what_decides_on_last_bits_is_part_of_the_arithmetic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clipping is compiled by numba with reassociation; no float of training goes through scipy."""
    here = arithmetic.arithmetic()
    assert here["numba"] == numba.__version__
    assert here["llvmlite"] == llvmlite.__version__
    assert "scipy" not in here
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", not torch.backends.mkldnn.enabled)
    with pytest.raises(GuaranteeError, match="began with oneDNN"):
        arithmetic.require_same(here, Path("runs/one"))


def test_the_arithmetic_of_a_processor_is_what_it_can_do_and_not_how_fast_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = "processor\t: 0\nmodel name\t: X\nflags\t\t: sse avx{}\ncpu MHz\t\t: {}\n"
    seen = []
    for more, clock in (("", 1000), ("", 2500), (" avx512f", 1000)):
        (tmp_path / "cpuinfo").write_text(described.format(more, clock))
        monkeypatch.setattr(arithmetic, "_PROCESSOR", tmp_path / "cpuinfo")
        seen.append(arithmetic.arithmetic()["processor"])
    assert seen[0] == seen[1] != seen[2]


# -- what no command can load (C3)


def test_no_command_puts_other_records_in_the_place_of_objects(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The records have the shape of the embedded digits: a command that fell back on those would
    not notice.
    """
    rng = np.random.default_rng(0)
    silos = [(rng.normal(size=(60, 64)), rng.integers(0, 10, 60)) for _ in range(5)]
    run = train(TrainingPlan.from_toml(PLAN), silos=silos, options=options())
    folder, plan = str(run.path), str(run.path / "plan.toml")
    commands = [
        ["audit", "membership", folder],
        ["audit", "membership", plan],
        ["audit", "run", plan],
        ["data", "check", plan],
        ["data", "check", folder],
        ["train", plan],
        ["train", "--resume", folder],
        ["tune", plan, "--runs", "1"],
        ["tune", plan, "--account", "1"],
        ["account", plan],
        ["plan", plan],
    ]
    for command in commands:
        capsys.readouterr()
        assert main(command) == 2, command
        shown = capsys.readouterr()
        errors = [line for line in shown.err.splitlines() if line.startswith("error")]
        assert len(errors) == 1, (command, shown.err)
        assert "Traceback" not in shown.err
        assert "sound" not in shown.out
    assert main(["account", folder]) == 0  # needs no record
    assert main(["report", folder]) == 0


def test_no_command_trains_shadows_of_a_model_of_ones_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_patients(Path("patients.csv"), records=300)
    plan = TrainingPlan.from_toml(PLAN + TABLE).with_overrides(OWN_MODEL | {"federation.rounds": 1})
    width = load(plan).shape[0]
    run = train(plan, model=torch.nn.Sequential(torch.nn.Linear(width, 2)), options=options())
    capsys.readouterr()
    assert main(["audit", "membership", str(run.path)]) == 2
    assert "given in Python, so no command can train shadows of it" in capsys.readouterr().err
    assert main(["train", str(run.path / "plan.toml")]) == 2
    assert "given in Python" in capsys.readouterr().err


def test_the_report_names_the_model_and_the_records_that_ran() -> None:
    pytest.importorskip("jinja2")
    from sumus.report.page import render_report

    plan = TrainingPlan.from_toml(PLAN).with_overrides(OWN_MODEL | {"federation.rounds": 1})
    run = train(plan, model=Net(), silos=arrays(), name="visits", options=options())
    page = render_report([RunFolder.open(run.path)])
    assert "softmax" not in page
    assert "Net (given in Python)" in page
    assert "visits" in page


# -- naming (C13, C20, C24)


def test_objects_spend_from_a_ledger_of_their_own() -> None:
    plan = TrainingPlan.from_toml(PLAN).with_overrides({"federation.rounds": 1})
    train(plan, silos=arrays(), options=options())
    train(plan, silos=arrays(silos=4), options=options())
    train(plan, silos=arrays(), name="visits", options=options())
    train(plan.replace("data", objects="visits"), silos=arrays(), options=options())
    train(plan.replace("data", name="digits"), silos=arrays(), name="visits", options=options())
    counts = {ledger.dataset: len(ledger.entries()) for ledger in Ledger.all()}
    assert counts == {"own-data": 2, "visits": 3}


def test_silos_by_name_and_declared_classes() -> None:
    one, two, three = arrays()
    named = {"Bergen": one, "Oslo": two, "Bodø": three}
    run = sumus.train(TrainingPlan.from_toml(PLAN), silos=named, classes=4, options=options())
    assert run.rounds[0].survivors == ("Bergen", "Oslo", "Bodø")
    assert not any("number of classes" in line for line in run.assumptions)
    assert any("record counts" in line for line in run.assumptions)
    undeclared = sumus.train(TrainingPlan.from_toml(PLAN), silos=named, options=options())
    assert any(
        "number of classes, 3" in line and "classes=" in line for line in undeclared.assumptions
    )


def test_a_table_that_was_loaded_beforehand_keeps_its_ledger() -> None:
    write_patients(Path("patients.csv"), records=300)
    plan = TrainingPlan.from_toml(PLAN + TABLE).with_overrides({"federation.rounds": 1})
    train(plan, silos=load(plan), options=options())
    train(plan, options=options())
    assert {ledger.dataset: len(ledger.entries()) for ledger in Ledger.all()} == {"patients": 2}


def test_packing_a_table_keeps_its_ledger(tmp_path: Path) -> None:
    text = write_patients(Path("patients.csv"), records=300).read_bytes()
    Path("patients.csv.gz").write_bytes(gzip.compress(text))
    Path("patients.tsv").write_bytes(text.replace(b",", b"\t"))
    one_round = TrainingPlan.from_toml(PLAN + TABLE).with_overrides({"federation.rounds": 1})
    for file in ("patients.csv", "patients.csv.gz", "patients.tsv"):
        plan = one_round.replace("data", path=file)
        assert dataset_of(plan) == Site(data=str(tmp_path / file)).dataset == "patients"
        train(plan, silos=load(plan), options=options())
    assert {ledger.dataset: len(ledger.entries()) for ledger in Ledger.all()} == {"patients": 3}


def test_a_name_with_a_full_stop_is_no_file() -> None:
    plan = TrainingPlan.from_toml(PLAN)
    train(plan, silos=from_arrays(arrays(), name="visits.2024"), options=options())
    assert [ledger.dataset for ledger in Ledger.all()] == ["visits.2024"]


def test_who_does_not_name_objects_is_told_what_their_ledger_goes_by() -> None:
    plan = TrainingPlan.from_toml(PLAN)
    assert sum("name= says" in line for line in seen_by_training(plan, arrays()).assumptions) == 1
    assert not any(
        "name= says" in line
        for line in seen_by_training(plan.replace("data", objects="visits"), arrays()).assumptions
    )
    path, _ = interrupted(plan, silos=arrays())
    resumed = train(silos=arrays(), options=options(resume=path))
    assert sum("name= says" in line for line in resumed.assumptions) == 1


def test_records_that_were_held_to_another_plan_say_once_and_truly_whether_counts_are_public() -> (
    None
):
    write_patients(Path("patients.csv"), records=300)
    plan = TrainingPlan.from_toml(PLAN + TABLE)
    for chosen, times in (
        (plan, 1),
        (plan.replace("data", records_per_silo=(300,) * len(load(plan).silos)), 0),
    ):
        lines = seen_by_training(chosen, load(plan)).assumptions
        assert sum("record counts of the silos" in line for line in lines) == times


def test_a_split_that_was_made_beforehand_is_said_to_be_public() -> None:
    digits = load(TrainingPlan.from_toml('[data]\nname = "digits"\n'))
    plan = TrainingPlan.from_toml('[training]\nalgorithm = "fedavg"\nsampling_rate = 0.1\n')
    assert any("decided beforehand" in line for line in seen_by_training(plan, digits).assumptions)
    assert not any(
        "decided beforehand" in line for line in seen_by_training(plan, arrays()).assumptions
    )


def test_who_leaves_records_out_is_told_and_the_record_is_not() -> None:
    plan = (
        TrainingPlan.from_toml(PLAN)
        .with_overrides({"federation.rounds": 1})
        .replace("data", records_per_silo=(20, 60, 60))
    )
    with pytest.warns(UserWarning, match="left out: .* of silo-0 beyond the bound 20"):
        run = train(plan, silos=arrays(), options=options())
    assert "left" not in (run.path / "journal.jsonl").read_text()
    assert "left" not in (run.path / "summary.json").read_text()


@pytest.mark.parametrize(
    ("keywords", "complaint"),
    [
        ({"name": "x"}, "name"),
        ({"classes": 3}, "classes"),
        ({"silos": "prepared", "classes": 3}, "classes"),
    ],
)
def test_what_is_said_about_objects_needs_objects(keywords: dict[str, Any], complaint: str) -> None:
    if keywords.get("silos"):
        keywords = keywords | {"silos": from_arrays(arrays())}
    with pytest.raises(PlanError, match=rf"^{complaint} "):
        train(TrainingPlan.from_toml(PLAN), options=options(), **keywords)
