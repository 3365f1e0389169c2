"""A released model in files that other programs read, each with its model card.

    export_run("runs/hospitals-…", "onnx", Path("model.onnx"))

| module | has |
|---|---|
| `export` | from a run and a format to the files |
| `answer`, `layers`, `scaling` | a model taken apart: what its outputs mean, its layers, what stands in front of them |
| `onnx_graph` | ONNX, from the columns of a table where that is possible |
| `sklearn_pipeline` | a fitted pipeline of scikit-learn's own classes |
| `torch_program` | a program of torch, without Sumus |
| `card` | the model card, in Markdown |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.exporting.card import model_card as model_card
    from sumus.exporting.export import (
        FORMATS as FORMATS,
        Exported as Exported,
        export_run as export_run,
    )

__getattr__, __dir__, __all__ = door(
    __name__, card="model_card", export="FORMATS Exported export_run"
)
