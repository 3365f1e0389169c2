"""Public feature maps: fixed functions of one record, the same for everybody, so that they cost no
privacy.

    mapping = feature_map("gabor", (1, 28, 28))
    features = mapping(images)                      # (records, 980) float32, each record apart
    bounded(features, 1.0)                          # (records, 981): norm ≤ 1 with a bias feature, for convex-pass

No map holds a number that was computed from private records, and none looks at two records at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, final
from urllib.parse import parse_qsl

import numpy as np
import numpy.typing as npt
import torch

from sumus.errors import DataError, PlanError
from sumus.features.backbones import Backbone, load_backbone, own_backbone
from sumus.features.bias import BIAS_SHARE, bias_feature
from sumus.features.filters import GaborBank, PhaseBank, ScatterBank
from sumus.features.pictures import Whitened
from sumus.features.random import RandomConvolutions, RandomProjection
from sumus.files import object_at
from sumus.plan import feature_shape
from sumus.purity import (
    chunk_function,
    first_line,
    is_isolated,
    one_torch_thread,
    operators_only,
    require_apart,
    require_pure,
)

__all__ = ["FeatureMap", "bounded", "feature_map"]

Floats = npt.NDArray[np.float32]
Transform = Callable[[torch.Tensor], torch.Tensor]
_BANKS: Final[dict[str, Callable[[Sequence[int]], Transform]]] = {
    "gabor": GaborBank,
    "phases": PhaseBank,
    "scatter": ScatterBank,
}
_BATCH = 100  # records that are in flight at once


@final
@dataclass(frozen=True)
class FeatureMap:
    """A fixed map from records to features, applied in batches of a fixed size.

    Guarantee: row j of the result is a function of record j alone, bit for bit: the last batch is
        filled up, and the batch size is one for which `isolation.is_isolated` found no trace of a
        record's place or company.

    Args:
        name: what the plan calls it.
        shape: one record's shape behind the map.
        transform: maps a batch of records to a batch of features.
        batch: records per batch.
    """

    name: str
    shape: tuple[int, ...]
    transform: Transform
    batch: int

    def __call__(self, records: npt.NDArray[np.generic]) -> Floats:
        """Features of all records."""
        out = np.empty((len(records), *self.shape), np.float32)
        batch = np.zeros((self.batch, *records.shape[1:]), np.float32)
        with torch.inference_mode(), one_torch_thread():
            for start in range(0, len(records), self.batch):
                part = records[start : start + self.batch]
                batch[: len(part)], batch[len(part) :] = part, 0.0
                out[start : start + len(part)] = self.transform(torch.from_numpy(batch)).numpy()[
                    : len(part)
                ]
        return out


@cache
def feature_map(
    name: str,
    input_shape: tuple[int, ...],
    *,
    seed: int = 0,
    components: int | None = None,
    whitening: float = 0.5,
) -> FeatureMap:
    """The map that `training.features` names.

    none      records as they are
    centred   2x − 1: values from [0, 1] to [−1, 1], in the same shape
    gabor     edges and stripes of images: 8 orientations, two scales, a coarse copy; 980 numbers of 28 × 28 pixels
    phases    the same with 4 orientations and the sign of every edge; 1,764 numbers
    scatter   gabor and a second level of filters over the fine edges; 1,492 numbers
    random    random convolutions of images, random Fourier features of flat records
    efficientnet-lite0, "package.module:Class?pixels=N&weights=FILE"    frozen networks, trained on public images

    The maps of images except the frozen networks are centred and partly whitened by made-up
    pictures (`public_pictures`).

    Args:
        name: as above.
        input_shape: one record's shape, (features,) or (channels, height, width); images have
            values in [0, 1].
        seed: public seed of random maps.
        components: directions that are kept, those in which made-up pictures differ most; None:
            all.
        whitening: how far made-up pictures even them out, 0 … 1.
    """
    transform, shape = _transform(name, input_shape, seed, components, whitening)
    records = torch.rand(_BATCH, *input_shape, generator=torch.Generator().manual_seed(0))
    if ":" in name:
        return _certified(name, shape, transform, records)
    with torch.inference_mode(), one_torch_thread():  # as it is used
        isolated = is_isolated(lambda x, y: [transform(x)], records, torch.zeros(_BATCH))
    return FeatureMap(name, shape, transform, _BATCH if isolated else 1)


def _certified(
    name: str, shape: tuple[int, ...], transform: Transform, records: torch.Tensor
) -> FeatureMap:
    """A user's map: tried on made-up records, refused unless it is a pure function of one record,
    and recorded; see `certified`.
    """
    what = f"training.features {name}"

    def compute(record: int) -> list[torch.Tensor]:
        try:
            return [transform(records[record : record + 1].clone())]
        except Exception as error:
            raise DataError(
                f"{what} does not take records of shape {tuple(records.shape[1:])}: "
                f"{first_line(error)}."
            ) from None

    with torch.no_grad(), operators_only(), one_torch_thread():
        alone = torch.cat(
            [outcome[0] for outcome in require_pure(compute, watched={"": transform}, what=what)]
        )
        together = transform(records.clone())
        why = (
            "gives a record other values in the company of others: it mixes records. Normalise "
            "within one record"
        )
        require_apart([alone], [together[: len(alone)]], what=what, why=why)
        recorded = chunk_function(
            lambda weights, x: {"features": transform(x[None])[0]}, {}, records, what=what
        )
        if not is_isolated(
            lambda x, y: [recorded({}, x)["features"]],
            records[: recorded.chunk],
            torch.zeros(recorded.chunk),
        ):
            recorded = chunk_function(
                lambda weights, x: {"features": transform(x[None])[0]}, {}, records[:1], what=what
            )
        single = [
            recorded({}, record.expand(recorded.chunk, *record.shape))["features"][:1]
            for record in records[: len(alone)]
        ]
        require_apart(
            [alone],
            [torch.cat(single)],
            what=what,
            why="cannot be certified: it changes from call to call",
        )

        return FeatureMap(name, shape, lambda x: recorded({}, x)["features"], recorded.chunk)


def _transform(
    name: str, shape: tuple[int, ...], seed: int, components: int | None, whitening: float
) -> tuple[Transform, tuple[int, ...]]:
    """The named map on batches, and one record's shape behind it."""
    if ":" in name and components is None:
        backbone = _own_backbone(name)
        return backbone, (backbone.width,)
    # refuses unknown names and flat records in front of image maps
    behind = feature_shape(name, shape, components)
    if name == "none":
        return torch.clone, behind
    if name == "centred":
        return _centred, behind
    if name == "random" and len(shape) == 1:
        return RandomProjection(shape, seed=seed), behind
    if name == "random":
        bank: Transform = RandomConvolutions(shape, seed=seed)
        return Whitened(bank, shape, components=components, degree=whitening), behind
    if name in _BANKS:
        bank = _BANKS[name](shape)
        return Whitened(bank, shape, components=components, degree=whitening), behind
    return load_backbone(name), behind


