"""Any other module without privacy: Adam, with a learning rate and a number of passes that are
chosen on a quarter of the training part.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.comparing.tuned import at_most, folds_of
from sumus.data import Records
from sumus.purity import InputKind
from sumus.randomness import RandomSource
from sumus.tasks import Task
from sumus.training import flat_parameters, load_flat

__all__ = ["NetworkFamily"]

_RATES: Final = (0.003, 0.01, 0.03, 0.001)
_SEEN: Final = 120_000  # records that one search for a number of passes looks at, or five passes
_PASSES: Final = (5, 40)
_PATIENCE: Final = 4
_MOST_TUNED: Final = 20_000
_CHUNK: Final = 1024


@final
@dataclass(frozen=True, eq=False)
class _Module:
    model: nn.Module
    kind: InputKind

    def outputs(self, x: npt.NDArray[np.generic]) -> torch.Tensor:
        """See `PlainModel.outputs`."""
        with torch.no_grad():
            parts = [
                self.model(self.kind.cast(torch.from_numpy(x[start : start + _CHUNK])))
                for start in range(0, len(x), _CHUNK)
            ]
        return torch.cat(parts)


@final
@dataclass(eq=False)
class NetworkFamily:
    """Modules of one kind, all from the same first parameters.

    The learning rate is chosen with the first records that are fitted (all silos together).

    Args:
        model: with the plan's first parameters; it is copied, never changed.
    """

    task: Task
    model: nn.Module
    vocabulary: int | None
    _rate: float | None = field(default=None, init=False)

    @property
    def words(self) -> str:
        """See `Family.words`."""
        return "the same network trained by Adam, rate and passes chosen on training records"

    def fitted(self, records: Records, source: RandomSource) -> _Module:
        """See `Family.fitted`."""
        kind = InputKind.of(self.model, self.vocabulary)
        tuned = at_most(records, _MOST_TUNED, source)
        if tuned.units < 8:
            model, passes, rate = self._copy(), 3, self._rate or _RATES[0]
            self._train(model, kind, records, rate, passes, source)
            return _Module(model, kind)
        kept, left = folds_of(tuned.units, 4, source)[0]
        best = (float("inf"), 1, _RATES[0])
        for rate in _RATES if self._rate is None else (self._rate,):
            loss, passes = self._search(kind, tuned.take(kept), tuned.take(left), rate, source)
            best = min(best, (loss, passes, rate))
        _, passes, self._rate = best
        model = self._copy()
        self._train(model, kind, records, self._rate, passes, source)
        return _Module(model, kind)

    def _copy(self) -> nn.Module:
        return copy.deepcopy(self.model)

    def _search(
        self, kind: InputKind, train: Records, unseen: Records, rate: float, source: RandomSource
    ) -> tuple[float, int]:
        """The smallest loss on unseen records, and after how many passes."""
        model, best = self._copy(), (float("inf"), 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        most = min(max(_SEEN // max(len(train), 1), _PASSES[0]), _PASSES[1])
        weights = torch.from_numpy(unseen.weights("mean")).float()
        for number in range(1, most + 1):
            self._pass(model, optimizer, kind, train, source)
            with torch.no_grad():
                outputs = _Module(model, kind).outputs(unseen.x)
                losses = self.task.loss(outputs, torch.from_numpy(unseen.y)).float()
                loss = float((losses * weights).sum() / weights.sum())
            best = min(best, (loss, number)) if np.isfinite(loss) else best
            if number - best[1] >= _PATIENCE:
                break
        return best

    def _train(
        self,
        model: nn.Module,
        kind: InputKind,
        records: Records,
        rate: float,
        passes: int,
        source: RandomSource,
    ) -> None:
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        for _ in range(passes):
            last = flat_parameters(model).clone()
            self._pass(model, optimizer, kind, records, source)
            if not torch.isfinite(flat_parameters(model)).all():
                load_flat(model, last)
                return

    def _pass(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        kind: InputKind,
        records: Records,
        source: RandomSource,
    ) -> None:
        """Over all records once, in an order of its own."""
        order = np.argsort(source.uniforms(len(records)), kind="stable")
        batch = int(min(max(len(records) // 50, 8), 256))
        weights = records.weights("mean") * len(records) / records.units
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            optimizer.zero_grad()
            outputs = model(kind.cast(torch.from_numpy(records.x[rows])))
            losses = self.task.loss(outputs, torch.from_numpy(records.y[rows]))
            mean = (losses * torch.from_numpy(weights[rows]).to(losses.dtype)).mean()
            mean.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
