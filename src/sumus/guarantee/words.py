"""How many records and which columns a guarantee is about, as every front end says it."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["records_in_words"]

_SHOWN = 12  # columns that are named; a table may have hundreds


def records_in_words(
    records_per_silo: Sequence[int], columns: Sequence[str]
) -> list[tuple[str, str]]:
    """(name, value) of what is known: nothing where an account is not about records, no columns
    where there is no table.
    """
    lines = []
    if records_per_silo:
        fewest, most = min(records_per_silo), max(records_per_silo)
        each = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
        lines.append(
            (
                "records",
                f"at most {sum(records_per_silo):,} for training, {each} in each of "
                f"{len(records_per_silo)} silos",
            )
        )
    if columns:
        rest = f", … ({len(columns)} in all)" if len(columns) > _SHOWN else ""
        lines.append(("columns", ", ".join(columns[:_SHOWN]) + rest))
    return lines
