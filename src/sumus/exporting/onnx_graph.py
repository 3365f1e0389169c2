"""A model as an ONNX graph: columns or features in, predictions out.

| column | input | shape |
|---|---|---|
| with bounds, or of unknown range | double, NaN where missing | (rows, 1) |
| with categories | string as the category is spelt, empty where missing | (rows, 1) |

Where a column is hashed, or becomes a vector by a map of texts, the graph begins behind the encoding:
one input `features` (rows, numbers). Operators are those of opset 13, which every runtime has.
"""

from __future__ import annotations

import importlib
import json
from typing import Any, final

import numpy as np

from sumus import __version__
from sumus.data import KNOTS, ColumnRule, Encoding
from sumus.errors import DataError
from sumus.exporting.answer import Answer
from sumus.exporting.layers import Activation, Convolution, Dense, Flat, Layer, Pool, layers_of
from sumus.exporting.scaling import Scaling
from sumus.predicting import Model
from sumus.tasks import KNOTS as SHARE_KNOTS, SLOPE

__all__ = ["graph_encodes", "onnx_bytes", "takes_columns"]

_OPSET, _LEARNING_OPSET, _IR = 13, 2, 8  # numbers of versions
_IN_GRAPH = ("scaled", "knotted", "one-hot")
_TINY = 1e-300  # a length that divides nothing by zero


def onnx_bytes(model: Model) -> bytes:
    """The file of a model.

    Guarantee: what it computes in a runtime is what `Model.predictions` says, up to the rounding of
        float32; anything that the graph cannot hold is refused.
    """
    try:
        onnx = importlib.import_module("onnx")
    except ImportError:
        raise DataError("--format onnx needs onnx. Run: pip install 'sumus[export]'") from None
    scaling, layers = Scaling.of(model, "onnx"), layers_of(model.module, "onnx")
    graph = _Graph(onnx)
    encoding = model.encoding
    features = (
        graph.columns(encoding)
        if encoding is not None and takes_columns(encoding)
        else graph.records(model.facts.shape)
    )
    if scaling is not None:
        features = graph.scaled(features, scaling, model.facts.shape)
    outputs = graph.layers(features, layers)
    graph.answer(outputs, Answer.of(model), outputs_of_one=_width(layers))
    return graph.to_bytes(model)


def takes_columns(encoding: Encoding) -> bool:
    """Whether a graph can encode rows itself."""
    return all(map(graph_encodes, encoding.columns))


def graph_encodes(rule: ColumnRule) -> bool:
    """Whether a graph can encode a column."""
    return rule.kind in _IN_GRAPH


def _width(layers: tuple[Layer, ...]) -> int:
    return next(len(layer.weight) for layer in reversed(layers) if isinstance(layer, Dense))


