"""Learned bounds in a plan's own file: lines below its `[data.bounds]`, all else as it stands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sumus.describing.description import Description
from sumus.errors import PlanError, StorageError
from sumus.files import read_toml, replace_atomically, toml_value
from sumus.plan import TrainingPlan

__all__ = ["fill_bounds"]

_HEADER = re.compile(r"^[ \t]*\[[ \t]*data[ \t]*\.[ \t]*bounds[ \t]*\].*$", re.MULTILINE)


def fill_bounds(path: Path, description: Description) -> dict[str, tuple[float, float]]:
    """Write the bounds that a description has learned into a plan; returns them.

    Guarantee: the plan's file parses to the plan that it was with these bounds added, and keeps its
        comments; a bound that stands in it stays. Otherwise nothing is written.

    Args:
        path: the plan's file.
        description: of its records.
    """
    if description.void is not None:
        raise StorageError(
            f"{path} is left as it is: {description.void}, so the bounds are not private. Describe "
            "without a seed."
        )
    text = read_toml(path, "plan")
    plan = TrainingPlan.from_toml(text)
    learned = _wanted(plan, description)
    if not learned:
        return {}
    changed = _with_lines(text, learned, description.path.name)
    expected = plan.replace("data", bounds={**(plan.data.bounds or {}), **learned})
    try:
        same = TrainingPlan.from_toml(changed).hash == expected.hash
    except PlanError:  # its bounds stand in a line of another shape
        same = False
    if not same:
        raise StorageError(
            f"{path} is left as it is: it has no line [data.bounds] that can be continued. Copy the "
            f"bounds from {description.path / 'bounds.toml'}."
        )
    replace_atomically(path, changed.encode())
    return learned


def _wanted(plan: TrainingPlan, description: Description) -> dict[str, tuple[float, float]]:
    """Learned bounds of columns that the plan says nothing about."""
    data, declares = plan.data, plan.task.label_declaration
    said = {*(data.bounds or {}), *(data.categories or {}), data.silo_column, data.person_column}
    labels = data.named(plan.task.label_keys).values()
    said |= set() if declares == "bounds" else {*labels}
    features = data.columns
    return {
        name: column.bounds
        for name, column in description.columns.items()
        if column.learned
        and column.bounds is not None
        and name not in said
        and (features is None or name in features or name in labels)
    }


def _with_lines(text: str, bounds: Mapping[str, tuple[float, float]], run: str) -> str:
    lines = [
        f"{toml_value(name)} = {toml_value(list(ends))}  # learned by {run}"
        for name, ends in bounds.items()
    ]
    header = _HEADER.search(text)
    if header is None:
        return "\n".join([text.rstrip(), "", "[data.bounds]", *lines, ""])
    return "\n".join([text[: header.end()], *lines]) + text[header.end() :]
