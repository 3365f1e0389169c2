"""Measures of classifiers: in the clear against slow definitions, through noise against the truth.

Simulations have fixed seeds, so they come out the same in every run; the shares that they are held
to leave six standard errors of 200 draws.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn import metrics as oracle

from sumus.tasks import TASKS, Declared, Metrics, Task
from sumus.tasks.rankings import auroc, average_precision
from sumus.tasks.score_bins import (
    MIDDLES,
    PER_SIDE,
    SCORE_BINS,
    confidence_bin,
    group_of,
    magnitude_bin,
    probability,
)
from sumus.tasks.score_tree import HEAD, score_tree
from sumus.tasks.silo_spread import exact_spread, noisy_spread, spread_of_silo

DRAWS = 200
HIT = 0.857  # 0.95 less six standard errors; the intervals are wider anyway


def counting(classes: int) -> Task:
    return TASKS["classification"].of(Declared({}, classes=classes))


def drawn(
    n: int, *, share: float, apart: float, heat: float = 1.0, seed: int = 0
) -> list[np.ndarray]:
    """Scores of a made-up risk model: log-odds of two normal laws, right up to `heat`."""
    draw = np.random.default_rng(seed)
    labels = (draw.random(n) < share).astype(np.int64)
    logits = math.log(share / (1 - share)) + apart * (draw.normal(size=n) + apart * labels)
    logits = heat * (logits - apart**2 / 2)
    task = counting(2)
    return [
        each.numpy()
        for each in task.scores(torch.from_numpy(logits)[:, None], torch.from_numpy(labels))
    ]


def many_classes(n: int, classes: int, seed: int = 0) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    labels = torch.from_numpy(draw.integers(0, classes, n))
    logits = torch.from_numpy(1.3 * draw.normal(size=(n, classes)))
    logits[torch.arange(n), labels] += 1.5
    return [each.numpy() for each in counting(classes).scores(logits, labels)]


# -- in the clear


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_ranks_are_those_of_all_pairs_and_all_thresholds(data: st.DataObject) -> None:
    """Against the definitions, ties and infinities included, with weights and without."""
    n = data.draw(st.integers(2, 25))
    scores = np.array(
        data.draw(
            st.lists(
                st.sampled_from([-np.inf, -2.0, 0.0, 0.5, 3.0, np.inf]), min_size=n, max_size=n
            )
        )
    )
    cases = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    weights = np.array(
        data.draw(st.lists(st.sampled_from([0.25, 0.5, 1.0]), min_size=n, max_size=n))
    )
    found = auroc(cases, scores, weights), average_precision(cases, scores, weights)
    if not cases.any():
        assert found == (None, None)
        return
    if cases.all():
        assert found == (None, 1.0)
        return
    won = sum(
        weights[i] * weights[j] * (1.0 if scores[i] > scores[j] else 0.5)
        for i, j in itertools.product(range(n), repeat=2)
        if cases[i] and not cases[j] and scores[i] >= scores[j]
    )
    pairs = weights[cases].sum() * weights[~cases].sum()
    precision, recalled = 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        above = scores >= threshold
        recall = weights[above & cases].sum() / weights[cases].sum()
        precision += (recall - recalled) * weights[above & cases].sum() / weights[above].sum()
        recalled = recall
    assert found == pytest.approx((won / pairs, precision))


def test_measures_in_the_clear_are_those_of_scikit_learn() -> None:
    scores = drawn(700, share=0.2, apart=1.2)
    _, _, labels, said = scores
    chances, found = probability(said), counting(2).exact(*scores)
    assert found["auroc"] == pytest.approx(oracle.roc_auc_score(labels, said))
    assert found["average_precision"] == pytest.approx(oracle.average_precision_score(labels, said))
    assert found["brier"] == pytest.approx(oracle.brier_score_loss(labels, chances))
    assert found["loss"] == pytest.approx(oracle.log_loss(labels, chances))
    weights = np.random.default_rng(1).random(700)
    found = counting(2).exact(*scores, weights=weights)
    assert found["auroc"] == pytest.approx(
        oracle.roc_auc_score(labels, said, sample_weight=weights)
    )
    assert found["average_precision"] == pytest.approx(
        oracle.average_precision_score(labels, said, sample_weight=weights)
    )
    correct, losses, labels, said = many_classes(500, 5)
    found = counting(5).exact(correct, losses, labels, said)
    assert found["auroc"] == pytest.approx(oracle.roc_auc_score(labels, said, multi_class="ovr"))
    single = np.eye(5)[labels]
    assert found["average_precision"] == pytest.approx(
        oracle.average_precision_score(single, said, average="macro")
    )
    assert found["brier"] == pytest.approx(((said - single) ** 2).sum(axis=1).mean())
    assert found["accuracy"] == pytest.approx(oracle.accuracy_score(labels, said.argmax(1)))


def test_what_is_not_a_number_is_as_wrong_as_can_be() -> None:
    for classes in (2, 4):
        outputs = 1 if classes == 2 else classes
        labels = torch.arange(classes).repeat(3)
        scores = counting(classes).scores(torch.full((3 * classes, outputs), torch.nan), labels)
        found = counting(classes).exact(*(each.numpy() for each in scores))
        assert found["accuracy"] == 0.0
        assert found["auroc"] == 0.0
        assert found["brier"] == (1.0 if classes == 2 else 2.0)
        assert found["calibration_error"] == 1.0


def test_one_class_alone_has_no_ranks_but_everything_else() -> None:
    scores = drawn(50, share=0.3, apart=1.0)
    found = counting(2).exact(*(each[scores[2] == 0] for each in scores))
    assert set(found) == {"accuracy", "loss", "brier", "calibration_error"}


def test_calibration_in_the_clear_is_that_of_its_groups() -> None:
    scores = drawn(900, share=0.3, apart=1.5, heat=2.0)
    _, _, labels, said = scores
    groups, chances = group_of(said), probability(said)
    expected = sum(abs((labels - chances)[groups == group].sum()) for group in range(16)) / len(
        labels
    )
    assert counting(2).exact(*scores)["calibration_error"] == pytest.approx(expected)
    cool = drawn(900, share=0.3, apart=1.5)
    assert counting(2).exact(*cool)["calibration_error"] < 0.7 * expected


# -- bins and tree


@settings(max_examples=200, deadline=None)
@given(st.floats(width=32) | st.sampled_from([0.0, -0.0, 0.2, -4.0, 8.4]))
def test_every_score_has_its_bin_and_keeps_to_it(score: float) -> None:
    said = np.array([score])
    near = int(magnitude_bin(said)[0])
    assert 0 <= near < PER_SIDE
    assert 0 <= int(confidence_bin(said)[0]) < 16
    if math.isnan(score):
        assert near == PER_SIDE - 1
        return
    place = PER_SIDE + near if score > 0 else PER_SIDE - 1 - near
    chance = float(probability(said)[0])
    low, high = MIDDLES[max(place - 1, 0)], MIDDLES[min(place + 1, SCORE_BINS - 1)]
    assert low <= chance <= high or place in (0, SCORE_BINS - 1)
    assert int(group_of(said)[0]) == place // 4


def test_the_tree_is_a_histogram_in_other_coordinates() -> None:
    scores = drawn(2000, share=0.3, apart=1.5)
    correct, _, labels, said = scores
    total = counting(2).count(*scores).sum(axis=0).astype(float)
    noisy = score_tree().cells(total, noise_std_grid=1.0)
    near = magnitude_bin(said)
    bins = np.where(said > 0, PER_SIDE + near, PER_SIDE - 1 - near)
    expected = np.zeros((2, SCORE_BINS))
    np.add.at(expected, (labels, bins), 1)
    np.testing.assert_allclose(noisy.cells, expected, atol=1e-9)
    np.testing.assert_allclose(score_tree().plausible(noisy), expected, atol=1e-9)
    assert expected[1, PER_SIDE:].sum() + expected[0, :PER_SIDE].sum() == correct.sum()


def test_plausible_cells_are_no_negative_numbers_and_as_many_as_all() -> None:
    draw = np.random.default_rng(3)
    tree = score_tree()
    for std in (1.0, 3e3, 1e6):
        total = std * draw.normal(size=tree.shape.length)
        noisy = tree.cells(total, noise_std_grid=std)
        kept = tree.plausible(noisy)
        assert kept.min() >= 0.0
        assert kept.sum() == pytest.approx(max(float(noisy.cells.sum()), 0.0))


def test_the_noise_of_a_sum_of_cells_is_what_is_said() -> None:
    """Of 200 draws the standard deviation is known to 5 %, six of which are 30 %."""
    tree, draw = score_tree(), np.random.default_rng(4)
    slope = draw.normal(size=(2, SCORE_BINS))
    values, noisy = [], None
    for _ in range(DRAWS):
        noisy = tree.cells(100.0 * draw.normal(size=tree.shape.length), noise_std_grid=100.0)
        values.append(float((noisy.cells * slope).sum()))
    assert noisy is not None
    said = math.sqrt(noisy.noise_of(slope, slope))
    assert np.std(values) == pytest.approx(said, rel=0.3)


# -- through noise


def told(task: Task, scores: list[np.ndarray], multiplier: float, seed: int) -> list[Metrics]:
    """Many measurements of the same records."""
    total = task.count(*scores).sum(axis=0).astype(float)
    std, draw = multiplier * task.counts.l2_grid, np.random.default_rng(seed)
    return [
        task.measured(total + std * draw.normal(size=len(total)), noise_std_grid=std)
        for _ in range(DRAWS)
    ]


CASES = {
    "rare": {"n": 4000, "share": 0.057, "apart": 1.0},
    "very rare": {"n": 20_000, "share": 0.01, "apart": 1.3},
    "even": {"n": 4000, "share": 0.5, "apart": 1.5},
    "few": {"n": 400, "share": 0.3, "apart": 1.5},
    "too sure": {"n": 4000, "share": 0.2, "apart": 0.4, "heat": 3.0},
    "many": {"n": 100_000, "share": 0.05, "apart": 2.0, "heat": 0.5},
}


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "multiplier"),
    [
        pytest.param(
            name, multiplier, marks=[pytest.mark.long] * (name != "rare" and multiplier != 3.73)
        )
        for name in CASES
        for multiplier in (0.01, 3.73, 12.0)
    ],
)
def test_the_truth_of_the_records_is_within_every_interval(name: str, multiplier: float) -> None:
    """3.73 is ε = 1 at δ = 1e-5; the loss is the capped one."""
    task, scores = counting(2), drawn(**CASES[name])  # type: ignore[arg-type]
    truth = task.exact(*scores) | {"loss": float(np.minimum(scores[1], 4.0).mean())}
    found = told(task, scores, multiplier, seed=5)
    assert set(found[0].values) == set(truth)
    for measure, value in truth.items():
        inside = [abs(each[measure] - value) <= each.plus_minus[measure] for each in found]
        assert np.mean(inside) >= HIT, measure


@pytest.mark.parametrize("multiplier", [0.01, 3.73])
@pytest.mark.parametrize("classes", [3, 10, 40])
def test_the_truth_of_many_classes_is_within_every_interval(
    classes: int, multiplier: float
) -> None:
    task, scores = counting(classes), many_classes(3000, classes)
    truth = task.exact(*scores) | {"loss": float(np.minimum(scores[1], 4.0).mean())}
    found = told(task, scores, multiplier, seed=6)
    assert set(found[0].values) == {"accuracy", "loss", "brier", "calibration_error"}
    for measure in found[0].values:
        inside = [abs(each[measure] - truth[measure]) <= each.plus_minus[measure] for each in found]
        assert np.mean(inside) >= HIT, measure
    correct, _, labels, said = scores
    recall = np.bincount(labels, weights=correct, minlength=classes) / np.bincount(labels)
    answers = np.bincount(said.argmax(1), minlength=classes)
    precision = np.bincount(labels, weights=correct, minlength=classes) / np.maximum(answers, 1)
    for name, exact in (("recall", recall), ("precision", precision)):
        rows = [each.tables["classes"] for each in found]
        values = np.array([row[name] for row in rows])
        widths = np.array([row[f"{name}_plus_minus"] for row in rows])
        assert (np.abs(values - exact) <= widths + 1e-6).mean() >= HIT
    assert ("confusion" in found[0].tables) == (classes <= 32)


@pytest.mark.deep
def test_the_choice_of_records_is_within_the_intervals_too() -> None:
    """New records in every draw, against the AUROC of the population: Φ(apart/√2)."""
    from scipy.stats import norm

    task, apart, std = counting(2), 1.2, 3.73 * counting(2).counts.l2_grid
    draw, inside = np.random.default_rng(7), []
    for number in range(DRAWS):
        scores = drawn(1500, share=0.3, apart=apart, seed=1000 + number)
        total = task.count(*scores).sum(axis=0).astype(float)
        found = task.measured(total + std * draw.normal(size=len(total)), noise_std_grid=std)
        truth = float(norm.cdf(apart / math.sqrt(2.0)))
        inside.append(abs(found["auroc"] - truth) <= found.plus_minus["auroc"])
    assert np.mean(inside) >= HIT


@pytest.mark.deep
def test_tables_say_what_the_records_do() -> None:
    scores = drawn(5000, share=0.3, apart=1.5)
    correct, _, labels, said = scores
    pooled = counting(2).pooled([counting(2).metrics(*scores)])
    assert pooled is not None
    (found, *_) = told(counting(2), scores, 0.01, seed=8)
    for tables, exact in ((pooled.tables, True), (found.tables, False)):
        truth = oracle.confusion_matrix(labels, said > 0)
        told_counts = np.reshape(tables["confusion"]["true_by_predicted"], (2, 2))
        assert np.abs(told_counts - truth).max() <= (0 if exact else 3)
        alarms, hits, _ = oracle.roc_curve(labels, said)
        rates = tables["roc"]
        assert rates["false_positive_rate"][0] == rates["true_positive_rate"][0] == 0.0
        assert rates["false_positive_rate"][-1] == rates["true_positive_rate"][-1] == 1.0
        near = np.interp(rates["true_positive_rate"], hits, alarms)
        assert np.abs(near - rates["false_positive_rate"]).max() < 0.03
        shares = tables["classes"]["share"]
        assert shares[1] == pytest.approx(labels.mean(), abs=0.001)
        assert tables["classes"]["recall"][1] == pytest.approx(
            correct[labels == 1].mean(), abs=0.01
        )
        reliability = tables["reliability"]
        gaps = np.abs(np.subtract(reliability["predicted"], reliability["observed"]))
        assert (gaps <= np.add(reliability["plus_minus"], 0.03)).mean() > 0.8
    constant = pooled.baseline
    assert constant["accuracy"] == pytest.approx(max(labels.mean(), 1 - labels.mean()), abs=1e-5)
    assert constant["average_precision"] == pytest.approx(labels.mean(), abs=1e-5)
    assert constant["auroc"] == 0.5
    chances = np.full(len(labels), labels.mean())
    assert constant["brier"] == pytest.approx(oracle.brier_score_loss(labels, chances), abs=1e-5)
    assert constant["loss"] == pytest.approx(oracle.log_loss(labels, chances), abs=1e-5)


def test_accuracy_is_about_as_sure_as_from_three_counts_of_its_own() -> None:
    """Three centred counts (±2, 2, t) of length 3 tell accuracy alone and nothing of ranks; two
    standard deviations were their ±. Where the choice of records is the larger error, all of this
    costs at most 1 %.
    """
    task = counting(2)
    weight = 9 * 56 / task.counts.l2_grid
    for n, share, multiplier in ((1000, 0.8, 3.73), (4000, 0.8, 3.73), (4000, 0.95, 3.73)):
        spread = 2.0 * (share - 0.5)
        chosen = share * (1.0 - share) / n
        alone = 2.0 * math.sqrt(chosen + (multiplier * 1.5 / 2 / n) ** 2 * (1 + spread**2))
        both = 1.96 * math.sqrt(chosen + (multiplier / weight / 2 / n) ** 2 * (1 + spread**2))
        assert both <= 1.01 * alone


# -- between silos


def test_a_record_moves_its_silos_part_in_the_spread_by_half_a_record() -> None:
    """Every silo of up to 60 records, by enumeration, in whole grid steps; the bound is reached."""
    unit, largest = 9 * 56, 0
    for n in range(61):
        for right in range(n + 1):
            before = spread_of_silo(unit * n, unit * (2 * right - n))
            assert 0 <= before <= 2 * 56 * n
            for sign in (1, -1):
                after = spread_of_silo(unit * (n + 1), unit * (2 * right - n + sign))
                largest = max(largest, abs(after - before))
    assert largest == 2 * 56


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**7), st.floats(0.0, 1.0), st.sampled_from([1, -1]))
def test_so_it_does_in_silos_of_any_size(n: int, share: float, sign: int) -> None:
    unit, signed = 9 * 56, 2 * round(share * n) - n
    before = spread_of_silo(unit * n, unit * signed)
    after = spread_of_silo(unit * (n + 1), unit * (signed + sign))
    assert abs(after - before) <= 2 * 56


@pytest.mark.parametrize("apart", [0.0, 0.05, 0.15])
def test_the_spread_over_silos_is_that_of_their_true_accuracies(apart: float) -> None:
    """New records in every draw: 30 silos of 400 records whose chances of being right differ."""
    task, draw, inside, values = counting(2), np.random.default_rng(9), [], []
    chances = np.clip(0.75 + apart * np.linspace(-1.7, 1.7, 30), 0.0, 1.0)
    truth = float(np.std(chances))
    std = 3.73 * task.counts.l2_grid
    for _ in range(DRAWS):
        right = draw.binomial(400, chances)
        total = np.zeros(HEAD)
        for each in right:
            total += [504 * 400, 504 * (2 * each - 400), 0, 0, 0]
            total[4] += spread_of_silo(504 * 400, 504 * (2 * int(each) - 400))
        clear = exact_spread(right / 400.0, np.full(30, 400.0))
        found = noisy_spread(total + std * draw.normal(size=HEAD), 4, noise_std_grid=std, silos=30)
        quiet = noisy_spread(total, 4, noise_std_grid=0.0, silos=30)
        assert quiet.value == pytest.approx(clear, abs=0.003)
        values.append(clear)
        inside.append(abs(found.value - truth) <= (found.plus_minus or 0.0))
    assert np.mean(inside) >= HIT
    assert np.mean(values) == pytest.approx(truth, abs=0.02)


def test_without_records_the_spread_is_unknown() -> None:
    assert spread_of_silo(0, 0) == 0
    found = noisy_spread(np.zeros(HEAD), 4, noise_std_grid=3000.0, silos=5)
    assert (found.value, found.plus_minus) == (0.25, 0.25)


def test_a_ranking_within_a_bin_is_within_the_interval() -> None:
    """A hundred thousand records in one bin, all cases above all controls: what bins hide is half
    of everything.
    """
    labels = torch.arange(100_000) % 2
    said = 0.1 + 0.05 * labels.to(torch.float64)
    scores = [each.numpy() for each in counting(2).scores(said[:, None], labels)]
    total = counting(2).count(*scores).sum(axis=0).astype(float)
    found = counting(2).measured(total, noise_std_grid=0.0)
    assert counting(2).exact(*scores)["auroc"] == 1.0
    assert found["auroc"] == pytest.approx(0.5)
    for name in ("auroc", "average_precision"):
        assert abs(1.0 - found[name]) <= found.plus_minus[name] + 1e-9
