"""Survival: times become codes, one person moves a pass and the counts by no more than is declared, and
c-index and Kaplan–Meier are those of a direct computation.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from sumus import RunOptions, TrainingPlan, account, train
from sumus.books import RunFolder
from sumus.data import load
from sumus.errors import DataError, PlanError
from sumus.gradients import Units
from sumus.report import write_report
from sumus.runs import Simulation
from sumus.tasks import TASKS, Declared, LabelFacts, Survival
from sumus.tasks.concordance import concordance, noisy_concordance
from sumus.tasks.life_table import kaplan_meier
from sumus.training.local.convex_pass import convex_pass
from sumus.training.models import SharedSlopes

RECORDS = 1200
CUTS = (6.0, 12.0, 24.0)
INTERVALS = len(CUTS)


def cut(*cuts: float, hazard: float | None = None) -> Survival:
    columns = {"time_column": "t", "event_column": "e"}
    task = TASKS["survival"].of(Declared(columns, intervals=cuts, start_hazard=hazard))
    assert isinstance(task, Survival)
    return task


SURVIVAL = cut(*CUTS)


def people(records: int = RECORDS, seed: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two features, months until death or loss, and whether it was death: the first feature doubles
    the hazard three times from end to end.
    """
    draw = np.random.default_rng(seed)
    x = draw.uniform(-1, 1, size=(records, 2))
    died = draw.exponential(20.0 / np.exp(1.4 * x[:, 0]))
    lost = draw.uniform(1, 40, records)
    return x, np.minimum(died, lost), (died <= lost).astype(np.int64)


def table(folder: Path, *, records: int = RECORDS, extra: str = "") -> Path:
    x, months, died = people(records)
    rows = [
        f"{'abc'[i % 3]},{x[i, 0]:.4f},{x[i, 1]:.4f},{months[i]:.3f},{('no', 'yes')[died[i]]}\n"
        for i in range(records)
    ]
    file = folder / "centres.csv"
    file.write_text("centre,first,second,months,died\n" + "".join(rows) + extra)
    return file


def plan_for(file: Path, **overrides: object) -> TrainingPlan:
    entries = {
        "training": {"task": "survival", "learning_rate": 2.0},
        "privacy": {"epsilon": 8.0},
        "data": {
            "path": str(file),
            "silo_column": "centre",
            "time_column": "months",
            "event_column": "died",
            "intervals": list(CUTS),
            "bounds": {"first": [-1, 1], "second": [-1, 1]},
        },
    }
    return TrainingPlan.from_table(entries).with_overrides(overrides)


# -- labels


def test_times_become_the_codes_that_the_page_describes() -> None:
    cases = {
        (0.0, 1): 1,
        (6.0, 1): 1,
        (6.1, 1): 3,
        (24.0, 1): 5,
        (24.1, 1): 6,  # beyond the last cut point: followed up to it
        (math.inf, 1): 6,
        (0.0, 0): 0,
        (2.9, 0): 0,  # less than half of the first interval
        (3.0, 0): 2,
        (8.9, 0): 2,
        (9.0, 0): 4,
        (24.0, 0): 6,
        (99.0, 0): 6,
    }
    times, events = np.array(list(cases)).T
    assert SURVIVAL.encode(times, events.astype(np.int64)).tolist() == list(cases.values())


