"""A model as a program of torch: features in, named predictions out, without Sumus.

    program = torch.export.load("model.pt2").module()
    program(features)["probability"]

The program is a list of torch operators with their weights; loading it runs none of the code that
the model was made of.
"""

from __future__ import annotations

import io
import json
import warnings
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from sumus.errors import PlanError
from sumus.exporting.answer import Answer
from sumus.features import bias_feature, bounded
from sumus.predicting import Model
from sumus.purity import InputKind, first_line, own_copy
from sumus.tasks import shares_of_squares

__all__ = ["torch_bytes"]

_ROWS = 3  # of the records that the program is recorded with


def torch_bytes(model: Model) -> bytes:
    """The file of a model.

    Guarantee: what it computes is what `Model.predictions` says, up to the rounding of float32; a
        module that cannot be recorded for any number of rows is refused.
    """
    records = _example(model)
    whole = _Deployed(model).eval()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # about operators of torch's own
            program = torch.export.export(
                whole,
                (records,),
                dynamic_shapes={"records": {0: torch.export.Dim("rows", min=1)}},
                strict=False,
            )
            file = io.BytesIO()
            extra = {
                "model.json": model.facts.to_bytes().decode(),
                "names.json": json.dumps([*whole.answer.names, *whole.answer.intervals]),
            }
            torch.export.save(program, file, extra_files=extra)
    except Exception as error:  # of whatever kind: torch says what it cannot record
        rule = f"cannot record {type(model.module).__name__} for any number of rows"
        raise PlanError(
            "--format", "torch", rule, f"{first_line(error)}. Use --format safetensors."
        ) from None
    return file.getvalue()


def _example(model: Model) -> Tensor:
    """Made-up records in front of the plan's features."""
    kind = InputKind.of(model.module, model.plan.training.vocabulary)
    whole = kind.vocabulary is not None and model.facts.features == "none"
    return torch.zeros((_ROWS, *model.facts.shape), dtype=torch.int64 if whole else torch.float32)


@final
class _Deployed(nn.Module):
    """Public features, the module, and what its outputs mean, in one."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        logits, named = model.plan.training.logits, model.facts.features
        self.module = own_copy(model.module, logits=logits).requires_grad_(False)
        self.answer = Answer.of(model)
        self.kind = InputKind.of(model.module, model.plan.training.vocabulary)
        self.transform = None if named == "none" else model.features.mapping.transform
        self.bound, self.longest = model.facts.feature_bound, model.facts.feature_norm
        if self.bound is not None:
            unit = torch.ones(1, 1).numpy()
            self.room = float(bounded(unit, self.bound)[0, 0])
            self.bias = bias_feature(self.bound)

    def forward(self, records: Tensor) -> dict[str, Tensor]:
        """What is said of every record."""
        features = records if self.transform is None else self.transform(records)
        if self.bound is not None:
            features = self._scaled(features.flatten(1).double()).float()
        return self._told(self.module(self.kind.cast(features)))

    def _scaled(self, values: Tensor) -> Tensor:
        length = values.square().sum(1, keepdim=True).sqrt()
        factor = self.room / length.clamp(min=self.longest or 1e-300)
        return torch.cat([values * factor, torch.full_like(length, self.bias)], dim=1)

    def _told(self, outputs: Tensor) -> dict[str, Tensor]:
        kind, exact = self.answer.kind, outputs.double()
        if kind == "classes":
            if outputs.shape[1] == 1:
                exact = torch.cat([torch.zeros_like(exact), exact], dim=1)
            return {"prediction": exact.argmax(1), "probability": exact.softmax(1)}
        if kind == "squares":
            return {"prediction": exact.argmax(1), "probability": shares_of_squares(exact)}
        if kind == "labels":
            return {"prediction": (exact > 0).long(), "probability": exact.sigmoid()}
        if kind == "count":
            return {"prediction": self.answer.halves[0] * exact.clamp(max=0.0).exp()}
        if kind == "numbers":
            halves, middles = (
                torch.tensor(each, dtype=torch.float64)
                for each in (self.answer.halves, self.answer.middles)
            )
            return {"prediction": middles + halves * exact.clamp(-1.0, 1.0)}
        curve = (-functional.softplus(exact).cumsum(1)).exp()
        return {"risk": 1.0 - curve[:, -1:], "survival": curve}
