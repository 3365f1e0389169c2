"""The model card: what a model is, what it guarantees, how well it does and how it is loaded, in
Markdown. The guarantee is told in the report's own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sumus.books import RunFolder
from sumus.data import ColumnRule
from sumus.exporting.answer import Answer
from sumus.exporting.onnx_graph import takes_columns
from sumus.exporting.sklearn_pipeline import expects_numbers
from sumus.predicting import Model
from sumus.report import statement_of, view_of

__all__ = ["model_card"]

_MARKS = re.compile(r"([\\`*_{}\[\]<>#|])")
_VOID = "> **NO GUARANTEE.** {} Treat the model like the data that it was trained on."
_SHOWN = 40  # categories that are listed


def model_card(
    run: RunFolder, model: Model, *, format_name: str | None, file: str, sha256: str
) -> str:
    """The card of a run's model.

    Guarantee: holds what the run's plan and journal say and nothing of a record; no ε stands
        without unit, neighbours, trust, analysis and whether it is proved.

    Args:
        format_name: that the model is written in; None: the card stands alone.
        file: name of the model's file; `sha256`: of its content.
    """
    parts = [
        f"# Model card: {_plain(run.name)}",
        *_warning(run),
        *_what(run, model, format_name, file, sha256),
        *_privacy(run),
        *_measured(run, model),
        *_inputs(model),
        *_limits(run, model),
        *_loading(model, format_name, file),
    ]
    return "\n\n".join(parts) + "\n"


def _plain(text: object) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _MARKS.sub(r"\\\1", " ".join(str(text).split()))


def _table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(heading)} |", f"|{'---|' * len(heading)}"]
    lines += [f"| {' | '.join(map(_plain, row))} |" for row in rows]
    return "\n".join(lines)


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_plain(line)}" for line in lines)


def _warning(run: RunFolder) -> list[str]:
    """What must be read first, where the run guarantees nothing."""
    if run.void is not None:
        return [_VOID.format(f"This run is void: {_plain(run.void)}.")]
    if run.guarantee is None:
        return [_VOID.format("This run added no noise.")]
    return []


def _what(
    run: RunFolder, model: Model, format_name: str | None, file: str, sha256: str
) -> list[str]:
    plan, answer = run.plan, Answer.of(model)
    silos = plan.federation.silos or len(run.silos)
    rows: list[tuple[str, object]] = [
        ("task", plan.training.task),
        ("model", run.own_model or plan.training.model),
        ("algorithm", f"{plan.training.algorithm}, {plan.federation.rounds} rounds"),
        ("silos", silos),
        ("data", plan.data.name or plan.data.path or plan.data.objects or "digits"),
        ("model hash", model.facts.model_hash),
        ("plan hash", run.plan_hash),
        ("trained", f"{run.started}, sumus {run.versions.get('sumus', model.facts.sumus)}"),
    ]
    named = {"classes": "classes", "labels": "labels", "numbers": "numbers"}.get(answer.kind)
    if named and any(answer.names):
        rows.insert(1, (named, ", ".join(answer.names[:_SHOWN])))
    if answer.kind == "survival":
        rows.insert(1, ("times", ", ".join(f"{cut:.12g}" for cut in answer.intervals)))
    if format_name is not None:
        rows += [("file", f"{file} ({format_name})"), ("SHA-256 of the file", sha256)]
    return ["## What it is", _table(("", ""), rows)]


def _privacy(run: RunFolder) -> list[str]:
    statement = statement_of(run)
    parts = ["## Privacy", f"**{_plain(statement.headline)}** ({statement.verdict})"]
    parts.append(_table(("", ""), statement.terms))
    parts += [_plain(paragraph) for paragraph in statement.meaning]
    if statement.assumptions:
        parts += ["### It holds if", _table(("", ""), statement.assumptions)]
    return [*parts, "### Not protected", _listed(statement.gaps)]


def _measured(run: RunFolder, model: Model) -> list[str]:
    measured = next((entry for entry in reversed(run.rounds()) if entry.metrics), None)
    if measured is None:
        return ["## How well it does", "It was not measured."]
    fitted = run.plan.training.local_parameters is not None
    view = view_of(run.plan.task, measured, model.labels.names, fitted=fitted)
    which = f"On test records, the model of round {measured.round}."
    return [
        "## How well it does",
        which,
        _table(("measure", "model", "a constant answer"), view.rows),
        _listed(view.notes),
    ]


def _inputs(model: Model) -> list[str]:
    encoding = model.encoding
    if encoding is None:
        shape = " × ".join(map(str, model.facts.shape))
        return ["## What it reads", f"Arrays of {shape} numbers a record, as in training."]
    rows = [(rule.name, _kind(rule), _rule(rule), rule.width) for rule in encoding.columns]
    return ["## What it reads", _table(("column", "holds", "rule", "numbers"), rows)]


def _kind(rule: ColumnRule) -> str:
    if rule.kind in ("scaled", "knotted"):
        return "numbers"
    return "numbers or text" if rule.categories and expects_numbers(rule) else "text"


def _rule(rule: ColumnRule) -> str:
    if rule.kind == "scaled":
        return f"from {rule.low:.12g} to {rule.high:.12g}; beyond, the nearest of them"
    if rule.categories:
        more = ", …" if len(rule.categories) > _SHOWN else ""
        return f"one of {', '.join(rule.categories[:_SHOWN])}{more}; anything else is other"
    return {
        "knotted": "of unknown range, piecewise linear at public knots up to ±10⁶",
        "hashed": "hashed into 2 × 32 fixed buckets",
    }.get(rule.kind, f'a text by the public map "{rule.kind}"')


def _limits(run: RunFolder, model: Model) -> list[str]:
    lines = [
        "Numbers beyond the public bounds count as the nearest bound, and values that are on no "
        "list as other: predictions for such rows are guesses.",
        "It was trained on the records of these silos. Whether it holds elsewhere was not measured.",
        "It was not examined for fairness between groups of people.",
        *model.notes,
    ]
    return ["## Limits", _listed(lines)]


def _loading(model: Model, format_name: str | None, file: str) -> list[str]:
    if format_name is None:
        return [
            "## How to use it",
            "`sumus predict RUN TABLE --out predictions.csv`, or `sumus export RUN --format …`.",
        ]
    text, code = _HOW[format_name](model)
    return ["## How to load it", text, f"```python\n{code.format(file=repr(file))}\n```"]


def _onnx(model: Model) -> tuple[str, str]:
    encoding = model.encoding
    if encoding is None or not takes_columns(encoding):
        text = (
            "One input `features` of shape (rows, numbers): records as the rules above encode them, "
            "before any scaling. Outputs: what `sumus predict` says; their names are in the "
            "metadata `sumus.names`."
        )
        return text, _ONNX + 'session.run(None, {{"features": features}})'
    text = (
        "One input a column, of shape (rows, 1): numbers as float64 with NaN where missing, text as "
        "strings spelt as above with an empty one where missing. Encoding and scaling are in the "
        "graph; names of the outputs' columns are in the metadata `sumus.names`."
    )
    return text, _ONNX + (
        "inputs = {{each.name: frame[[each.name]].to_numpy(dtype=object if each.type == "
        "'tensor(string)' else 'float64')\n          for each in session.get_inputs()}}\n"
        "session.run(None, inputs)"
    )


def _sklearn(model: Model) -> tuple[str, str]:
    reads = "a frame with the columns above" if model.encoding else "an array, a row a record"
    text = (
        "A fitted pipeline of scikit-learn's own classes. It needs scikit-learn, the version that "
        f"wrote it, and no Sumus; it reads {reads}. **A joblib file is a pickle: whoever can change "
        "it can run any code on the machine that loads it.** Load it only if its SHA-256 is the one "
        "above and this card comes from somebody you trust."
    )
    return text, "import joblib\n\npipeline = joblib.load({file})\npipeline.predict(frame)"


def _torch(model: Model) -> tuple[str, str]:
    text = (
        "A program of torch (torch.export): records in, named tensors out; names of classes are in "
        "its extra file `names.json`. It holds operators and weights, needs torch and no Sumus. "
        "Records are what the rules above make of a row, before any scaling or public feature map."
    )
    return text, ("import torch\n\nprogram = torch.export.load({file}).module()\nprogram(records)")


def _safetensors(model: Model) -> tuple[str, str]:
    text = (
        "Tensors by their names in the module. The metadata holds `sumus.model` (encoding, labels, "
        "scaling as JSON) and `sumus.plan` (TOML). Loading runs no code."
    )
    return text, (
        'from safetensors import safe_open\n\nwith safe_open({file}, "pt") as file:\n'
        "    tensors = {{name: file.get_tensor(name) for name in file.keys()}}\n"
        "    facts = file.metadata()"
    )


_ONNX = "import onnxruntime\n\nsession = onnxruntime.InferenceSession({file})\n"
_HOW = {"onnx": _onnx, "sklearn": _sklearn, "torch": _torch, "safetensors": _safetensors}