@settings(max_examples=200, deadline=None)
@given(
    cuts=st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=6, unique=True),
    time=st.floats(0, 1e7),
    event=st.integers(0, 1),
)
def test_every_time_has_a_code_and_a_later_end_is_never_fewer_intervals(
    cuts: list[float], time: float, event: int
) -> None:
    task = cut(*sorted(cuts))
    code, later = task.store(np.array([[time, event], [2 * time, event]]), "silo")
    task.check(np.array([code, later]), len(cuts))
    assert later // 2 >= code // 2
    beyond = time > max(cuts)
    assert code % 2 == (event == 1 and not beyond)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("a,0,0,,yes\n", f"no value in 1 records, first in record {RECORDS + 1}"),
        ("a,0,0,-3,yes\n", f"a negative time in 1 records, first in record {RECORDS + 1}"),
        ("a,0,0,soon,yes\n", r"is not a number\. Correct it, or remove the record"),
        ("a,0,0,3,perhaps\n", f"must hold 0 or 1, or no or yes.*record {RECORDS + 1} is neither"),
        ("a,0,0,3,2\n", "must hold 0 or 1, or no or yes"),
        ("a,0,0,3,\n", "has no value in 1 records"),
    ],
)
def test_a_bad_value_is_named_by_its_record_alone(tmp_path: Path, line: str, told: str) -> None:
    with pytest.raises(DataError, match=told) as refused:
        load(plan_for(table(tmp_path, extra=line)))
    assert "perhaps" not in str(refused.value)
    assert "soon" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("data.intervals", [12, 6], r"data\.intervals must be in rising order.*Sort"),
        ("data.intervals", [6, 6], "in rising order, none twice"),
        ("data.intervals", [], "must say where time is cut"),
        ("data.intervals", None, "must say where time is cut"),
        ("data.intervals", [0, 6], r"data\.intervals\[0\] must be a finite number in \(0"),
        ("data.intervals", list(range(1, 60)), r"at most 50 cut points, got 59\. Cut"),
        ("data.time_column", None, r"data\.time_column must be set.*survival"),
        ("data.event_column", None, r"data\.event_column must be set.*survival"),
        ("data.label_column", "died", r"data\.label_column is not what .*survival learns from"),
        ("training.task", "classification", r"data\.label_column must be set"),
    ],
)
def test_a_plan_without_what_survival_needs_is_one_line_with_the_fix(
    tmp_path: Path, key: str, value: object, told: str
) -> None:
    with pytest.raises(PlanError, match=told) as refused:
        plan_for(table(tmp_path), **{key: value})
    assert "\n" not in str(refused.value)


def test_normal_equations_of_times_are_refused_by_the_algorithm(tmp_path: Path) -> None:
    changes = {"training.algorithm": "normal-equations", "training.learning_rate": None}
    with pytest.raises(
        PlanError, match=r"training\.algorithm has no targets for training\.task = survival"
    ):
        account(plan_for(table(tmp_path), **changes))


def test_data_without_times_have_no_survival() -> None:
    with pytest.raises(PlanError, match="times and events"):
        account(TrainingPlan().with_overrides({"training.task": "survival"}))
    with pytest.raises(DataError, match=r"pair \(time, event\)"):
        SURVIVAL.store(np.zeros(4), "silo 'a'")
    with pytest.raises(DataError, match="neither 0 nor 1"):
        SURVIVAL.store(np.array([[1.0, 0.5]]), "silo 'a'")
    with pytest.raises(DataError, match="negative or missing"):
        SURVIVAL.store(np.array([[math.nan, 1.0]]), "silo 'a'")
    with pytest.raises(DataError, match="3 intervals"):
        SURVIVAL.check_outputs(2, LabelFacts(intervals=CUTS))


# -- loss and rows


def negative_log_likelihood(z: np.ndarray, code: int) -> float:
    """Straight from the hazards."""
    hazards = 1.0 / (1.0 + np.exp(-z))
    through = code // 2
    likelihood = np.prod(1.0 - hazards[:through]) * (hazards[through] if code % 2 else 1.0)
    return float(-np.log(likelihood))


def test_the_loss_is_the_likelihood_over_the_number_of_intervals() -> None:
    draw = np.random.default_rng(0)
    for code in range(2 * INTERVALS + 1):
        z = draw.normal(size=INTERVALS)
        ours = SURVIVAL.loss(torch.from_numpy(z[None]), torch.tensor([code]))
        assert float(ours[0]) == pytest.approx(negative_log_likelihood(z, code) / INTERVALS)


