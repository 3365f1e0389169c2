"""Every format predicts what the model predicts, on rows of all kinds, or is refused in one line."""

from __future__ import annotations

import io
import json
import pickle
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from sumus.errors import DataError, PlanError  # noqa: E402
from sumus.exporting.onnx_graph import onnx_bytes, takes_columns  # noqa: E402
from sumus.exporting.sklearn_pipeline import sklearn_bytes  # noqa: E402
from sumus.exporting.torch_program import torch_bytes  # noqa: E402
from sumus.exporting.weights import safetensors_bytes  # noqa: E402
from sumus.tasks import LabelFacts  # noqa: E402
from support.made_up_models import FILE, HASHED, made_up, rows  # noqa: E402

TWO, THREE = LabelFacts(names=("no", "yes")), LabelFacts(names=("red", "blue", "green"))
DIGITS = LabelFacts(names=("0", "1", "2"))
CONVEX, STEPS = {"algorithm": "convex-pass"}, {"algorithm": "dp-sgd"}
SOLVED = {"algorithm": "normal-equations"}
NUMBER = {"task": "regression", "model": "linear"}
NUMBERS = {
    "path": "v.csv",
    "silo_column": "clinic",
    "label_columns": ["kg", "cm"],
    "bounds": {"kg": [30, 110], "cm": [140, 200]},
}
BOUNDS = LabelFacts(bounds=((10.0, 50.0),))
COST = {**FILE, "bounds": {"label": [10, 50]}}
VISITS = {**FILE, "bounds": {"label": [0, 50]}}
TIMES = {
    "path": "v.csv",
    "silo_column": "clinic",
    "time_column": "t",
    "event_column": "e",
    "intervals": [6, 12, 24],
}

MODELS = {
    "logistic": lambda: made_up({**CONVEX, "model": "logistic"}, FILE, labels=TWO),
    "softmax of two": lambda: made_up({**CONVEX, "model": "softmax"}, FILE, labels=TWO),
    "softmax": lambda: made_up({**CONVEX, "model": "softmax"}, FILE, labels=THREE),
    "squares of two": lambda: made_up({**SOLVED, "model": "linear"}, FILE, labels=TWO),
    "squares of two, unsorted": lambda: made_up(
        {**SOLVED, "model": "linear"}, FILE, labels=LabelFacts(names=("yes", "no"))
    ),
    "squares of three": lambda: made_up({**SOLVED, "model": "softmax"}, FILE, labels=THREE),
    "matrices of two": lambda: made_up({**SOLVED, "model": "logistic"}, FILE, labels=TWO),
    "numbered classes": lambda: made_up({**CONVEX, "model": "softmax"}, FILE, labels=DIGITS),
    "plain softmax": lambda: made_up({**STEPS, "model": "softmax"}, FILE, labels=THREE),
    "mlp": lambda: made_up({**STEPS, "model": "mlp", "hidden": [5, 4]}, FILE, labels=THREE),
    "mlp of two": lambda: made_up({**STEPS, "model": "mlp"}, FILE, labels=TWO),
    "regression": lambda: made_up(
        {**CONVEX, **NUMBER, "feature_norm": 5**0.5}, COST, labels=BOUNDS
    ),
    "mlp of a number": lambda: made_up({**STEPS, **NUMBER, "model": "mlp"}, COST, labels=BOUNDS),
    "several numbers": lambda: made_up(
        {**CONVEX, **NUMBER, "feature_norm": 5**0.5},
        NUMBERS,
        labels=LabelFacts(bounds=((30.0, 110.0), (140.0, 200.0)), columns=("kg", "cm")),
    ),
    "counts": lambda: made_up(
        {**CONVEX, "task": "counts", "model": "linear", "feature_norm": 5**0.5},
        VISITS,
        labels=LabelFacts(bounds=((0.0, 50.0),)),
    ),
    "shortened": lambda: made_up(
        {**CONVEX, "model": "logistic", "feature_norm": 1.5}, FILE, labels=TWO
    ),
    "several labels": lambda: made_up(
        {**CONVEX, "model": "linear"},
        {"path": "v.csv", "silo_column": "clinic", "label_columns": ["cough", "rash"]},
        labels=LabelFacts(columns=("cough", "rash")),
    ),
    "survival": lambda: made_up(
        {**CONVEX, "task": "survival", "model": "linear"},
        TIMES,
        labels=LabelFacts(intervals=(6.0, 12.0, 24.0)),
    ),
    "survival of a network": lambda: made_up(
        {**STEPS, "task": "survival", "model": "mlp"},
        TIMES,
        labels=LabelFacts(intervals=(6.0, 12.0, 24.0)),
    ),
    "hashed": lambda: made_up({**CONVEX, "model": "softmax"}, FILE, labels=THREE, encoding=HASHED),
    "arrays": lambda: made_up(
        {**CONVEX, "model": "softmax"}, labels=THREE, encoding=None, shape=(4,)
    ),
    "pictures": lambda: made_up(
        {**STEPS, "model": "cnn"}, labels=DIGITS, encoding=None, shape=(1, 16, 16)
    ),
}
ARRAYS = ("arrays", "pictures")
CLASSES = ("logistic", "squares of two", "squares of three", "mlp", "hashed", "pictures")


