"""Objects that a plan names as "package.module:NAME"."""

from __future__ import annotations

import importlib
from typing import Any

from sumus.errors import PlanError

__all__ = ["object_at"]


def object_at(path: str, *, field: str) -> Any:
    """What "package.module:Name" refers to; the package must already be installed, nothing is
    fetched.
    """
    module_name, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        fix = f"{error}. Install the package, put its folder on PYTHONPATH, or correct the name."
        raise PlanError(field, path, 'must be an importable "package.module:Name"', fix) from None