def test_rows_are_the_loss_of_the_model_that_a_plan_names() -> None:
    """Σ weight·logistic loss of the expanded rows = the task's loss of `SharedSlopes`, and no row is
    longer than its record.
    """
    draw = np.random.default_rng(1)
    codes = np.arange(2 * INTERVALS + 1)
    x = draw.normal(size=(len(codes), 5)).astype(np.float32)
    rows = SURVIVAL.expand(x, codes)
    theta = draw.normal(size=4 + INTERVALS).astype(np.float32)
    model = SharedSlopes(5, INTERVALS, bias=False)
    model.slopes.data, model.intercepts.data = (
        torch.from_numpy(part) for part in np.split(theta, [4])
    )
    expected = SURVIVAL.loss(model(torch.from_numpy(x)), torch.from_numpy(codes))
    z = rows.x @ theta
    losses = rows.weights * (np.log1p(np.exp(z)) - rows.y * z)
    summed = np.bincount(rows.records, weights=losses, minlength=len(codes))
    np.testing.assert_allclose(summed, expected.detach().numpy(), rtol=1e-5)
    lengths = np.linalg.norm(x, axis=1)[rows.records]
    np.testing.assert_allclose(np.linalg.norm(rows.x, axis=1), lengths, rtol=1e-6)
    assert np.bincount(rows.records).max() <= SURVIVAL.rows_per_record == INTERVALS


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    bins=st.integers(1, 8),
    passes=st.integers(1, 3),
    room=st.floats(0.3, 1.0),
    spread=st.floats(0.0, 20.0),
    t=st.sampled_from([1.0, 0.5, 0.1, 0.01]),
)
def test_a_person_moves_a_survival_pass_by_at_most_gamma_t_r_over_b(
    seed: int, bins: int, passes: int, room: float, spread: float, t: float
) -> None:
    """Neighbours coupled on all bins, steps as long as the fullest bin allows: C = t·R, β = R²/4."""
    draw = np.random.default_rng(seed)
    bound, count = 1.3, 14
    x = draw.normal(size=(count, 4))
    x *= bound * (1 - 1e-6) / np.linalg.norm(x, axis=1, keepdims=True)
    x[-1] *= draw.choice([1.0, 0.1])
    x, y = x.astype(np.float32), draw.integers(0, 2 * INTERVALS + 1, count)
    y[-1] = draw.choice([2 * INTERVALS, 1, 2 * INTERVALS - 1])
    assigned = [draw.integers(0, bins, count) for _ in range(passes)]
    fullest = max(int(np.bincount(each).max()) for each in assigned)
    constants = SURVIVAL.curvature("linear", feature_bound=bound, residual_cap=t)
    assert constants is not None
    step = 2.0 * room / (constants.smoothness * (1 + 1e-6) * fullest)
    first = spread * draw.normal(size=(1, 3 + INTERVALS))

    def result(records: int) -> np.ndarray:
        class Fixed:
            def __init__(self) -> None:
                self.left = list(assigned)

            def below(self, bound: int, count: int) -> np.ndarray:
                return self.left.pop(0)[:count]

        rows = SURVIVAL.expand(x[:records], y[:records])
        return convex_pass(
            first,
            rows.x,
            rows.y,
            task=SURVIVAL,
            units=Units.single(records).expanded(rows),
            link=rows.link,
            bins=bins,
            passes=passes,
            step=step,
            decay=0.0,
            bin_cap=fullest,
            feature_bound=bound,
            residual_cap=t,
            source=Fixed(),
        )

    moved = np.linalg.norm(result(count) - result(count - 1))
    assert moved <= passes * step * constants.gradient_norm * (1 + 1e-9)


def test_the_declared_smoothness_is_reached_at_even_odds() -> None:
    """Someone at risk in all intervals, between weights of ∓10⁻³: β is neither less nor much more."""
    x = np.array([[1.7, 0.0]], dtype=np.float32)
    rows = SURVIVAL.expand(x, np.array([2 * INTERVALS]))
    slopes = []
    for weight in (-1e-3, 1e-3):
        z = rows.x @ np.array([weight, *np.zeros(INTERVALS)])
        slopes.append((rows.weights / (1.0 + np.exp(-z))) @ rows.x)
    constants = SURVIVAL.curvature("linear", feature_bound=1.7, residual_cap=1.0)
    assert constants is not None
    reached = np.linalg.norm(slopes[1] - slopes[0]) / 2e-3
    assert 0.999 * constants.smoothness <= reached <= constants.smoothness


def test_someone_at_risk_throughout_reaches_the_declared_gradient() -> None:
    """The bound C = t·R is no larger than it must be: a person certain to die who never does."""
    x = np.array([[1.0, 0.0]], dtype=np.float32)
    rows = SURVIVAL.expand(x, np.array([2 * INTERVALS]))
    theta = np.array([40.0, *np.zeros(INTERVALS)])
    residuals = 1.0 / (1.0 + np.exp(-(rows.x @ theta))) - rows.y
    gradient = (rows.weights * residuals) @ rows.x
    constants = SURVIVAL.curvature("linear", feature_bound=1.0, residual_cap=1.0)
    assert constants is not None
    assert np.linalg.norm(gradient) == pytest.approx(constants.gradient_norm)


# -- measures


