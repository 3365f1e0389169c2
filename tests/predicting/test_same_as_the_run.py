"""What a model says of new rows is what its run has measured: the test rows, given as a file again,
score exactly as in the run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from sumus.plan import TrainingPlan
from sumus.predicting import Model, Predictions
from sumus.runs import RunOptions, Simulation, finish, open_run, train
from sumus.tasks.concordance import concordance
from support.local_federation import LocalFederation
from support.predicted_table import CUTS, plan_of, test_rows, write_rows, write_table

CLASSES = (
    'label_column = "state"\ncategories = {sex = ["f", "m"], state = ["well", "so so", "ill"]}'
)
SICK = 'label_column = "sick"\nbounds = {age = [0, 120]}'
PASS = 'algorithm = "convex-pass"\n'
Rows = list[dict[str, str]]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    path = tmp_path_factory.mktemp("predicted") / "t.csv"
    return path, write_table(path)


def numbers(rows: Rows, name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows])


def accuracy(label: str) -> Callable[[Predictions, Rows, np.ndarray], dict[str, float]]:
    def told(said: Predictions, rows: Rows, weights: np.ndarray) -> dict[str, float]:
        right = said["prediction"] == np.array([row[label] for row in rows])
        shares = np.stack([said[name] for name in said.columns if name.startswith("prob")], 1)
        names = [name.partition(":")[2] for name in said.columns if name.startswith("prob")]
        assert shares.sum(1) == pytest.approx(np.ones(len(rows)))
        # the most likely class is the one that is predicted, under its own name
        assert (np.array(names)[shares.argmax(1)] == said["prediction"]).all()
        return {"accuracy": float(np.average(right, weights=weights))}

    return told


def error(label: str, low: float, high: float):
    def told(said: Predictions, rows: Rows, weights: np.ndarray) -> dict[str, float]:
        targets = np.clip(numbers(rows, label), low, high)
        assert set(said.columns) == {"prediction"}
        assert (said["prediction"] >= low).all()
        assert (said["prediction"] <= high).all()
        return {"mae": float(np.average(np.abs(said["prediction"] - targets), weights=weights))}

    return told


def survival(said: Predictions, rows: Rows, weights: np.ndarray) -> dict[str, float]:
    curve = np.stack([said[f"survival:{cut:g}"] for cut in CUTS], 1)
    assert (np.diff(curve, axis=1) <= 0).all()
    assert said["risk"] == pytest.approx(1 - curve[:, -1])
    times, events = numbers(rows, "months"), np.array([row["died"] == "yes" for row in rows])
    interval = np.searchsorted(CUTS, times, side="left")
    middles = [(a + b) / 2 for a, b in zip([0.0, *CUTS], CUTS, strict=False)]
    followed = np.searchsorted(middles, times, side="right")
    codes = np.where(events & (interval < len(CUTS)), 2 * interval + 1, 2 * followed)
    return {"c_index": concordance(said["risk"], codes, None)}


def yes_or_no(said: Predictions, rows: Rows, weights: np.ndarray) -> dict[str, float]:
    right = []
    for name in ("sick", "tall"):
        answers = np.array([row[name] == "yes" for row in rows])
        assert ((said[f"probability:{name}"] > 0.5) == (said[f"prediction:{name}"] == 1)).all()
        right.append(np.average(said[f"prediction:{name}"] == answers, weights=weights))
    return {"accuracy": float(np.mean(right))}


def several(said: Predictions, rows: Rows, weights: np.ndarray) -> dict[str, float]:
    errors = [
        np.average(np.abs(said[f"prediction:{name}"] - np.clip(numbers(rows, name), low, high)))
        / ((high - low) / 2)
        for name, (low, high) in {"weight": (20, 80), "height": (150, 190)}.items()
    ]
    return {"mae": float(np.mean(errors))}


CASES = {
    "softmax": (
        {"data": f"bounds = {{age = [0, 120]}}\n{CLASSES}", "training": PASS},
        accuracy("state"),
    ),
    "one output": ({"data": SICK, "training": PASS + 'model = "logistic"'}, accuracy("sick")),
    "normal equations": (
        {
            "data": SICK + '\ncategories = {sex = ["f", "m"], word = ["w0", "w1"]}',
            "training": 'algorithm = "normal-equations"',
            "federation": "",
        },
        accuracy("sick"),
    ),
    "random features, network": (
        {
            "data": SICK,
            "training": 'algorithm = "dp-sgd"\nfeatures = "random"\nmodel = "mlp"\nsampling_rate = 0.5',
        },
        accuracy("sick"),
    ),
    "persons": (
        {
            "data": SICK + '\nperson_column = "person"\nrecords_per_person = 4',
            "training": PASS,
            "privacy": 'unit = "person"',
        },
        accuracy("sick"),
    ),
    "numbers": (
        {
            "data": 'label_column = "weight"\nbounds = {age = [0, 120], weight = [20, 80]}',
            "training": PASS + 'task = "regression"\nfeature_norm = 2.0',
        },
        error("weight", 20, 80),
    ),
    "counts": (
        {
            "data": 'label_column = "visits"\nbounds = {visits = [0, 6]}',
            "training": PASS + 'task = "counts"',
        },
        error("visits", 0, 6),
    ),
    "survival": (
        {
            "data": f'time_column = "months"\nevent_column = "died"\nintervals = {CUTS}',
            "training": PASS + 'task = "survival"',
        },
        survival,
    ),
    "yes or no": (
        {"data": 'label_columns = ["sick", "tall"]', "training": PASS},
        yes_or_no,
    ),
    "several numbers": (
        {
            "data": 'label_columns = ["weight", "height"]\n'
            "bounds = {weight = [20, 80], height = [150, 190]}",
            "training": PASS + 'task = "regression"',
        },
        several,
    ),
}


def options(root: Path) -> RunOptions:
    return RunOptions(root=root, ledger=False, threads=1)


@pytest.mark.parametrize("case", CASES)
def test_test_rows_score_as_in_the_run(table: tuple[Path, Rows], tmp_path: Path, case: str) -> None:
    path, everything = table
    sections, measured = CASES[case]
    plan = plan_of(path, **sections)
    run = train(plan, options=options(tmp_path), simulation=Simulation(1))
    places, weights, _ = test_rows(plan, path)
    rows = [everything[place] for place in places]
    new = write_rows(tmp_path / "new.csv", rows)
    told = measured(predicted(Model.of_run(run.path), new), rows, weights)
    for name, value in told.items():
        assert value == pytest.approx(run.metrics[name], rel=1e-6 if name == "mae" else 1e-12)


def predicted(model: Model, path: Path) -> Predictions:
    from sumus.data import ReadingRules, read_table

    return model.predictions(read_table(path, ReadingRules())[0])


def test_a_model_in_memory_says_what_the_one_on_the_disk_says(
    table: tuple[Path, Rows], tmp_path: Path
) -> None:
    path, _ = table
    plan = plan_of(path, **CASES["softmax"][0])
    run = train(plan, options=options(tmp_path), simulation=Simulation(1))
    loaded = Model.of_run(run.path)
    one, other = predicted(run.model, path), predicted(loaded, path)
    assert list(one.columns) == ["prediction", *(f"probability:{c}" for c in loaded.labels.names)]
    for name in one.columns:
        assert np.array_equal(one[name], other[name])
    assert loaded.encoding == run.model.encoding
    assert torch.equal(loaded(torch.zeros(1, 101)), run.module(torch.zeros(1, 101)))
    assert "NO GUARANTEE" in one.notes[0]
    assert one.notes == other.notes


@pytest.mark.deep
def test_what_stays_with_silos_is_said(table: tuple[Path, Rows], tmp_path: Path) -> None:
    """Predictions come from the shared part; the run's own measures are of models fitted at home."""
    path, _ = table
    training = PASS + 'local_parameters = "intercept"'
    run = train(
        plan_of(path, data=SICK, training=training),
        options=options(tmp_path),
        simulation=Simulation(1),
    )
    model = Model.of_run(run.path)
    assert any("local_parameters = intercept" in note for note in model.notes)
    with torch.no_grad():
        shared = model.module(torch.from_numpy(model.features(model.rows(frame(path)).part(ALL))))
    assert model.outputs(frame(path)).numpy() == pytest.approx(shared.numpy())


