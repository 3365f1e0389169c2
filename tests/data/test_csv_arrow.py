"""The fast CSV reader gives the columns, and the errors, of the standard library's reader, wherever
blocks end.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sumus.data import csv_arrow, csv_table, packed, text_blocks
from sumus.data.csv_arrow import ArrowRows
from sumus.data.csv_table import read_csv
from sumus.data.words import Words
from sumus.errors import DataError

pytest.importorskip("pyarrow")

cells = st.one_of(
    st.sampled_from(
        ["", " ", "1", "2.50", " 2.5", "NA", "nan ", "null", "?", "é", "x\u3000", "\x1f", "+3", "0"]
    ),
    st.sampled_from(['"a"', '"a,b"', '"a\nb"', '"a""b"', '""', '"a\r\nb"', '" q "', '"é"']),
    st.sampled_from(['a"b', '"a"b', '"', "a\rb", "\0", "\ufeff"]),
    st.integers(0, 99999).map(str),
    st.floats(allow_nan=False, width=32).map(repr),
)
ends = st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", "\r"])


@st.composite
def files(draw: st.DrawFn) -> bytes:
    width = draw(st.integers(1, 4))
    separator = draw(st.sampled_from([",", ";", "\t", "|"]))
    kinds = cells if draw(st.booleans()) else cells.filter(lambda cell: "\r" not in cell)
    lines = [separator.join(f"c{place}" for place in range(width))]
    for _ in range(draw(st.integers(0, 8))):
        count = width if draw(st.integers(0, 20)) else draw(st.integers(1, 5))
        lines.append(separator.join(draw(kinds) for _ in range(count)))
    end = draw(ends)
    text = "".join(line + (end if draw(st.integers(0, 9)) else draw(ends)) for line in lines)
    text = text if draw(st.booleans()) else text.rstrip("\r\n")
    return (b"\xef\xbb\xbf" if draw(st.booleans()) else b"") + text.encode()


def _outcome(path: Path) -> object:
    try:
        columns = read_csv(path)
    except DataError as error:
        return str(error)
    return {name: (tuple(each.values), each.codes.tolist()) for name, each in columns.items()}


@pytest.mark.deep
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    content=files(), at_once=st.sampled_from([3, 16, 2**20]), many=st.sampled_from([0, 3, 10**6])
)
def test_columns_and_errors_are_those_of_the_standard_library(tmp_path, content, at_once, many):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            csv_table, "arrow_rows", lambda blocks, header, sep, lines: ArrowRows(0, lines=lines)
        )
        expected = _outcome(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_blocks, "AT_ONCE", at_once)
        patch.setattr(csv_arrow, "_MANY", many)
        assert _outcome(path) == expected


def test_the_fast_reader_reads_all_of_a_plain_file(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n" + "".join(f'{number / 7},"x, {number}"\n' for number in range(30_000)))
    monkeypatch.setattr(csv_table, "_numbered", _none_left)
    columns = read_csv(path)
    assert isinstance(columns["a"].values, Words)
    assert columns["b"].values[-1] == "x, 29999"


def _none_left(path, header, rows, done):
    assert list(rows) == []
    return [() for _ in header], [np.zeros(0, np.int32) for _ in header]


@given(
    st.lists(
        st.one_of(
            st.floats().map(repr), st.integers().map(str), st.text("0123456789.eE+-_ ", min_size=1)
        ),
        min_size=1,
        max_size=20,
    )
)
@settings(max_examples=200, deadline=None)
def test_plain_numbers_are_what_python_reads(spelt):
    import pyarrow

    numbers, plain = Words(pyarrow.array(spelt)).plain_numbers()
    for text, number, sure in zip(spelt, numbers, plain, strict=True):
        if sure:
            assert float(text) == number


def test_a_packed_bomb_is_refused_and_a_packed_table_is_not(tmp_path, monkeypatch):
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 20_000))
    assert len(read_csv(path)["a"]) == 20_000
    monkeypatch.setattr(packed, "BOUND", 1000)
    monkeypatch.setattr(packed, "RATIO", 10)
    with pytest.raises(DataError, match="unpacks to more than 10 times its size"):
        read_csv(path)