def pairs_by_hand(risks: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> float:
    right = total = 0.0
    for i, k in itertools.permutations(range(len(risks)), 2):
        if codes[i] % 2 == 1 and codes[k] // 2 > codes[i] // 2:
            total += weights[i] * weights[k]
            right += weights[i] * weights[k] * ((risks[i] > risks[k]) + (risks[i] == risks[k]) / 2)
    return right / total if total else 0.5


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), records=st.integers(1, 14), kinds=st.integers(1, 5))
def test_the_c_index_is_that_of_all_pairs(seed: int, records: int, kinds: int) -> None:
    draw = np.random.default_rng(seed)
    risks, codes = draw.integers(0, kinds, records) / 2.0, draw.integers(0, 7, records)
    weights = draw.choice([0.25, 0.5, 1.0], records)
    ours = concordance(risks, codes, weights)
    assert ours == pytest.approx(pairs_by_hand(risks, codes, weights))
    histogram = np.zeros((7, 8))
    np.add.at(histogram, (codes, (2 * risks).astype(int)), 1.0)
    exact = concordance(risks, codes)
    told = noisy_concordance(histogram, noise_std=0.0)
    if told.plus_minus is not None and told.plus_minus < 0.5:
        assert told.value == pytest.approx(exact)


def test_kaplan_meier_is_the_product_of_shares() -> None:
    #          lost0 dead0 lost1 dead1 lost2 dead2 followed
    counts = np.array([5.0, 10.0, 8.0, 12.0, 0.0, 6.0, 40.0])
    at_risk = (76.0, 58.0, 46.0)
    values = np.cumprod([1 - 10 / at_risk[0], 1 - 12 / at_risk[1], 1 - 6 / at_risk[2]])
    told = kaplan_meier(counts, noise_variance=0.0)
    np.testing.assert_allclose([point.value for point in told], values)
    variance = sum(d / (n * (n - d)) for d, n in zip((10, 12, 6), at_risk, strict=True))
    assert told[-1].plus_minus == pytest.approx(2 * values[-1] * math.sqrt(variance))
    assert kaplan_meier(np.zeros(7), noise_variance=4.0)[-1].plus_minus == 1.0


def test_people_of_different_silos_are_compared() -> None:
    """Two silos, in each of which everybody has one risk: all order is between them."""
    early = SURVIVAL.metrics(np.full(30, 1.0), np.full(30, 1))
    late = SURVIVAL.metrics(np.full(50, -1.0), np.full(50, 5))
    assert early["c_index"] == late["c_index"] == 0.5
    together = SURVIVAL.pooled([early, late])
    assert together is not None
    assert together["c_index"] == 1.0
    assert together.records == 80