def _given(name, model):
    """Rows as the model takes them."""
    if model.encoding is not None:
        return rows()
    return np.random.default_rng(0).normal(size=(20, *model.facts.shape)).astype(np.float32)


def _encoded(model, given):
    """Records in front of the plan's features."""
    held = model.rows(given)
    return held.part(np.arange(held.counts.rows))


def _close(told, wanted):
    np.testing.assert_allclose(np.asarray(told, np.float64), wanted, rtol=2e-5, atol=2e-6)


def _compare(said, got):
    """Predictions beside a format's outputs: (rows, outputs) by name."""
    for name in {column.partition(":")[0] for column in said.columns}:
        wanted = np.stack(
            [said[each] for each in said.columns if each.partition(":")[0] == name], axis=1
        )
        assert got[name].shape == wanted.shape
        if wanted.dtype.kind in "fc":
            _close(got[name], wanted)
        else:
            np.testing.assert_array_equal(got[name], wanted)


def _session(content):
    runtime = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(content, providers=["CPUExecutionProvider"])


def _text(column):
    """As a reader of the card spells it."""
    told = column.tolist()
    return [str(int(v)) if isinstance(v, float) else str(v) for v in told]


@pytest.mark.parametrize("name", MODELS)
def test_onnx(name):
    pytest.importorskip("onnx")
    model = MODELS[name]()
    given = _given(name, model)
    session = _session(onnx_bytes(model))
    names = [each.name for each in session.get_inputs()]
    if model.encoding is not None and takes_columns(model.encoding):
        assert names == list(model.encoding.names)
        fed = {
            each.name: np.array(_text(given[each.name]), object)[:, None]
            if each.type == "tensor(string)"
            else given[each.name][:, None]
            for each in session.get_inputs()
        }
    else:
        assert names == ["features"]
        fed = {"features": _encoded(model, given)}
    got = dict(
        zip([each.name for each in session.get_outputs()], session.run(None, fed), strict=True)
    )
    _compare(model.predictions(given), got)
    kept = session.get_modelmeta().custom_metadata_map
    assert json.loads(kept["sumus.model"])["state_hash"] == model.facts.state_hash


@pytest.mark.parametrize("name", MODELS)
def test_sklearn(name):
    pandas, joblib = pytest.importorskip("pandas"), pytest.importorskip("joblib")
    model = MODELS[name]()
    refused = {
        "shortened": "feature_norm = 1.5",
        "several labels": "several labels of yes and no",
        "survival": "times of events",
        "survival of a network": "times of events",
        "hashed": "column 'town', which is hashed",
        "pictures": "dense layers",
    }
    if name in refused:
        with pytest.raises(PlanError, match=refused[name]) as caught:
            sklearn_bytes(model)
        assert "\n" not in str(caught.value)
        return
    pipeline = joblib.load(io.BytesIO(sklearn_bytes(model)))
    given = _given(name, model)
    frame = given if name in ARRAYS else pandas.DataFrame(given)
    wanted = model.predict(given, warn=False)
    told = pipeline.predict(frame)
    if wanted.dtype.kind == "f":
        _close(told, wanted)
        return
    np.testing.assert_array_equal(told, wanted)
    order = [list(pipeline.classes_).index(_class(each, wanted)) for each in model.labels.names]
    _close(pipeline.predict_proba(frame)[:, order], model.predict_proba(given, warn=False))


