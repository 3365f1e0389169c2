"""Breast Cancer Wisconsin (diagnostic), which comes with scikit-learn: is a tumour malignant?

Street, Wolberg, Mangasarian 1993 (Nuclear feature extraction for breast tumor diagnosis). Ten
quantities of the cell nuclei of one image, each as mean, standard error and worst value.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from sumus.data.catalogue_entry import NamedSet
from sumus.data.locations import missing
from sumus.data.pool import Pool
from sumus.tasks import LabelFacts, Labels

__all__ = ["SETS"]

_LABELS = LabelFacts(("malignant", "benign"))

# round numbers above the ranges that come with the set's description; a value beyond is cut, so
# that scaling is a public function of one record
_LARGEST = {
    "radius": 40.0,
    "texture": 50.0,
    "perimeter": 300.0,
    "area": 5000.0,
    "smoothness": 0.25,
    "compactness": 1.25,
    "concavity": 1.5,
    "concave points": 0.3,
    "symmetry": 0.7,
    "fractal dimension": 0.25,
}
_ERROR_SHARE = 0.4  # standard errors are smaller than what they belong to


def _place(cache: Path | None = None) -> str:
    """Where the records come from."""
    if importlib.util.find_spec("sklearn") is None:
        raise missing(
            "breast-cancer", "Run: pip install 'sumus[train]' (it comes with scikit-learn)."
        )
    return "scikit-learn"


def _load(cache: Path | None = None) -> Pool:
    """569 records of 30 features in [0, 1]."""
    _place(cache)
    from sklearn.datasets import load_breast_cancer

    values, labels = load_breast_cancer(return_X_y=True)
    largest = np.array(list(_LARGEST.values()))
    scale = np.concatenate([largest, _ERROR_SHARE * largest, largest])
    x = np.clip(values / scale, 0.0, 1.0).astype(np.float32)
    return Pool(
        name="breast-cancer",
        labels=Labels(labels.astype(np.int64), _LABELS),
        encode=lambda rows: x[rows],
        shape=(30,),
    )


SETS = (
    NamedSet(
        name="breast-cancer",
        title="30 measurements of cell nuclei, comes with scikit-learn",
        shape=(30,),
        labels=_LABELS,
        class_counts=(212, 357),
        default_silos=3,
        place=_place,
        load=_load,
    ),
)
