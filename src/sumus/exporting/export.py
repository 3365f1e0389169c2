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
from sumus.exporting.onnx_graph import onnx_bytes
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
    card = target if write is None else target.with_name(f"{target.stem}.card.md")
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
        notes=model.notes,
        void=model.void,
    )


def _require_places(places: tuple[Path, ...], *, force: bool) -> None:
    """Refuse what cannot be written before anything is computed."""
    for place in places:
        if not place.parent.is_dir():
            raise DataError(f"--out {place}: there is no folder {place.parent}. Make it first.")
        if place.exists() and not force:
            raise DataError(f"{place} exists. Name another file, or replace it with --force.")