def test_noisy_counts_hold_both_measures_in_95_of_100_measurements() -> None:
    """400 measurements with a fixed seed; 0.95 less three standard errors. The truth is that of many
    people, so that the choice of those who are measured counts.
    """
    draw = np.random.default_rng(5)
    many = 200_000

    def drawn(records: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        x, months, died = people(records, seed)
        return -0.9 + 1.2 * x[:, 0], SURVIVAL.encode(months, died)

    truth = SURVIVAL.exact(*drawn(many, 1))
    held = dict.fromkeys(truth, 0)
    std = 3.73 * SURVIVAL.counts.l2_grid
    for trial in range(400):
        total = SURVIVAL.count(*drawn(2000, 1000 + trial)).sum(axis=0)
        told = SURVIVAL.measured(total + std * draw.normal(size=len(total)), noise_std_grid=std)
        for name in held:
            held[name] += abs(told[name] - truth[name]) <= told.plus_minus[name]
        assert told.plus_minus["c_index"] < 0.2
    assert truth["c_index"] > 0.65
    assert min(held.values()) >= 0.917 * 400


@pytest.mark.parametrize(("scale", "shift"), [(0.1, 0.0), (0.3, 0.0), (1.0, -4.0)])
def test_the_secure_c_index_is_within_its_width_whatever_the_model(
    scale: float, shift: float
) -> None:
    """A model that is not sure enough, and events so rare that risks end in the last open bin."""
    draw = np.random.default_rng(3)
    std = 0.5 * SURVIVAL.counts.l2_grid
    for _ in range(8):
        slope = draw.normal(size=8000)
        hazard = 1.0 / (1.0 + np.exp(2.2 - shift - slope))
        interval = np.minimum(draw.geometric(hazard) - 1, INTERVALS)
        codes = 2 * interval + (interval < INTERVALS)
        outputs = np.repeat((scale * slope - 2.2 + shift)[:, None], INTERVALS, axis=1)
        scores = [one.numpy() for one in SURVIVAL.scores(*map(torch.from_numpy, (outputs, codes)))]
        total = SURVIVAL.count(*scores).sum(axis=0)
        told = SURVIVAL.measured(total + std * draw.normal(size=len(total)), noise_std_grid=std)
        exact = SURVIVAL.exact(*scores)["c_index"]
        assert abs(told["c_index"] - exact) <= told.plus_minus["c_index"]


def test_cut_points_may_be_as_large_as_numbers_go() -> None:
    task = Survival((1e308, 1.7e308))
    assert list(task.encode(np.array([1e308, 1.6e308]), np.array([0, 0]))) == [2, 4]


# -- runs


def test_a_table_is_learned_to_near_the_best_order(tmp_path: Path) -> None:
    """At ε = 8 against the true order, which is the first column; Kaplan–Meier's survival is met."""
    file = table(tmp_path, records=3000)
    options = RunOptions(root=tmp_path, ledger=False)
    run = train(plan_for(file), options=options, simulation=Simulation(1))
    data = load(plan_for(file))
    x, y = (
        np.concatenate([getattr(silo.test, axis) for silo in data.silos]) for axis in ("x", "y")
    )
    best = concordance(x[:, 0].astype(float), y)
    assert run.plan.training.model == "linear"
    assert run.plan.training.dimension == x.shape[1] + INTERVALS
    assert list(run.metrics) == ["c_index", "calibration_error"]
    assert best > 0.65
    assert run.metrics["c_index"] > best - 0.02
    assert run.metrics["calibration_error"] < 0.15
    assert run.baselines["constant"] == 0.5
    assert run.summary()["metrics"]["c_index"] == run.metrics["c_index"]


def test_secure_counts_tell_both_measures_with_their_widths(tmp_path: Path) -> None:
    plan = plan_for(table(tmp_path), **{"evaluation.metrics": "secure", "federation.rounds": 3})
    run = train(plan, options=RunOptions(root=tmp_path, ledger=False), simulation=Simulation(1))
    widths = run.rounds[-1].metrics_plus_minus
    assert 0.0 < widths["c_index"] < 0.5
    assert 0.0 < widths["calibration_error"] <= 1.0
    curve = run.rounds[-1].metrics_tables["kaplan_meier"]
    assert tuple(curve["time"]) == (0.0, *CUTS)
    data = load(plan)
    codes = np.concatenate([silo.test.y for silo in data.silos])
    truth = kaplan_meier(np.bincount(codes, minlength=7).astype(float), noise_variance=0.0)
    for told, width, exact in zip(
        curve["survival"][1:], curve["plus_minus"][1:], truth, strict=True
    ):
        assert abs(told - exact.value) <= width
    page = tmp_path / "report.html"
    write_report([RunFolder.open(run.path)], page)
    text = page.read_text()
    assert "Kaplan–Meier curve of the test records, 3 cut points" in text
    assert "c-index" in text


@pytest.mark.deep
def test_networks_learn_times_given_in_python(tmp_path: Path) -> None:
    """The named linear model and a network of one's own, by clipped noisy steps."""
    x, months, died = people(2400)
    y = np.stack([months, died], axis=1)
    silos = [(x[i::3].astype(np.float32), y[i::3]) for i in range(3)]
    plan = TrainingPlan().with_overrides(
        {
            "training.task": "survival",
            "training.algorithm": "dp-sgd",
            "training.sampling_rate": 0.2,
            "training.learning_rate": 2.0,
            "training.clip_norm": 0.3,
            "federation.rounds": 20,
            "federation.local_steps": 2,
            "privacy.epsilon": 30.0,
            "evaluation.every": 20,
            "data.intervals": list(CUTS),
        }
    )
    network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    options = RunOptions(root=tmp_path, ledger=False)
    for model in (None, network):
        run = train(plan, model=model, silos=silos, options=options, simulation=Simulation(1))
        assert run.metrics["c_index"] > 0.65
        assert not run.plan.without_effect()
    unset = plan.with_overrides({"data.intervals": None})
    with pytest.raises(PlanError, match=r"data\.intervals must say"):
        train(unset, silos=silos, options=options, simulation=Simulation(1))


def test_the_first_model_has_the_public_hazard(tmp_path: Path) -> None:
    """Also where intercepts are multiplied by a bias feature."""
    from sumus.training import prepare

    plan = plan_for(table(tmp_path), **{"training.start_hazard": 0.03})
    for algorithm in ("convex-pass", "dp-sgd"):
        chosen = plan.with_overrides({"training.algorithm": algorithm, "training.model": "linear"})
        ready = prepare(chosen, load(chosen))
        x = torch.from_numpy(ready.data.silos[0].train.x[:4])
        hazards = torch.sigmoid(ready.model(x))
        assert hazards.shape == (4, INTERVALS)
        np.testing.assert_allclose(hazards.detach().numpy(), 0.03, rtol=1e-4)
