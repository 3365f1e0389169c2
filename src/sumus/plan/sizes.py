"""How many numbers a named model and a named feature map hold, without importing torch.

`sumus account` and `sumus plan` need the dimension d of the released vector and nothing else of a
model, so the arithmetic lives here, below the training package. The training package builds its
modules from the same layer lists; a test compares the two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from sumus.errors import PlanError

__all__ = [
    "CNN_CONVOLUTIONS",
    "CNN_HIDDEN",
    "FEATURES",
    "LINEAR_MODELS",
    "MODELS",
    "RANDOM_FILTERS",
    "RANDOM_WIDTH",
    "WHITENED_FEATURES",
    "cnn_flat_features",
    "feature_shape",
    "float_sum_terms",
    "parameter_count",
    "parameter_sizes",
]

LINEAR_MODELS = ("softmax", "linear", "logistic")
MODELS = ("softmax", "linear", "logistic", "mlp", "cnn")
FEATURES = ("none", "centred", "gabor", "phases", "scatter", "random", "efficientnet-lite0")
WHITENED_FEATURES = ("gabor", "phases", "scatter", "random")
"""Maps of images that made-up pictures centre and whiten, and so have components."""

# The convolutional network of Papernot et al. (arXiv:2007.14191) and of Heikkilä 2025: (channels,
# kernel, stride, padding), each followed by tanh and a 2 × 2 maximum with stride 1; then a hidden
# layer.
CNN_CONVOLUTIONS = ((16, 8, 2, 2), (32, 4, 2, 0))
CNN_HIDDEN = 32

# Random feature maps: numbers behind a flat record, and filters for an image (two numbers in each
# of 16 cells).
RANDOM_WIDTH = 1024
RANDOM_FILTERS = 32


def parameter_count(
    model: str,
    *,
    shape: Sequence[int],
    outputs: int,
    hidden: Sequence[int] = (64,),
    bias: bool = True,
    shared_slopes: bool = False,
) -> int:
    """d: the number of parameters of a named model.

    Args:
        model: one of `MODELS`; a model named by python path must be built to be counted
            (`sumus.training.models`).
        shape: one record's shape without the batch: (features,) or (channels, height, width).
        outputs: numbers that the model returns for one record (`Task.outputs`).
        hidden: widths of the hidden layers of "mlp".
        bias: whether softmax and logistic have their own bias; False when the features carry a bias
            feature.
        shared_slopes: whether the outputs of a linear model differ in their intercepts alone.
    """
    flat = math.prod(shape)
    if shared_slopes and model == "linear":
        return flat + outputs
    if model in ("softmax", "linear", "logistic"):
        return outputs * (flat + int(bias))
    if model in ("mlp", "cnn"):
        return sum(parameter_sizes(model, shape=shape, outputs=outputs, hidden=hidden).values())
    if ":" in model:
        rule = (
            f'must be set for training.model = "{model}": its parameters are counted by `sumus '
            "train` only"
        )
        raise PlanError(
            "training.dimension",
            None,
            rule,
            "Give sum(p.numel() for p in model.parameters() if p.requires_grad).",
        )
    rule = f'must be one of {", ".join(MODELS)} or "package.module:Class"'
    raise PlanError("training.model", model, rule, "Check the spelling.")


def parameter_sizes(
    model: str, *, shape: Sequence[int], outputs: int, hidden: Sequence[int] = (64,)
) -> dict[str, int]:
    """Numbers of each parameter of the networks "mlp" and "cnn", by name, in order.

    Args:
        shape, outputs, hidden: as of `parameter_count`.
    """
    sizes: dict[str, int] = {}

    def add(place: int, inner: int, outer: int) -> None:
        sizes[f"{place}.weight"], sizes[f"{place}.bias"] = inner * outer, outer

    place = 1  # behind what makes a record flat
    widths = [math.prod(shape), *hidden, outputs]
    if model == "cnn":
        place, channels = 0, cnn_channels(shape)
        for filters, kernel, _, _ in CNN_CONVOLUTIONS:
            add(place, channels * kernel * kernel, filters)
            place, channels = place + 3, filters  # an activation and a maximum follow
        place += 1
        widths = [cnn_flat_features(shape), CNN_HIDDEN, outputs]
    for inner, outer in itertools.pairwise(widths):
        add(place, inner, outer)
        place += 2
    return sizes


def cnn_channels(shape: Sequence[int]) -> int:
    """Input channels of an image shape (channels, height, width)."""
    if len(shape) != 3:
        rule = 'must be an image shape (channels, height, width) for model "cnn"'
        raise PlanError("shape", tuple(shape), rule, 'Use "softmax" or "mlp" for flat records.')
    return shape[0]


def cnn_flat_features(shape: Sequence[int]) -> int:
    """Numbers that the convolutional part of "cnn" hands to its first fully connected layer."""
    cnn_channels(shape)
    sides, channels = list(shape[1:]), shape[0]
    for filters, kernel, stride, padding in CNN_CONVOLUTIONS:
        # a 2 × 2 maximum with stride 1 takes one row and one column
        sides = [(side + 2 * padding - kernel) // stride + 1 - 1 for side in sides]
        channels = filters
    if min(sides) < 1:
        rule = 'must be at least 18 × 18 pixels for model "cnn"'
        raise PlanError("shape", tuple(shape), rule, 'Use "mlp" or "softmax" for small images.')
    return channels * math.prod(sides)


def feature_shape(
    features: str, shape: Sequence[int], components: int | None = None
) -> tuple[int, ...]:
    """Shape of one record behind the named public feature map (`sumus.features.maps`).

    Args:
        components: `training.components`, directions of the map that are kept; None: all.
    """
    if components is not None:
        return (_kept(features, shape, components),)
    if features in ("none", "centred"):
        return tuple(shape)
    if features == "random" and len(shape) == 1:
        return (RANDOM_WIDTH,)
    if features not in FEATURES:
        known = f'must be one of {", ".join(FEATURES)} or "package.module:Class?pixels=…"'
        raise PlanError(
            "training.features", features, known, "Set training.dimension for a map of your own."
        )
    if len(shape) != 3:
        rule = f"must be an image shape (channels, height, width) for features {features!r}"
        raise PlanError("shape", tuple(shape), rule, 'Use "random" or "none" for flat records.')
    half, quarter = (
        math.prod(math.ceil(side / divisor) for side in shape[1:]) for divisor in (2, 4)
    )
    counts = {
        "gabor": half + 16 * quarter,
        "phases": half + 32 * quarter,
        "scatter": half + 16 * quarter + 32 * 16,
        "random": 2 * RANDOM_FILTERS * 16,
        "efficientnet-lite0": 1280,
    }
    return (counts[features],)


def _kept(features: str, shape: Sequence[int], components: int) -> int:
    """As many components as the plan keeps; refused where the map has not so many, or none."""
    if features not in WHITENED_FEATURES or len(shape) != 3:
        known = ", ".join(WHITENED_FEATURES)
        rule = f"is for training.features = {known} of images, whose directions are public"
        raise PlanError("training.components", components, rule, "Leave it out.")
    (width,) = feature_shape(features, shape)
    if components > width:
        rule = f"must not exceed the {width} numbers of training.features = {features}"
        raise PlanError("training.components", components, rule, "Lower it, or leave it out.")
    return components


def float_sum_terms(records: int) -> int:
    """How many `terms` `summation_slack_grid` must be told for a gradient sum that is rounded once
    (rounding = "sum").

    Sums run in float64 over chunks of at most 2^6 records with at most 2^10 positions each, then
    over at most `records` chunks. A record's positions add up to at most 2^8 times its clipped norm
    (`Positions.add_norms2`), so each of two neighbouring sums is off by at most (2^16 +
    n)·2^-53·2^8·n·r, which is γ·terms·r for the number returned.

    Args:
        records: n, the most records that one sum may hold, a public number.
    """
    return math.isqrt(256 * records * (65_536 + records)) + 4
