"""From a table to a plan: what its columns are, what follows from its size, and a file that says so
with reasons.

    looked_at = look_at(file, folder, path)          # names and kinds of columns
    drafted = draft(looked_at, Asked(silo="hospital", label="readmitted"))
    plan_text(drafted, "plan.toml")                  # a commented plan that trains

What a plan tells of the records goes to everybody who reads it: kinds of columns and the order of
magnitude of their number, no count and no value. Counts are in `Draft.remarks`, for the terminal of
whoever holds the records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.drafting.advice import SKEWS as SKEWS, Advice as Advice, advise as advise
    from sumus.drafting.asked import (
        Asked as Asked,
        LookedAt as LookedAt,
        check_task as check_task,
        look_at as look_at,
    )
    from sumus.drafting.choices import (
        Choice as Choice,
        Size as Size,
        choices_for as choices_for,
        gaussian_distance as gaussian_distance,
        rounded_down as rounded_down,
    )
    from sumus.drafting.composing import Draft as Draft, draft as draft
    from sumus.drafting.findings import Finding as Finding, finding_of as finding_of
    from sumus.drafting.schema import (
        Known as Known,
        check_commas as check_commas,
        typed_bounds as typed_bounds,
        typed_names as typed_names,
        typed_numbers as typed_numbers,
    )
    from sumus.drafting.writing import (
        as_json as as_json,
        plan_text as plan_text,
        read_off as read_off,
        shown as shown,
    )

__getattr__, __dir__, __all__ = door(
    __name__,
    advice="SKEWS Advice advise",
    asked="Asked LookedAt check_task look_at",
    choices="Choice Size choices_for gaussian_distance rounded_down",
    composing="Draft draft",
    findings="Finding finding_of",
    schema="Known check_commas typed_bounds typed_names typed_numbers",
    writing="as_json plan_text read_off shown",
)
