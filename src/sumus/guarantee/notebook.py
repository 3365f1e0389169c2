"""What a notebook shows of a guarantee or a run: a small table, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = ["as_table", "labelled"]

_LABEL = 15  # columns of "  counts on    "


def as_table(title: str, lines: Iterable[tuple[str, str]]) -> str:
    """HTML of a titled table with one (name, value) per row."""
    left = 'style="text-align: left; vertical-align: top"'
    rows = "".join(
        f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(value)}</td></tr>"
        for name, value in lines
    )
    return (
        f"<table><caption><strong>{escape(title)}</strong></caption><tbody>{rows}</tbody></table>"
    )


def labelled(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Lines such as "  counts on    5 of 5 silos …" and "  for comparison: local noise …" as (name,
    value).
    """
    pairs = []
    for line in lines:
        in_columns = line[_LABEL - 1 : _LABEL] == " "
        name, _, value = (line[:_LABEL], "", line[_LABEL:]) if in_columns else line.partition(": ")
        pairs.append((name.strip(), value.strip()))
    return pairs
