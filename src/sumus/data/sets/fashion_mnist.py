"""Fashion-MNIST: 28 × 28 grey images of clothing.

Training and test images are pooled, as in Heikkilä 2025; every silo then keeps its own test part.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from sumus.data.catalogue_entry import NamedSet
from sumus.data.images import checked, image_pool
from sumus.data.locations import find, missing
from sumus.data.pool import Pool
from sumus.errors import DataError
from sumus.tasks import LabelFacts

__all__ = ["SETS", "fashion_mnist_place"]

_LABELS = LabelFacts(
    (
        "T-shirt",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    )
)

# md5 of the raw idx files; the compressed files differ between distributors
_FASHION_FILES = {
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}
_FASHION_HOW = (
    "Run: apt install dataset-fashion-mnist (or put its four idx .gz files into the folder "
    "fashion-mnist of $SUMUS_DATA)."
)


def fashion_mnist_place(cache: Path | None = None) -> Path:
    """Folder of the four idx files."""
    folder = find("fashion-mnist", cache=cache, also=(Path("/usr/share/datasets/fashion-mnist"),))
    if folder is None:
        raise missing("fashion-mnist", _FASHION_HOW)
    return folder


def _load(cache: Path | None = None) -> Pool:
    """28 × 28 grey images of clothing, 70,000 records, as (1, 28, 28) in [0, 1]."""
    folder = fashion_mnist_place(cache)
    raw = {
        name: checked(_gunzip(folder / f"{name}.gz"), digest, folder / name)
        for name, digest in _FASHION_FILES.items()
    }
    # idx headers: 16 bytes before images, 8 bytes before labels; the md5 fixes the rest of the
    # layout
    images = np.concatenate(
        [
            np.frombuffer(raw[f"{part}-images-idx3-ubyte"], np.uint8, offset=16)
            for part in ("train", "t10k")
        ]
    )
    labels = np.concatenate(
        [
            np.frombuffer(raw[f"{part}-labels-idx1-ubyte"], np.uint8, offset=8)
            for part in ("train", "t10k")
        ]
    )
    return image_pool("fashion-mnist", images.reshape(-1, 1, 28, 28), labels, _LABELS)


def _gunzip(path: Path) -> bytes:
    try:
        with gzip.open(path) as file:
            return file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. {_FASHION_HOW}") from None


SETS = (
    NamedSet(
        name="fashion-mnist",
        title="28 × 28 grey images of clothing",
        shape=(1, 28, 28),
        labels=_LABELS,
        class_counts=(7000,) * 10,
        default_silos=10,
        place=fashion_mnist_place,
        load=_load,
    ),
)