def _centred(records: torch.Tensor) -> torch.Tensor:
    """2x − 1."""
    return 2.0 * records - 1.0


def _own_backbone(name: str) -> Backbone:
    """A user's frozen network from "package.module:Class?pixels=N&weights=FILE"."""
    path, _, query = name.partition("?")
    options = dict(parse_qsl(query, strict_parsing=bool(query)))
    unknown = sorted(set(options) - {"pixels", "weights"})
    if unknown or not options.get("pixels", "32").isdecimal():
        rule = 'must look like "package.module:Class?pixels=32&weights=FILE"'
        raise PlanError(
            "training.features",
            name,
            rule,
            f"Remove {unknown[0]}." if unknown else "Give pixels as a number.",
        )
    network = object_at(path, field="training.features")()
    weights = Path(options["weights"]) if "weights" in options else None
    return own_backbone(
        network, name=path, pixels=int(options.get("pixels", "32")), checkpoint=weights
    )


def bounded(
    features: npt.NDArray[np.floating], bound: float, *, longest: float | None = None
) -> Floats:
    """Each record scaled to norm R with a bias feature as its last number: x̃ = [x·√(R² − b²)/‖x‖,
    b], b = R/4; with a length L in place of ‖x‖ where the record is no longer than L.

    Guarantee: ‖x̃‖₂ ≤ R in exact arithmetic for every input; a record with a NaN or an infinity
        becomes [0, …, 0, b].

    Args:
        features: (records, features).
        bound: R, `training.feature_bound`.
        longest: L, `training.feature_norm`; None: all records get one length.
    """
    if not (math.isfinite(bound) and bound > 0.0):
        raise PlanError("training.feature_bound", bound, "must be a positive number", "Use 1.0.")
    if features.ndim != 2:
        raise DataError(
            f"features must be a matrix (records, features), got shape {features.shape}. Flatten "
            "each record."
        )
    values = features.astype(np.float64)
    values[~np.isfinite(values).all(axis=1)] = 0.0
    largest = np.abs(values).max(axis=1, keepdims=True, initial=0.0)
    values /= np.where(largest > 0.0, largest, 1.0)  # squares then neither overflow nor vanish
    norms = np.sqrt(np.square(values).sum(axis=1, keepdims=True))
    shrunk = bound * (1.0 - 2.0**-20)  # rounding to float32 moves a norm by at most 2^-24 of it
    room = shrunk * math.sqrt(1.0 - BIAS_SHARE**2)
    out = np.empty((len(values), values.shape[1] + 1), np.float32)
    lengths = np.where(norms > 0.0, norms, 1.0)
    if longest is not None:
        with np.errstate(over="ignore"):
            lengths = np.maximum(lengths, longest / np.where(largest > 0.0, largest, 1.0))
    out[:, :-1] = values * (room / lengths)
    out[:, -1] = bias_feature(bound)
    return out
