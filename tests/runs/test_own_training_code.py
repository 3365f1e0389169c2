"""Losses and callbacks of one's own in `sumus.train`: what they may do, and that none of them loses
a run.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch.nn import functional

import sumus
from sumus.books import Policy, RunFolder
from sumus.errors import GuaranteeError, PlanError, PolicyError
from sumus.plan import TrainingPlan
from sumus.runs import RunOptions, train
from sumus.runs.progress import shown

PLAN = TrainingPlan.from_toml(
    """
[privacy]
epsilon = 1.0
delta = 1e-4
[federation]
rounds = 2
local_steps = 1
[training]
algorithm = "dp-sgd"
sampling_rate = 0.5
learning_rate = 0.5
"""
)
SEED = sumus.Simulation(7)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))


def silos(classes: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(7)
    return [
        (rng.normal(size=(40, 4)).astype(np.float32), rng.integers(0, classes, 40))
        for _ in range(3)
    ]


def options(**changes: Any) -> RunOptions:
    return RunOptions(**({"root": Path("runs"), "threads": 1} | changes))


def smoothed(outputs: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, label, label_smoothing=0.2)


def quantile(outputs: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    short = label.to(outputs.dtype) - outputs[:, 0]
    return torch.maximum(0.9 * short, -0.1 * short).mean()


# -- losses


def test_the_tasks_own_loss_given_as_a_function_trains_the_same_model() -> None:
    ours = train(PLAN, silos=silos(), simulation=SEED, options=options())
    given = train(
        PLAN, silos=silos(), simulation=SEED, options=options(), loss=functional.cross_entropy
    )
    assert given.plan.training.loss == "torch.nn.functional.cross_entropy (given in Python)"
    for one, other in zip(
        ours.module.state_dict().values(), given.module.state_dict().values(), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-4)


def test_another_loss_trains_another_model_with_the_same_guarantee() -> None:
    ours = train(PLAN, silos=silos(), simulation=SEED, options=options())
    other = train(PLAN, silos=silos(), simulation=SEED, options=options(), loss=smoothed)
    assert ours.model_hash != other.model_hash
    assert ours.account is not None
    assert other.account is not None
    assert other.account.epsilon == ours.account.epsilon
    assert "accuracy" in other.metrics  # measures stay the task's


def test_a_loss_of_numbers_gets_the_tasks_scaled_labels() -> None:
    plan = PLAN.replace("training", task="regression", model="linear")
    plan = plan.with_overrides({"data.bounds.label": [0.0, 10.0], "federation.rounds": 12})
    rng = np.random.default_rng(3)
    data = [
        (rng.normal(size=(400, 2)).astype(np.float32), rng.uniform(0.0, 10.0, 400))
        for _ in range(3)
    ]
    loud = plan.replace("privacy", epsilon=20.0)
    means = {}
    for name, loss in (("middle", None), ("high", quantile)):
        run = train(loud, silos=data, loss=loss, simulation=SEED, options=options())
        with torch.no_grad():
            means[name] = float(run.model(torch.zeros(1, 2))[0, 0])
    assert abs(means["middle"]) < 0.3
    assert means["high"] > 0.5  # of [-1, 1]: nine of ten labels are below


def test_a_loss_of_a_plan_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("clinic_losses.py").write_text(
        "import torch.nn.functional as f\n"
        "def smoothed(outputs, label):\n"
        "    return f.cross_entropy(outputs, label, label_smoothing=0.2)\n"
    )
    monkeypatch.syspath_prepend(str(Path.cwd()))
    named = PLAN.replace("training", loss="clinic_losses:smoothed")
    run = train(named, silos=silos(), simulation=SEED, options=options())
    given = train(PLAN, silos=silos(), simulation=SEED, options=options(), loss=smoothed)
    assert run.model_hash == given.model_hash
    assert run.plan.training.loss == "clinic_losses:smoothed"


def test_a_silo_imports_no_loss_that_its_policy_does_not_list() -> None:
    named = PLAN.replace("training", loss="clinic_losses:smoothed")
    with pytest.raises(PolicyError, match=r"training\.loss .*allowed_models"):
        Policy().check_imports(named)
    Policy(allowed_models=("clinic_losses:smoothed",)).check_imports(named)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm": "convex-pass"}, "needs clipped gradients, and convex-pass has none"),
        ({"algorithm": "fedavg"}, "needs clipped gradients"),
        ({"local_parameters": "intercept"}, "local_parameters"),
        ({"class_weights": (1.0, 2.0, 3.0)}, "class_weights"),
    ],
)
def test_where_a_loss_has_no_place_it_is_refused(changes: dict[str, Any], words: str) -> None:
    plan = PLAN.replace("training", **changes)
    if changes.get("algorithm"):
        plan = PLAN.replace("training", sampling_rate=None, **changes)
    with pytest.raises(PlanError, match=words):
        train(plan, silos=silos(), loss=smoothed, options=options())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("smoothed", "Name the function with its module"),
        ("clinic.smoothed (given in Python)", r"sumus\.train\(loss=…\)"),
        ("math:pi", "It is a float"),
        ("nowhere_at_all:f", "must be an importable"),
    ],
)
def test_a_name_that_leads_to_no_function_is_refused(name: str, words: str) -> None:
    plan = PLAN.replace("training", loss=name)
    with pytest.raises(PlanError, match=words):
        train(plan, silos=silos(), options=options())


def test_a_run_goes_on_with_the_loss_that_it_began_with() -> None:
    def stop(design: object, entry: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        train(PLAN, silos=silos(), loss=smoothed, progress=stop, options=options())
    (path,) = Path("runs").iterdir()
    call = f'sumus.train(silos=…, loss=…, options=RunOptions(resume=Path("{path}")))'
    assert call in str(caught.value)
    again = options(resume=path)
    with pytest.raises(PlanError, match="loss must be given"):
        train(silos=silos(), options=again)
    with pytest.raises(GuaranteeError, match="which its noise belongs to"):
        train(silos=silos(), loss=_imitation(), options=again)
    run = train(silos=silos(), loss=smoothed, options=again)
    assert len(run.rounds) == 2


def _imitation() -> Any:
    """Another function under the same name."""

    def other(outputs: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(outputs, label, label_smoothing=0.7)

    other.__module__, other.__qualname__ = smoothed.__module__, smoothed.__qualname__
    return other


# -- callbacks


class Told(sumus.Callback):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_run_begin(self, plan: TrainingPlan, account: sumus.Account | None) -> None:
        assert account is not None
        self.heard.append(f"begin {plan.federation.rounds} {account.proved}")

    def on_round_end(self, entry: Any) -> None:
        assert 0.0 <= entry.metrics["accuracy"] <= 1.0
        assert 0.0 < entry.epsilon_spent <= 1.0
        self.heard.append(f"round {entry.round}")

    def on_run_end(self, run: sumus.TrainedRun) -> None:
        self.heard.append(f"end {len(run.rounds)}")


def test_callbacks_are_told_in_order_with_measures_and_epsilon() -> None:
    told, numbers = Told(), []
    train(
        PLAN,
        silos=silos(),
        options=options(),
        callbacks=[told, lambda entry: numbers.append(entry.round)],
    )
    assert told.heard == ["begin 2 True", "round 1", "round 2", "end 2"]
    assert numbers == [1, 2]


def test_what_a_callback_raises_costs_no_round() -> None:
    calls, told = [], Told()

    def breaks(entry: Any) -> None:
        calls.append(entry.round)
        raise ValueError("no disk")

    with pytest.warns(RuntimeWarning, match="breaks raised ValueError after round 1: no disk"):
        run = train(PLAN, silos=silos(), options=options(), callbacks=[breaks, told])
    assert calls == [1]
    assert told.heard[-1] == "end 2"
    assert RunFolder.open(run.path).summary is not None


def test_an_interruption_in_a_callback_says_how_the_run_goes_on() -> None:
    def interrupts(entry: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"after round 1; go on with: sumus\.train"):
        train(PLAN, silos=silos(), options=options(), callbacks=interrupts)


def test_what_is_no_callback_is_refused() -> None:
    with pytest.raises(PlanError, match=r"callbacks must be a sumus\.Callback"):
        train(PLAN, silos=silos(), options=options(), callbacks=["loud"])  # type: ignore[list-item]


# -- own evaluation


def test_own_measures_of_a_simulation_are_kept_by_round_and_told_to_callbacks() -> None:
    seen = []

    def balanced(model: Any, records: Any) -> dict[str, float]:
        right = model.predict(records.x) == records.y
        return {"balanced": float(np.mean([right[records.y == k].mean() for k in range(3)]))}

    run = train(
        PLAN,
        silos=silos(),
        options=options(),
        evaluate=balanced,
        callbacks=lambda entry: seen.append(entry.metrics["balanced"]),
    )
    assert list(run.evaluated) == [1, 2]
    assert [values["balanced"] for values in run.evaluated.values()] == seen
    assert "simulation-only" in (run.path / "journal.jsonl").read_text(encoding="utf-8")


def test_what_an_evaluation_raises_costs_no_round() -> None:
    with pytest.warns(RuntimeWarning, match="evaluate raised TypeError after round 1"):
        run = train(PLAN, silos=silos(), options=options(), evaluate=lambda model, records: 3.0)  # type: ignore[arg-type,return-value]
    assert len(run.rounds) == 2
    assert run.evaluated == {}


@pytest.mark.parametrize("metrics", ["none", "secure"])
def test_an_evaluation_sees_no_records_where_measures_are_accounted(metrics: str) -> None:
    seen: list[Any] = []
    plan = PLAN.replace("evaluation", metrics=metrics)
    with pytest.raises(PlanError, match="evaluate is for"):
        train(plan, silos=silos(), options=options(), evaluate=lambda *given: seen.append(given))  # type: ignore[func-returns-value,arg-type,return-value]
    assert not seen


# -- progress, page


def test_progress_is_a_line_a_round_where_nothing_can_move() -> None:
    out = io.StringIO()
    bar = shown(True, Console(file=out, width=100))
    assert bar is not None
    train(PLAN, silos=silos(), options=options(), callbacks=bar)
    first, second = out.getvalue().splitlines()
    assert first.startswith("round 1 of 2  accuracy ")
    assert "ε ≤ " in second
    assert second.startswith("round 2 of 2")
    assert shown(None, Console(file=out)) is None  # no notebook
    assert shown(False) is None


def test_a_seeded_run_shows_no_epsilon() -> None:
    out = io.StringIO()
    bar = shown(True, Console(file=out, width=100))
    train(PLAN, silos=silos(), simulation=SEED, options=options(), callbacks=bar)
    assert "ε" not in out.getvalue()
    assert "no guarantee" in out.getvalue()


def test_a_run_writes_its_page_and_shows_itself_in_a_notebook() -> None:
    run = train(PLAN, silos=silos(), options=options())
    page = run.report()
    assert page == run.path / "report.html"
    assert "<html" in page.read_text(encoding="utf-8")
    assert run.report("here.html").is_file()
    assert "proved" in run._repr_html_()
    assert run.account is not None
    assert "ε" in run.account._repr_html_()
