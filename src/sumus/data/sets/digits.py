"""8 × 8 handwritten digits, which come with scikit-learn."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sumus.data.catalogue_entry import NamedSet
from sumus.data.locations import missing
from sumus.data.pool import Pool
from sumus.tasks import LabelFacts, Labels

__all__ = ["SETS"]

_FILE = "digits.csv.gz"
_LABELS = LabelFacts(tuple(str(digit) for digit in range(10)))


def _place(cache: Path | None = None) -> str:
    """Where the digits come from."""
    if importlib.util.find_spec("sklearn") is None:
        raise missing("digits", "Run: pip install 'sumus[train]' (it comes with scikit-learn).")
    return "scikit-learn"


def _pixels_and_labels() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The records as scikit-learn gives them.

    Its file is read where it is known to lie: importing scikit-learn takes a second.
    """
    package = importlib.util.find_spec("sklearn")
    for folder in (package.submodule_search_locations or ()) if package else ():
        file = Path(folder) / "datasets" / "data" / _FILE
        if file.is_file():
            rows = np.loadtxt(file, delimiter=",")
            return rows[:, :-1], rows[:, -1]
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return pixels, labels


def _load(cache: Path | None = None) -> Pool:
    """8 × 8 images of handwritten digits, 1,797 records, embedded in scikit-learn; pixel values
    divided by their public maximum 16.
    """
    _place(cache)
    pixels, labels = _pixels_and_labels()
    x = (pixels / 16.0).astype(np.float32)
    return Pool(
        name="digits",
        labels=Labels(labels.astype(np.int64), _LABELS),
        encode=lambda rows: x[rows],
        shape=(64,),
    )


SETS = (
    NamedSet(
        name="digits",
        title="8 × 8 handwritten digits, comes with scikit-learn",
        shape=(64,),
        labels=_LABELS,
        class_counts=(178, 182, 177, 183, 181, 182, 181, 179, 174, 180),
        default_silos=5,
        place=_place,
        load=_load,
    ),
)
