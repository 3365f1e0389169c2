"""Public maps of one record that stand in front of a model: filters, random maps, frozen
backbones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.features.backbones import extract, load_backbone
    from sumus.features.maps import bounded, feature_map

__all__ = [
    "bounded",
    "extract",
    "feature_map",
    "load_backbone",
]

__getattr__, __dir__ = door(
    __name__,
    backbones="extract load_backbone",
    maps="bounded feature_map",
)
