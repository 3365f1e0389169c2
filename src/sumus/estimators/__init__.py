"""Private models with scikit-learn's manners: a consortium in three lines.

    model = sumus.Classifier(epsilon=1.0, bounds={"age": (18, 99)})
    model.fit(frame, readmitted, silos="hospital")
    model.predict(new_rows), model.privacy_

`estimator` ties rows to `sumus.train`, `rows` reads them, `choosing` makes a plan of public facts,
`manners` has what scikit-learn expects of an estimator, with and without scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.estimators.classifier import Classifier as Classifier
    from sumus.estimators.estimator import SpendingWarning as SpendingWarning
    from sumus.estimators.regressor import Regressor as Regressor
    from sumus.estimators.survival import Survival as Survival

__getattr__, __dir__, __all__ = door(
    __name__,
    classifier="Classifier",
    estimator="SpendingWarning",
    regressor="Regressor",
    survival="Survival",
)
