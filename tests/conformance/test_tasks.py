"""Every task of `TASKS` is tested by being there: loss, gradient, prediction, counts, measures.

Labels are drawn by `Task.read` from a made-up column, so that a task says itself what they look
like; outputs are random, extreme and not finite.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from sumus.errors import SumusError
from sumus.gradients import PerRecordGradients
from sumus.gradients.kernels import to_residuals
from sumus.plan import TrainingPlan
from sumus.tasks import TASKS, Categories, Declared, Labels, Link, Task

pytestmark = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
RECORDS = 40
MODELS = ("softmax", "linear", "logistic")


@dataclass(frozen=True)
class MadeUp:
    """A column that can be read as anything: names 0 … kinds − 1 in turn, and the same numbers."""

    kinds: int
    name: str = "label"
    in_a_row: int = 1

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, float(self.kinds - 1)

    def categories(self) -> Categories:
        names = tuple(map(str, range(self.kinds)))
        return Categories(names, self.positions, declared=True, numeric=True)

    def numbers(self) -> np.ndarray:
        return self.positions.astype(np.float64)

    @property
    def positions(self) -> np.ndarray:
        return np.arange(RECORDS) // self.in_a_row % self.kinds


def made_up(task: Task, kinds: int) -> Labels:
    """A task that reads several columns gets a question of yes or no in all but the first."""
    first, *others = task.label_keys
    columns = {first: MadeUp(kinds)} | {key: MadeUp(2, key, in_a_row=3) for key in others}
    return task.read(columns)


def declared(task: Task, kinds: int) -> Task:
    """The task as a resolved plan declares it."""
    return task.of(Declared(dict.fromkeys(task.label_keys), classes=kinds))


def cases(task: Task) -> Iterator[tuple[str, Labels, int]]:
    """Every named linear model with two kinds of labels and with five, where the task takes it."""
    for kinds in (2, 5):
        labels = made_up(task, kinds)
        for model in MODELS:
            try:
                outputs = task.outputs(labels.facts, model)
            except SumusError:  # a model for two classes
                continue
            yield model, labels, outputs


def tensors(labels: Labels, outputs: int, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(outputs)
    z = scale * torch.randn(RECORDS, outputs, generator=draw, dtype=torch.float64)
    return z, torch.from_numpy(labels.values)


def test_labels_are_stored_as_the_task_says(task: Task) -> None:
    for _, labels, outputs in cases(task):
        assert labels.values.dtype == np.dtype(task.label_type)
        assert len(labels.values) == RECORDS
        task.check(labels.values, outputs)
        task.check(labels.values[:0], outputs)
        task.check_outputs(outputs, labels.facts)
        with pytest.raises(SumusError, match="outputs"):
            task.check_outputs(outputs + 7, labels.facts)


def test_the_loss_is_finite_and_a_sum_over_records(task: Task) -> None:
    for _, labels, outputs in cases(task):
        z, y = tensors(labels, outputs)
        together = task.loss(z, y)
        assert together.shape == (RECORDS,)
        assert bool(torch.isfinite(together).all())
        alone = torch.cat([task.loss(z[j : j + 1], y[j : j + 1]) for j in range(RECORDS)])
        torch.testing.assert_close(together, alone)
        torch.testing.assert_close(task.mean_loss(z, y), together.mean())


def test_the_output_gradient_is_that_of_the_loss(task: Task) -> None:
    """Against central differences; a step of 1e-6 leaves an error below 1e-8 where third
    derivatives are at most 1.
    """
    step = 1e-6
    for _, labels, outputs in cases(task):
        z, y = tensors(labels, outputs)
        gradient = task.output_gradient(z, y)
        assert gradient.shape == z.shape
        for k in range(outputs):
            shift = torch.zeros_like(z)
            shift[:, k] = step
            slope = (task.loss(z + shift, y) - task.loss(z - shift, y)) / (2.0 * step)
            torch.testing.assert_close(gradient[:, k], slope, rtol=0.0, atol=1e-7)


def test_the_compiled_residual_is_the_gradient_in_torch(task: Task) -> None:
    for _, labels, outputs in cases(task):
        link = task.link(outputs)
        if link is None:
            continue
        z, y = tensors(labels, outputs, scale=5.0)
        residuals = z.to(torch.float32).numpy().copy()
        to_residuals(residuals, labels.values.reshape(RECORDS, -1), int(link))
        expected = task.output_gradient(z.to(torch.float32), y).numpy()
        np.testing.assert_allclose(residuals, expected, rtol=0.0, atol=1e-6)


def test_the_numbers_of_links_are_those_of_the_compiled_loops(task: Task) -> None:
    """Compiled code is kept on disk until its own file changes, so it cannot read them off `Link`."""
    from sumus.gradients import kernels

    told = (kernels._SOFTMAX, kernels._LOGISTIC, kernels._HUBER, kernels._EXPONENTIAL)
    assert told == (Link.SOFTMAX, Link.LOGISTIC, Link.HUBER, Link.EXPONENTIAL)
    assert len(Link) == 5, "a link more needs a loop of its own, or no link"


@pytest.mark.deep
def test_every_path_gives_the_same_clipped_sum(task: Task) -> None:
    """The compiled loop of a linear model, the layered path and the general one, which never sees a
    closed form.
    """
    for _, labels, outputs in cases(task):
        draw = torch.Generator().manual_seed(1)
        x = torch.randn(RECORDS, 6, generator=draw)
        theta = 0.3 * torch.randn(7 * outputs, generator=draw)

        class Own(nn.Module):
            def __init__(self, outputs: int = outputs) -> None:
                super().__init__()
                self.head = nn.Linear(6, outputs)

            def forward(self, records: torch.Tensor) -> torch.Tensor:
                return self.head(records)

        sums = [
            PerRecordGradients(model, loss=task).clipped_sum(
                theta, x, torch.from_numpy(labels.values), clip_norm=0.5, resolution=1 << 16
            )
            for model in (nn.Sequential(nn.Linear(6, outputs)), Own())
        ]
        assert sums[0].clipped == sums[1].clipped
        difference = (sums[0].integers - sums[1].integers).abs().max()
        assert int(difference) <= RECORDS, "at most a grid step a record"


def test_a_prediction_is_a_label(task: Task) -> None:
    for _, labels, outputs in cases(task):
        z, y = tensors(labels, outputs)
        predicted = task.predict(z)
        assert predicted.shape == y.shape
        task.check(predicted.to(y.dtype).numpy(), outputs)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_record_adds_more_to_the_counts_than_is_declared(
    task: Task, data: st.DataObject
) -> None:
    """In integers, so that no rounding hides an excess; outputs may be huge, infinite or not a
    number.
    """
    kinds = data.draw(st.sampled_from([2, 5]))
    labels = made_up(task, kinds)
    outputs = task.outputs(labels.facts, data.draw(st.sampled_from(["softmax", "linear"])))
    numbers = st.floats(width=32) | st.sampled_from([0.0, 3e38, -3e38, 1e-45])
    z = torch.tensor(
        data.draw(
            st.lists(
                st.lists(numbers, min_size=outputs, max_size=outputs), min_size=1, max_size=RECORDS
            )
        ),
        dtype=torch.float32,
    )
    scores = task.scores(z, torch.from_numpy(labels.values[: len(z)]))
    assert all(len(score) == len(z) for score in scores)
    task = declared(task, kinds)
    rows = task.count(*(score.numpy() for score in scores))
    assert rows.shape == (len(z), task.counts.length)
    assert rows.dtype == np.int64
    for row in rows.tolist():
        assert sum(value * value for value in row) <= task.counts.l2_grid**2
        assert max(map(abs, row)) <= task.counts.largest_grid


def test_exact_counts_tell_what_a_direct_computation_tells(task: Task) -> None:
    """Without noise what is left open is the choice of records and the grid, well within ±; outputs
    are small, because a count may cap what is far off.
    """
    for _, labels, outputs in cases(task):
        z, y = tensors(labels, outputs, scale=0.3)
        scores = [score.numpy() for score in task.scores(z, y)]
        exact = task.exact(*scores)
        counting = declared(task, len(labels.facts.names) or 2)
        total = counting.count(*scores).sum(axis=0).astype(np.float64)
        counted = counting.measured(total, noise_std_grid=0.0)
        assert counted.records == RECORDS
        assert set(counted.values) <= set(exact) == {measure.name for measure in task.measures}
        for name in counted.values:
            scale = counting.exact(*scores)[name]
            assert abs(counted[name] - scale) <= counted.plus_minus[name]
        pooled = task.pooled([task.metrics(*scores)] * 3)
        assert pooled is not None
        assert pooled.records == 3 * RECORDS
        assert {name: pooled[name] for name in exact} == pytest.approx(exact)
        assert set(pooled.values) - set(exact) <= ({task.spread.name} if task.spread else set())
    assert task.pooled([]) is None


def test_a_row_may_be_part_of_a_person(task: Task) -> None:
    """Rows that are repeated with a fraction of their weight change nothing; what a row weighs
    matters.
    """
    for _, labels, outputs in cases(task):
        z, y = tensors(labels, outputs)
        scores = [score.numpy() for score in task.scores(z, y)]
        times = np.arange(RECORDS) % 3 + 1
        repeated = [np.repeat(score, times, axis=0) for score in scores]
        weights = np.repeat(1.0 / times, times)
        exact, whole = task.exact(*scores), task.metrics(*repeated, weights=weights)
        assert whole.numbers == pytest.approx(exact)
        assert whole.records == RECORDS
        assert task.exact(*scores, weights=np.ones(RECORDS)) == pytest.approx(exact)
        assert task.exact(*repeated) != pytest.approx(exact)
        pooled = task.pooled([whole] * 2)
        assert pooled is not None
        assert pooled.records == 2 * RECORDS
        assert {name: pooled[name] for name in exact} == pytest.approx(exact)
        assert set(pooled.values) - set(exact) <= ({task.spread.name} if task.spread else set())


def test_noise_widens_what_is_told_and_never_breaks_it(task: Task) -> None:
    for kinds in (2, 5):
        counting = declared(task, kinds)
        length = counting.counts.length
        for total in (np.zeros(length), -1e9 * np.ones(length), 1e9 * np.ones(length)):
            told = counting.measured(total, noise_std_grid=float(counting.counts.l2_grid))
            assert all(math.isfinite(value) for value in told.numbers.values())
            assert all(width > 0.0 for width in told.plus_minus.values())
            assert json.dumps(told.tables, allow_nan=False)


def test_names_are_plain_words_that_json_can_hold(task: Task) -> None:
    names = [task.name, task.constant[0], *(measure.name for measure in task.measures)]
    assert json.loads(json.dumps(names)) == names
    assert all(name == name.strip().lower() and name.isprintable() for name in names)
    assert len(set(names)) == len(names)
    assert TASKS[task.name] is task
    assert TrainingPlan.from_table({"training": {"task": task.name}}).task is task
    for measure in task.measures:
        assert measure.text(0.5, 0.1)
        assert task.measure(measure.name, field="--objective") is measure


def test_a_constant_prediction_is_no_better_than_the_best_measure(task: Task) -> None:
    labels = made_up(task, 2).values
    assert math.isfinite(task.baseline(labels, labels))


def test_the_curvature_bounds_gradients_and_their_change(task: Task) -> None:
    """Random pairs of weights and records at their largest norm, against the declared C and β."""
    draw = np.random.default_rng(0)
    bound = 1.7
    for model, labels, outputs in cases(task):
        curvature = task.curvature(model, feature_bound=bound, residual_cap=1.0)
        if curvature is None:
            continue
        x = draw.normal(size=(RECORDS, 4))
        x *= bound / np.linalg.norm(x, axis=1, keepdims=True)
        y = torch.from_numpy(labels.values)
        for scale in (0.01, 1.0, 30.0):
            first = scale * draw.normal(size=(outputs, 4))
            second = first + 0.1 * draw.normal(size=first.shape)
            slopes = [
                task.output_gradient(torch.from_numpy(x @ weights.T), y).numpy()
                for weights in (first, second)
            ]
            norms = np.linalg.norm(slopes[0], axis=1) * np.linalg.norm(x, axis=1)
            assert norms.max() <= curvature.gradient_norm * (1.0 + 1e-9)
            change = np.linalg.norm(slopes[0] - slopes[1], axis=1) * np.linalg.norm(x, axis=1)
            limit = curvature.smoothness * np.linalg.norm(first - second)
            assert change.max() <= limit * (1.0 + 1e-9)
