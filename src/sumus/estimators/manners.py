"""What scikit-learn expects of an estimator: its own base class where it is installed, and the few
methods that matter where it is not.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Self

from sumus.errors import DataError

__all__ = ["Estimating", "InputError", "UnfittedError"]


class InputError(DataError, ValueError):
    """Rows, labels or parameters that an estimator cannot take."""


class _OwnManners:
    """Parameters are the constructor's arguments, kept under their names."""

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name."""
        for name, value in params.items():
            if name not in self._names():
                raise InputError(f"{name} is no parameter of {type(self).__name__}.")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        told = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not defaults[name].default
        ]
        return f"{type(self).__name__}({', '.join(told)})"


if TYPE_CHECKING:
    Estimating = _OwnManners

    class UnfittedError(InputError):
        """Nothing was trained yet."""

else:
    try:
        from sklearn.base import BaseEstimator as Estimating
        from sklearn.exceptions import NotFittedError

        class UnfittedError(InputError, NotFittedError):
            """Nothing was trained yet."""

    except ImportError:  # scikit-learn is optional
        Estimating = _OwnManners

        class UnfittedError(InputError, AttributeError):
            """Nothing was trained yet."""
