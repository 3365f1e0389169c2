"""The CSV reader: whatever a writer wrote comes back, and whatever a file holds it is columns or
one declared error.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sumus.data import TextColumn
from sumus.data.csv_table import read_csv
from sumus.errors import DataError

MISSING = {"", "na", "n/a", "nan", "null", "?"}
values = st.text(st.characters(codec="utf-8"), max_size=8)
names = st.lists(
    st.text(
        st.characters(codec="utf-8", exclude_categories=("Cc", "Zs", "Zl", "Zp")),
        min_size=1,
        max_size=5,
    ),
    min_size=1,
    max_size=5,
)


def _write(folder: Path, content: str | bytes) -> Path:
    path = folder / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def _decoded(path: Path) -> dict[str, list[str | None]]:
    return {
        name: [None if code < 0 else column.values[code] for code in column.codes]
        for name, column in read_csv(path).items()
    }


def _columns_or_complaint(path: Path) -> tuple[dict[str, TextColumn], str | None]:
    try:
        return read_csv(path), None
    except DataError as error:
        return {}, str(error)


@pytest.mark.deep
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(header=names, rows=st.integers(1, 6), data=st.data())
def test_what_the_standard_writer_wrote_comes_back(tmp_path, header, rows, data):
    header = list(dict.fromkeys(name.strip() or "c" for name in header))
    table = [[data.draw(values) for _ in header] for _ in range(rows)]
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([header, *table])
    separators = text.getvalue().splitlines()[0]
    if any(separators.count(other) > separators.count(",") for other in ";\t|"):
        return  # the header itself is full of another separator
    if len(header) == 1 and any(separators.count(other) for other in ";\t|"):
        return
    expected = {
        name: [
            None if row[index].strip().casefold() in MISSING else row[index].strip()
            for row in table
        ]
        for index, name in enumerate(header)
    }
    assert _decoded(_write(tmp_path, text.getvalue())) == expected


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    content=st.one_of(
        st.binary(max_size=80), st.text("ab1,;\"\n\r\t |'\0é", max_size=60).map(str.encode)
    )
)
def test_any_bytes_are_columns_of_one_length_or_a_data_error(tmp_path, content):
    columns, complaint = _columns_or_complaint(_write(tmp_path, content))
    if complaint is not None:
        assert "\n" not in complaint
        return
    assert columns
    assert len({len(column.codes) for column in columns.values()}) == 1
    assert all(
        -1 <= code < len(column.values) for column in columns.values() for code in column.codes
    )


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a,b,a\n1,2,3\n", "'a' appears 2 times"),
        ("a,,b\n1,2,3\n", "column 2 of the header has no name"),
        ("a,b\n1,2\n3\n", "record 2 has 1 values, the header has 2"),
        ("a,b\n1,2,3\n", "record 1 has 3 values"),
        ('a,b\n"1,2\n', "line 2"),
        ('a,b\n"1"x,2\n', "line 2"),
        (b"a,b\n\xff\xfe,2\n", "UTF-8"),
        ("a,b\n" + "x" * 200_000 + ",1\n", "line 2"),
    ],
)
def test_broken_files_say_what_is_wrong_and_where(tmp_path, content, complaint):
    with pytest.raises(DataError) as caught:
        read_csv(_write(tmp_path, content))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_recognised(tmp_path, separator):
    path = _write(tmp_path, f"a{separator}b\n1{separator}x\n")
    assert _decoded(path) == {"a": ["1"], "b": ["x"]}


def test_byte_order_mark_blank_lines_and_windows_line_ends(tmp_path):
    path = _write(tmp_path, b"\xef\xbb\xbfa,b\r\n\r\n 1 ,x\r\n")
    assert _decoded(path) == {"a": ["1"], "b": ["x"]}


def test_more_rows_than_one_block(tmp_path):
    count = 70_000
    path = _write(tmp_path, "a,b\n" + "".join(f"{index},{index % 3}\n" for index in range(count)))
    columns = read_csv(path)
    assert [columns["a"].values[code] for code in columns["a"].codes[[0, 65_535, 65_536, -1]]] == [
        "0",
        "65535",
        "65536",
        "69999",
    ]
    assert columns["b"].values == ("0", "1", "2")


def test_a_missing_file_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_csv(tmp_path / "none.csv")