ALL = np.arange(240)


def frame(path: Path) -> dict[str, object]:
    from sumus.data import ReadingRules, read_table

    return dict(read_table(path, ReadingRules())[0])


def test_a_federations_model_encodes_by_its_plan(table: tuple[Path, Rows], tmp_path: Path) -> None:
    """The server sees no record: what it writes of the encoding follows from the plan alone, and is
    what silos encoded by.
    """
    path, _ = table
    plan = plan_of(
        path,
        data=(
            'label_column = "sick"\ncounts = "bounded"\nrecords_per_silo = [80, 80, 80]\n'
            "bounds = {age = [0, 120], dose = [-300, 300]}\n"
            'categories = {silo = ["a", "b", "c"], sick = ["no", "yes"], sex = ["m", "f"], '
            'word = ["w0", "w1", "w2"]}'
        ),
        training=PASS,
        federation="silos = 3\nrounds = 2",
        evaluation='metrics = "none"',
    )
    from sumus.parties import agree_on

    agreed: TrainingPlan = agree_on(plan).plan
    federation = LocalFederation(tmp_path / "across", agreed)
    try:
        server = federation.server()
        server.greet()
        with open_run(
            federation.agreement, federation.roster, tmp_path / "runs", simulated=False
        ) as run:
            list(server.train(run))
            finish(run, server)
    finally:
        federation.close()
    model = Model.of_run(run.path)
    *_, data = test_rows(plan, path)
    assert model.encoding == data.encoding
    assert model.labels == data.labels
    assert set(model.predict(frame(path), warn=False)) <= {"no", "yes"}
    silo = data.silos[0].test
    direct = model.module(torch.from_numpy(model.features(silo.x))).detach()
    rows = [place for place, _ in zip(test_rows(plan, path)[0], silo.x, strict=False)]
    assert model.outputs(frame(path))[rows].numpy() == pytest.approx(direct.numpy())
