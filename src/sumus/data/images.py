"""What sets of published images share: pixels in [0, 1], and files that are checked."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sumus.data.pool import Pool
from sumus.errors import DataError
from sumus.tasks import LabelFacts, Labels

__all__ = ["checked", "image_pool"]


def image_pool(
    name: str, images: NDArray[np.uint8], labels: NDArray[np.uint8], facts: LabelFacts
) -> Pool:
    """Images as float32 in [0, 1], encoded when they are asked for."""
    return Pool(
        name=name,
        labels=Labels(labels.astype(np.int64), facts),
        encode=lambda rows: images[rows].astype(np.float32) / np.float32(255.0),
        shape=images.shape[1:],
    )


def checked(raw: bytes, digest: str, path: Path) -> bytes:
    """The content of a file with the published md5 sum, or an error."""
    actual = hashlib.md5(raw, usedforsecurity=False).hexdigest()
    if actual != digest:
        raise DataError(
            f"{path} is damaged: md5 of its content must be {digest}, got {actual}. Get the file "
            "again."
        )
    return raw
