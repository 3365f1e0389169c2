"""Somebody whose text stands in a table (a name, a note, a class) wants it to be run as a formula by
the spreadsheet in which predictions are opened.
"""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest

from sumus.predicting import Predictions, predictions as module
from sumus.predicting.rows import RowCounts

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\n=1"]
PLAIN = ["", "ward 3", "-5", "+4.5", "-1e3", "a=b"]


def cells(texts: list[str]) -> list[list[Any]]:
    columns = {
        "=note": np.array(texts, dtype=object),
        "prediction": np.array(texts, dtype=object),
        "score": np.full(len(texts), -0.5),
    }
    text = Predictions(columns, RowCounts(rows=len(texts))).to_csv()
    return list(csv.reader(io.StringIO(text, newline="")))


def test_no_text_begins_a_formula() -> None:
    header, *rows = cells(FORMULAS)
    assert header[0] == "'=note"
    assert rows == [[f"'{text}", f"'{text}", "-0.5"] for text in FORMULAS]


def test_no_text_begins_a_row() -> None:
    assert cells(["x\r=1", "x\r\n=1", "\r=1"])[1:] == [
        [text, text, "-0.5"] for text in ("x\n=1", "x\n=1", "'\n=1")
    ]


def test_numbers_and_other_text_stay_as_they_are() -> None:
    assert cells(PLAIN)[1:] == [[text, text, "-0.5"] for text in PLAIN]


def test_control_as_they_stand_they_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_no_formula", lambda cell: cell)
    assert cells(FORMULAS)[1][0] == FORMULAS[0]
