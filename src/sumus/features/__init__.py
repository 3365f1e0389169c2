"""Public maps of one record that stand in front of a model: filters, random maps, frozen
backbones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.features.backbones import extract as extract, load_backbone as load_backbone
    from sumus.features.maps import bounded as bounded, feature_map as feature_map

__getattr__, __dir__, __all__ = door(
    __name__,
    backbones="extract load_backbone",
    maps="bounded feature_map",
)