def _class(name, wanted):
    return name if wanted.dtype.kind == "U" else int(name)


def test_sklearn_needs_no_sumus():
    joblib = pytest.importorskip("joblib")
    named = set()

    class Naming(pickle.Unpickler):
        def find_class(self, module, name):
            named.add(module.split(".")[0])
            return super().find_class(module, name)

    held = pickle.dumps(joblib.load(io.BytesIO(sklearn_bytes(MODELS["counts"]()))))
    Naming(io.BytesIO(held)).load()
    assert "sklearn" in named
    assert named <= {"sklearn", "numpy", "scipy", "builtins", "copyreg", "_codecs"}


@pytest.mark.deep
@pytest.mark.parametrize(
    "name",
    [*CLASSES, "regression", "counts", "several labels", "survival"],
)
def test_torch(name):
    model = MODELS[name]()
    given = _given(name, model)
    extra = {"model.json": "", "names.json": ""}
    program = torch.export.load(io.BytesIO(torch_bytes(model)), extra_files=extra).module()
    assert json.loads(extra["model.json"])["state_hash"] == model.facts.state_hash
    said = model.predictions(given)
    records = torch.from_numpy(_encoded(model, given))
    got = {key: value.numpy() for key, value in program(records).items()}
    if name in CLASSES:  # places of classes
        got["prediction"] = np.array(model.labels.names)[got["prediction"]][:, None]
        wanted = said["prediction"].astype(str)
        np.testing.assert_array_equal(got.pop("prediction")[:, 0], wanted)
        _close(got["probability"], model.predict_proba(given, warn=False))
        return
    _compare(said, got)
    one = program(records[:1])
    assert all(len(value) == 1 for value in one.values())


@pytest.mark.deep
def test_torch_holds_public_feature_maps_and_modules_of_ones_own():
    class Gated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.one(x) * self.two(x).sigmoid()

    own = made_up(STEPS, labels=THREE, encoding=None, shape=(4,), module=Gated())
    mapped = made_up(
        {**CONVEX, "model": "softmax", "features": "gabor"},
        labels=THREE,
        encoding=None,
        shape=(1, 12, 12),
    )
    for model in (own, mapped):
        given = np.random.default_rng(0).uniform(size=(7, *model.facts.shape)).astype(np.float32)
        program = torch.export.load(io.BytesIO(torch_bytes(model))).module()
        _close(
            program(torch.from_numpy(given))["probability"].numpy(),
            model.predict_proba(given, warn=False),
        )
        for write in (onnx_bytes, sklearn_bytes):
            with pytest.raises(PlanError, match=r"Use --format torch") as caught:
                write(model)
            assert "\n" not in str(caught.value)


def test_torch_refuses_what_it_cannot_record():
    class Branching(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.one(x) if float(x.sum()) > 0 else -self.one(x)

    model = made_up(STEPS, labels=THREE, encoding=None, shape=(4,), module=Branching())
    with pytest.raises(PlanError, match="cannot record Branching") as caught:
        torch_bytes(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["logistic", "mlp", "survival", "pictures"])
def test_safetensors(name):
    load = pytest.importorskip("safetensors.torch").load
    model = MODELS[name]()
    content = safetensors_bytes(model)
    length = int.from_bytes(content[:8], "little")
    kept = json.loads(content[8 : 8 + length])["__metadata__"]
    facts = json.loads(kept["sumus.model"])
    assert (facts["state_hash"], facts["task"]) == (model.facts.state_hash, model.facts.task)
    given = _given(name, model)
    wanted = model.predictions(given)
    tensors = load(content)
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.zero_()
    model.module.load_state_dict(tensors)
    again = model.predictions(given)
    for column in wanted.columns:
        np.testing.assert_array_equal(again[column], wanted[column])


@pytest.mark.parametrize(
    ("write", "package", "extra"),
    [
        (onnx_bytes, "onnx", r"sumus\[export\]"),
        (safetensors_bytes, "safetensors.torch", r"sumus\[export\]"),
        (sklearn_bytes, "sklearn.compose", r"sumus\[train\]"),
        (sklearn_bytes, "pandas", "pip install pandas"),
    ],
)
def test_without_the_package_the_error_names_what_to_install(write, package, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DataError, match=extra):
        write(MODELS["logistic"]())
