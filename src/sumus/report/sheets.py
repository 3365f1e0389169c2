"""How large the letters of a printed page are, so that what a person signs fits on two sheets."""

from __future__ import annotations

import math
from collections.abc import Iterable

from sumus.report.words import Statement

__all__ = ["ASSUMED", "letters_for"]

ASSUMED = 8
"""Assumptions that are printed, doubts first; the page itself has all of them."""

_ROOM = 495.0  # mm of two sheets of Letter, less what breaks between blocks waste
_SIZES = {"": 1.0, "dense": 0.93, "denser": 0.87, "densest": 0.8}
"""Classes of the style sheet, and the size of their letters against the first."""
_LINE = 3.9  # mm of a line of text; a row of a table has a little more


def letters_for(statement: Statement, *, rows: int, bars: int, figures: bool) -> str:
    """The class of the style sheet whose letters are small enough.

    Args:
        rows: of the tables of measures and of the ledger.
        bars: of the comparison.
        figures: whether there are charts.
    """
    height = (
        120.0  # title, headings, signatures
        + _text((value for _, value in statement.terms), width=66)
        + max(
            _text(statement.meaning, width=50)
            + _text([statement.brief], width=56)
            + 1.3 * _LINE * (len(statement.attacks) + 2),
            _text(statement.gaps, width=50),
        )
        + _text((value for _, value in statement.assumptions[:ASSUMED]), width=92)
        + 2.0 * _text([statement.brief], width=110)
        + 1.3 * _LINE * rows
        + 2.4 * _LINE * bars
        + (52.0 if figures else 0.0)
    )
    return next((name for name, size in _SIZES.items() if size * height <= _ROOM), "densest")


def _text(texts: Iterable[str], *, width: int) -> float:
    return sum(_LINE * math.ceil(len(text) / width) + 0.6 for text in texts)