@final
class _Graph:
    """Nodes in order, with a name for each value."""

    def __init__(self, onnx: Any) -> None:
        self.onnx, self.make, self.types = onnx, onnx.helper, onnx.TensorProto
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def add(self, operator: str, *inputs: str, name: str | None = None, **options: Any) -> str:
        """A node with one output, whose name is returned."""
        output = name or f"{operator.lower()}_{len(self.nodes)}"
        domain = "ai.onnx.ml" if operator == "LabelEncoder" else ""
        self.nodes.append(
            self.make.make_node(operator, list(inputs), [output], domain=domain, **options)
        )
        return output

    def constant(self, values: Any, kind: Any = np.float64) -> str:
        """A tensor that is part of the file."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(
            self.onnx.numpy_helper.from_array(np.ascontiguousarray(values, dtype=kind), name)
        )
        return name

    # -- in front of the layers

    def records(self, shape: tuple[int, ...]) -> str:
        """One input behind the encoding."""
        self.inputs.append(
            self.make.make_tensor_value_info("features", self.types.FLOAT, ["rows", *shape])
        )
        return "features"

    def columns(self, encoding: Encoding) -> str:
        """One input a column, and the features that they become."""
        parts = []
        for rule in encoding.columns:
            kind = self.types.STRING if rule.categories else self.types.DOUBLE
            self.inputs.append(self.make.make_tensor_value_info(rule.name, kind, ["rows", 1]))
            parts.append(self._one_hot(rule) if rule.categories else self._number(rule))
        joined = self.add("Concat", *parts, axis=1)
        return self.add("Cast", joined, to=self.types.FLOAT)

    def _one_hot(self, rule: ColumnRule) -> str:
        other = len(rule.categories)
        place = self.add(
            "LabelEncoder",
            rule.name,
            keys_strings=list(rule.categories),
            values_int64s=list(range(other)),
            default_int64=other,
        )
        found = self.add("Equal", place, self.constant([range(other + 1)], np.int64))
        return self.add("Cast", found, to=self.types.DOUBLE)

    def _number(self, rule: ColumnRule) -> str:
        absent = self.add("IsNaN", rule.name)
        flag = self.add("Cast", absent, to=self.types.DOUBLE)
        value = self.add("Where", absent, self.constant([[0.0]]), rule.name)
        numbers = self._scaled(value, rule) if rule.kind == "scaled" else self._hats(value)
        there = self.add("Sub", self.constant([[1.0]]), flag)
        return self.add("Concat", self.add("Mul", numbers, there), flag, axis=1)

    def _clipped(self, value: str, low: float, high: float) -> str:
        return self.add(
            "Min", self.add("Max", value, self.constant([[low]])), self.constant([[high]])
        )

    def _scaled(self, value: str, rule: ColumnRule) -> str:
        """Halves first, as in training: the width of the bounds themselves may overflow."""
        low, high = float(rule.low or 0.0), float(rule.high or 0.0)
        half = self.add("Div", self._clipped(value, low, high), self.constant([[2.0]]))
        above = self.add("Sub", half, self.constant([[low / 2.0]]))
        share = self.add("Div", above, self.constant([[high / 2.0 - low / 2.0]]))
        return self.add(
            "Sub", self.add("Mul", share, self.constant([[2.0]])), self.constant([[1.0]])
        )

    def _hats(self, value: str) -> str:
        """h_j = max(0, min(rise to knot j, fall from knot j)); the first never rises, the last never
        falls.
        """
        value = self._clipped(value, float(KNOTS[0]), float(KNOTS[-1]))
        steps = np.diff(KNOTS)
        rise = self._line(value, np.append(0.0, 1.0 / steps), np.append(1.0, -KNOTS[:-1] / steps))
        fall = self._line(value, np.append(-1.0 / steps, 0.0), np.append(KNOTS[1:] / steps, 1.0))
        return self.add("Max", self.add("Min", rise, fall), self.constant([[0.0]]))

    def _line(self, value: str, slopes: Any, levels: Any) -> str:
        return self.add(
            "Add", self.add("Mul", value, self.constant([slopes])), self.constant([levels])
        )

    def scaled(self, features: str, scaling: Scaling, shape: tuple[int, ...]) -> str:
        """Records of bounded norm, with their bias feature."""
        if len(shape) > 1:
            features = self.add("Flatten", features, axis=1)
        exact = self.add("Cast", features, to=self.types.DOUBLE)
        axes = self.constant([1], np.int64)
        squares = self.add("ReduceSum", self.add("Mul", exact, exact), axes, keepdims=1)
        length = self.add("Sqrt", squares)
        longest = self.add("Max", length, self.constant([[max(scaling.longest, _TINY)]]))
        factor = self.add("Div", self.constant([[scaling.room]]), longest)
        # 0 times the length is 0 in the shape of a column
        column = self.add("Mul", length, self.constant([[0.0]]))
        bias = self.add("Add", column, self.constant([[scaling.bias]]))
        whole = self.add("Concat", self.add("Mul", exact, factor), bias, axis=1)
        return self.add("Cast", whole, to=self.types.FLOAT)

    # -- layers

    def layers(self, value: str, layers: tuple[Layer, ...]) -> str:
        """The module."""
        for layer in layers:
            if isinstance(layer, Flat):
                value = self.add("Flatten", value, axis=1)
            elif isinstance(layer, Dense):
                weight, bias = (self.constant(v, np.float32) for v in (layer.weight, layer.bias))
                value = self.add("Gemm", value, weight, bias, transB=1)
            elif isinstance(layer, Activation):
                value = self.add(layer.kind.capitalize(), value)
            elif isinstance(layer, Convolution):
                weight, bias = (self.constant(v, np.float32) for v in (layer.weight, layer.bias))
                pads = [*layer.padding, *layer.padding]
                value = self.add("Conv", value, weight, bias, strides=list(layer.stride), pads=pads)
            elif isinstance(layer, Pool):
                value = self.add(
                    "MaxPool",
                    value,
                    kernel_shape=list(layer.size),
                    strides=list(layer.stride),
                    pads=[*layer.padding, *layer.padding],
                )
        return value

    # -- behind the layers

    def answer(self, outputs: str, answer: Answer, *, outputs_of_one: int) -> None:
        """What is said of every row, as named outputs."""
        exact = self.add("Cast", outputs, to=self.types.DOUBLE)
        if answer.kind in ("classes", "squares"):
            self._classes(exact, answer, one=outputs_of_one == 1)
        elif answer.kind == "labels":
            above = self.add("Greater", exact, self.constant([[0.0]]))
            self._told("prediction", self.add("Cast", above, to=self.types.INT64), "INT64")
            self._told("probability", self.add("Sigmoid", exact), "DOUBLE")
        elif answer.kind == "numbers":
            inside = self._clipped(exact, -1.0, 1.0)
            value = self._line(inside, np.array(answer.halves), np.array(answer.middles))
            self._told("prediction", value, "DOUBLE")
        elif answer.kind == "count":
            below = self.add("Min", exact, self.constant([[0.0]]))
            expected = self.add("Mul", self.add("Exp", below), self.constant([answer.halves]))
            self._told("prediction", expected, "DOUBLE")
        else:
            self._survival(exact)

    def _classes(self, logits: str, answer: Answer, *, one: bool) -> None:
        if one:
            zero = self.add("Mul", logits, self.constant([[0.0]]))
            logits = self.add("Concat", zero, logits, axis=1)
        place = self.add("ArgMax", logits, axis=1, keepdims=1)
        if answer.numbered:
            self._told("prediction", place, "INT64")
        else:
            named = self.add(
                "LabelEncoder",
                place,
                keys_int64s=list(range(len(answer.names))),
                values_strings=list(answer.names),
                default_string="",
            )
            self._told("prediction", named, "STRING")
        shares = (
            self._shares_of_squares(logits, len(answer.names))
            if answer.kind == "squares"
            else self.add("Softmax", logits, axis=1)
        )
        self._told("probability", shares, "DOUBLE")

    def _shares_of_squares(self, outputs: str, classes: int) -> str:
        """As `sumus.tasks.least_squares` has it."""
        (lowest, _), (low, _), (high, _), (highest, _) = SHARE_KNOTS
        mean = self.add("ReduceMean", outputs, axes=[1], keepdims=1)
        centred = self.add("Sub", outputs, mean)
        p = self.add("Add", centred, self.constant([[1.0 / classes]]))
        ends = self.add("Add", self._clipped(p, lowest, low), self._clipped(p, high, highest))
        bent = self._line(ends, [SLOPE], [-SLOPE * (low + high)])
        bent = self.add("Add", self._clipped(p, low, high), bent)
        axes = self.constant([1], np.int64)
        return self.add("Div", bent, self.add("ReduceSum", bent, axes, keepdims=1))

    def _survival(self, logits: str) -> None:
        """log(1 + e^z) as max(z, 0) + log(1 + e^−|z|), which does not overflow."""
        falling = self.add("Exp", self.add("Neg", self.add("Abs", logits)))
        rest = self.add("Log", self.add("Add", falling, self.constant([[1.0]])))
        hazard = self.add("Add", self.add("Max", logits, self.constant([[0.0]])), rest)
        summed = self.add("CumSum", hazard, self.constant(1, np.int64))
        curve = self.add("Exp", self.add("Neg", summed))
        last = self.add("Gather", curve, self.constant([-1], np.int64), axis=1)
        self._told("risk", self.add("Sub", self.constant([[1.0]]), last), "DOUBLE")
        self._told("survival", curve, "DOUBLE")

    def _told(self, name: str, value: str, kind: str) -> None:
        self.add("Identity", value, name=name)
        self.outputs.append(
            self.make.make_tensor_value_info(name, getattr(self.types, kind), ["rows", None])
        )

    def to_bytes(self, model: Model) -> bytes:
        """The checked file."""
        answer = Answer.of(model)
        graph = self.make.make_graph(
            self.nodes, "sumus", self.inputs, self.outputs, initializer=self.constants
        )
        made = self.make.make_model(
            graph,
            producer_name="sumus",
            producer_version=__version__,
            ir_version=_IR,
            opset_imports=[
                self.make.make_opsetid("", _OPSET),
                self.make.make_opsetid("ai.onnx.ml", _LEARNING_OPSET),
            ],
        )
        self.make.set_model_props(
            made,
            {
                "sumus.model": model.facts.to_bytes().decode(),
                "sumus.names": json.dumps([*answer.names, *answer.intervals], ensure_ascii=False),
                "sumus.guarantee": "VOID: " + model.void if model.void else "see the model card",
            },
        )
        self.onnx.checker.check_model(made)
        content: bytes = made.SerializeToString()
        return content
