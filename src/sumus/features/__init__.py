"""Public maps of one record that stand in front of a model. They hold no number that was computed
from a private record, so they cost no privacy.

    feature_map("gabor", (1, 28, 28))    # by the plan's `training.features`

| module | has |
|---|---|
| `maps` | every map by name, and the bound on a record's norm that a convex pass needs |
| `filters` | Gabor wavelets and scattering |
| `random` | random filters and projections from a public seed |
| `pictures` | made-up pictures, and the whitening that they teach |
| `backbones` | frozen networks, whose features are extracted once into a file |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.features.backbones import extract as extract, load_backbone as load_backbone
    from sumus.features.bias import BIAS_SHARE as BIAS_SHARE, bias_feature as bias_feature
    from sumus.features.maps import (
        FeatureMap as FeatureMap,
        bounded as bounded,
        feature_map as feature_map,
    )
    from sumus.features.pictures import made_up_pictures as made_up_pictures

__getattr__, __dir__, __all__ = door(
    __name__,
    backbones="extract load_backbone",
    bias="BIAS_SHARE bias_feature",
    maps="FeatureMap bounded feature_map",
    pictures="made_up_pictures",
)
