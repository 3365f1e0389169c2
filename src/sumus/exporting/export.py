"""From a run and a format to the files: the model, and its card beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from torch import nn

from sumus.books import RunFolder
from sumus.errors import DataError, PlanError
from sumus.exporting.card import model_card
from sumus.exporting.onnx_graph import graph_encodes, onnx_bytes, takes_columns
from sumus.exporting.sklearn_pipeline import sklearn_bytes
from sumus.exporting.torch_program import torch_bytes
from sumus.exporting.weights import safetensors_bytes
from sumus.files import closest, replace_atomically
from sumus.predicting import Model

__all__ = ["FORMATS", "Exported", "export_run"]

_WRITERS: Final[Mapping[str, tuple[str, Callable[[Model], bytes]]]] = {
    "safetensors": (".safetensors", safetensors_bytes),
    "onnx": (".onnx", onnx_bytes),
    "sklearn": (".joblib", sklearn_bytes),
    "torch": (".pt2", torch_bytes),
}
FORMATS: Final = (*_WRITERS, "card")
"""What a model can be exported as."""


@final
@dataclass(frozen=True)
class Exported:
    """What was written.

    Args:
        file: the model; None: its card alone.
        sha256: of that file.
        card: the model card.
        notes: what whoever uses the model should know, a line each.
        void: why the run guarantees nothing, if it does not.
    """

    file: Path | None
    sha256: str | None
    card: Path
    notes: tuple[str, ...]
    void: str | None


def export_run(
    path: str | Path,
    format_name: str,
    out: Path | None = None,
    *,
    force: bool = False,
    module: nn.Module | str | None = None,
) -> Exported:
    """Write the model of a finished run in one of `FORMATS`, with its card beside it.

    Guarantee: a file appears whole or not at all, and none that is there is replaced without
        `force`.

    Args:
        path: the run's folder.
        out: the file; None: named after the run, in the current folder.
        force: replace what is there.
        module: as for `Model.of_run`.
    """
    if format_name not in FORMATS:
        rule = "must be a format of models"
        raise PlanError("--format", format_name, rule, closest(format_name, FORMATS))
    run = RunFolder.open(path)
    ending, write = _WRITERS.get(format_name, (".card.md", None))
    target = Path(f"{run.name}{ending}") if out is None else out
    if target.is_dir():
        raise DataError(f"--out {target} is a folder. Name a file in it.")
    _require_ending(target, format_name, ending if write is not None else ".md")
    # each format has a card of its own, so that exports of one run stand side by side
    card = target if write is None else target.with_name(f"{target.name}.card.md")
    _require_places((card,) if write is None else (target, card), force=force)
    model = Model.of_run(path, module)
    content = None if write is None else write(model)
    digest = None if content is None else hashlib.sha256(content).hexdigest()
    text = model_card(
        run,
        model,
        format_name=None if content is None else format_name,
        file=target.name,
        sha256=digest or "",
    )
    if content is not None:
        replace_atomically(target, content)
    replace_atomically(card, text.encode())
    return Exported(
        file=None if content is None else target,
        sha256=digest,
        card=card,
        notes=(*model.notes, *(_behind_encoding(model) if format_name == "onnx" else ())),
        void=model.void,
    )


def _behind_encoding(model: Model) -> tuple[str, ...]:
    """What whoever feeds a graph must know where it cannot encode rows itself."""
    if model.encoding is None or takes_columns(model.encoding):
        return ()
    names = [rule.name for rule in model.encoding.columns if not graph_encodes(rule)]
    shown = f"{', '.join(names[:6])}{f' and {len(names) - 6} more' if len(names) > 6 else ''}"
    return (
        f"the graph begins behind the encoding: its input is features, not columns, as {shown} "
        "cannot be encoded in ONNX (data.categories, or `sumus new --list COLUMN`, makes a column "
        "one that can)",
    )


def _require_ending(target: Path, format_name: str, ending: str) -> None:
    """Refuse a name that says another format than the file has."""
    if target.suffix.lower() != ending:
        rule = f"must end in {ending} for --format {format_name}"
        raise PlanError("--out", str(target), rule, f"Give --out {target.stem}{ending}.")


def _require_places(places: tuple[Path, ...], *, force: bool) -> None:
    """Refuse what cannot be written before anything is computed."""
    for place in places:
        if not place.parent.is_dir():
            raise DataError(f"--out {place}: there is no folder {place.parent}. Make it first.")
        if place.exists() and not force:
            raise DataError(f"{place} exists. Name another file, or replace it with --force.")
