"""Odd tables as people and attackers bring them: each trains, or is refused in one line."""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
import lzma
import os
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import sumus
from sumus.data import load, packed, text_blocks
from sumus.data.xlsx_table import read_xlsx
from sumus.errors import SumusError
from sumus.plan import TrainingPlan

arrow = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")
openpyxl = pytest.importorskip("openpyxl")
duckdb = pytest.importorskip("duckdb")

HEADER = ("silo", "age", "ward", "label")
ROWS = [
    ("AB"[place % 2], 20.5 + place % 50, "xyz"[place % 3], place % 2 ^ (place % 5 == 0))
    for place in range(40)
]
Rows = list[tuple[object, ...]]


def _text(separator: str = ",", end: str = "\n", rows: Rows | None = None) -> str:
    lines = [HEADER, *(ROWS if rows is None else rows)]
    return "".join(separator.join(map(str, line)) + end for line in lines)


def _table(rows: Rows | None = None) -> object:
    columns = zip(*(ROWS if rows is None else rows), strict=True)
    return arrow.table(dict(zip(HEADER, map(list, columns), strict=True)))


def _file(content: str | bytes, name: str = "own.csv") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def _zstandard(folder: Path) -> Path:
    with arrow.CompressedOutputStream(str(folder / "own.csv.zst"), "zstd") as file:
        file.write(_text().encode())
    return folder / "own.csv.zst"


def _workbook(fill: Callable[[object], None], name: str = "own.xlsx") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        book = openpyxl.Workbook()
        fill(book)
        book.save(folder / name)
        return folder / name

    return write


def _sheet(book: object) -> None:
    for row in (HEADER, *ROWS):
        book.active.append(row)


def _second_sheet(book: object) -> None:
    book.active.append(["notes"])
    for row in (HEADER, *ROWS):
        book["visits"].append(row) if "visits" in book.sheetnames else book.create_sheet(
            "visits"
        ).append(row)


def _dates(book: object) -> None:
    book.active.append(HEADER)
    for place, (silo, _, ward, label) in enumerate(ROWS):
        moment = datetime.datetime(2020, 1, 1) + datetime.timedelta(days=place)
        book.active.append([silo, moment, ward, label])


def _formula(book: object) -> None:
    _sheet(book)
    book.active["B3"] = "=1+1"


def _bomb_book(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "own.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", "<a/>")
        archive.writestr("xl/worksheets/sheet1.xml", b"0" * 3_000_000)
    return folder / "own.xlsx"


def _entities(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "own.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", '<!DOCTYPE a [<!ENTITY b "bb">]><a>&b;</a>')
    return folder / "own.xlsx"


def _rewritten(name: str, change: Callable[[str], bytes]) -> Callable[[Path], Path]:
    """A good workbook, one member of which is changed."""

    def write(folder: Path) -> Path:
        good = _workbook(_sheet, "good.xlsx")(folder)
        with zipfile.ZipFile(good) as old, zipfile.ZipFile(folder / "own.xlsx", "w") as new:
            for member in old.namelist():
                text = old.read(member)
                new.writestr(member, change(text.decode()) if member == name else text)
        return folder / "own.xlsx"

    return write


_SHEET_XML, _RELS = "xl/worksheets/sheet1.xml", "xl/_rels/workbook.xml.rels"
_DOCTYPE = '<!DOCTYPE a [<!ENTITY b "bb">]>'


def _in_utf16(text: str) -> bytes:
    return (_DOCTYPE + text.partition("?>")[2] if "?>" in text else _DOCTYPE + text).encode(
        "utf-16"
    )


def _zip_of_csv(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "own.zip", "w") as archive:
        archive.writestr("own.csv", _text())
    return folder / "own.zip"


def _written(write: Callable[[object, str], None], name: str) -> Callable[[Path], Path]:
    def into(folder: Path) -> Path:
        write(_table(), str(folder / name))
        return folder / name

    return into


def _stream(table: object, path: str) -> None:
    with arrow.OSFile(path, "wb") as sink, arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _folder(*parts: tuple[str, bytes]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        for name, content in parts:
            (folder / "own" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "own" / name).write_bytes(content)
        (folder / "own").mkdir(exist_ok=True)
        return folder / "own"

    return write


def _parquet_bytes(rows: Rows, drop: str | None = None) -> bytes:
    sink = io.BytesIO()
    table = _table(rows)
    parquet.write_table(table if drop is None else table.drop_columns([drop]), sink)
    return sink.getvalue()


def _of_silo(name: str) -> Rows:
    return [row for row in ROWS if row[0] == name]


def _linked(folder: Path) -> Path:
    _file(_text(), "real.csv")(folder)
    (folder / "own.csv").symlink_to("real.csv")
    return folder / "own.csv"


def _loop(folder: Path) -> Path:
    (folder / "own.csv").symlink_to("own.csv")
    return folder / "own.csv"


def _linked_folder(folder: Path) -> Path:
    (folder / "other").mkdir()
    _file(_text())(folder / "other")
    (folder / "own").mkdir()
    (folder / "own" / "deep").symlink_to(folder / "other")
    return folder / "own"


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "own.csv")
    return folder / "own.csv"


def _pipe_in_folder(folder: Path) -> Path:
    (folder / "own").mkdir()
    os.mkfifo(folder / "own" / "part.csv")
    return folder / "own"


def _sqlite(query: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        with sqlite3.connect(folder / "own.sqlite") as link:
            link.execute("CREATE TABLE visits (silo, age, ward, label)")
            link.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", ROWS)
        link.close()
        return _file(f'database = "own.sqlite"\nquery = "{query}"\n', "own.toml")(folder)

    return write


def _duckdb(query: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        with duckdb.connect(str(folder / "own.duckdb")) as link:
            link.register("given", _table())
            link.execute("CREATE TABLE visits AS SELECT * FROM given")
        return _file(f'database = "own.duckdb"\nquery = "{query}"\n', "own.toml")(folder)

    return write


def _duckdb_over_files(folder: Path) -> Path:
    _written(parquet.write_table, "visits.parquet")(folder)
    return _file("query = \"SELECT * FROM '{folder}/*.parquet'\"\n", "own.toml")(folder)


def _with(place: int, row: tuple[object, ...]) -> Rows:
    return [*ROWS[:place], row, *ROWS[place:]]


WHOLE = _text().encode()
TRAINS: dict[str, tuple[Callable[[Path], Path], dict[str, object]]] = {
    "plain": (_file(WHOLE), {}),
    "semicolons": (_file(_text(";")), {}),
    "tabs": (_file(_text("\t"), "own.tsv"), {}),
    "bars": (_file(_text("|")), {}),
    "windows line ends": (_file(_text(end="\r\n")), {}),
    "old Macintosh line ends": (_file(_text(end="\r")), {}),
    "no line end at the end": (_file(WHOLE.rstrip()), {}),
    "byte order mark": (_file(b"\xef\xbb\xbf" + WHOLE), {}),
    "utf-16 with mark": (_file(_text().encode("utf-16")), {}),
    "utf-32 with mark": (_file(_text().encode("utf-32")), {}),
    "latin-1, declared": (
        _file(_text().replace("x", "ö").encode("latin-1")),
        {"encoding": "latin-1"},
    ),
    "cp1252, declared": (_file(_text().replace("x", "€").encode("cp1252")), {"encoding": "cp1252"}),
    "utf-16 without mark, declared": (
        _file(_text().encode("utf-16-le")),
        {"encoding": "utf-16-le"},
    ),
    "decimal commas": (
        _file(_text(";").replace(".5", ",5")),
        {"decimal_comma": ["age"]},
    ),
    "quoted line ends": (_file(_text(rows=_with(3, ("A", 3, '"x\ny"', 1)))), {}),
    "doubled quotes": (_file(_text(rows=_with(3, ("A", 3, '"x ""y"""', 1)))), {}),
    "quotes in the middle": (_file(_text(rows=_with(3, ("A", 3, 'x"y', 1)))), {}),
    "missing values": (_file(_text(rows=_with(3, ("A", "", "NA", 1)))), {}),
    "blank lines": (_file(_text().replace("\n", "\n\n")), {}),
    "a formula as text": (_file(_text(rows=_with(3, ("A", 3, "=cmd|' /C calc'!A0", 1)))), {}),
    "markup as a value": (_file(_text(rows=_with(3, ("A", 3, "<script>x</script>", 1)))), {}),
    "a long value": (_file(_text(rows=_with(3, ("A", 3, "x" * 100_000, 1)))), {}),
    "numbers beyond floats": (_file(_text(rows=_with(3, ("A", "9" * 400, "x", 1)))), {}),
    "gzip": (_file(gzip.compress(WHOLE), "own.csv.gz"), {}),
    "gzip under another name": (_file(gzip.compress(WHOLE)), {}),
    "bzip2": (_file(bz2.compress(WHOLE), "own.csv.bz2"), {}),
    "xz": (_file(lzma.compress(WHOLE), "own.csv.xz"), {}),
    "zstandard": (_zstandard, {}),
    "parquet": (_written(parquet.write_table, "own.parquet"), {}),
    "feather": (_written(feather.write_feather, "own.feather"), {}),
    "arrow stream": (_written(_stream, "own.arrows"), {}),
    "workbook": (_workbook(_sheet), {}),
    "named sheet": (_workbook(_second_sheet), {"sheet": "visits"}),
    "workbook with dates": (_workbook(_dates), {}),
    "folder of parquet": (
        _folder(("1.parquet", _parquet_bytes(ROWS[:20])), ("2.parquet", _parquet_bytes(ROWS[20:]))),
        {},
    ),
    "folder with partitions": (
        _folder(
            ("silo=A/0.parquet", _parquet_bytes(_of_silo("A"), "silo")),
            ("silo=B/0.parquet", _parquet_bytes(_of_silo("B"), "silo")),
            ("_SUCCESS", b""),
        ),
        {},
    ),
    "folder of packed text": (
        _folder(
            ("1.csv.gz", gzip.compress(_text(rows=ROWS[:20]).encode())),
            ("2.csv", _text(rows=ROWS[20:]).encode()),
        ),
        {},
    ),
    "linked file": (_linked, {}),
    "sqlite": (_sqlite("SELECT * FROM visits"), {}),
    "duckdb": (_duckdb("SELECT *\\nFROM visits"), {}),
    "duckdb over files": (_duckdb_over_files, {}),
}
REFUSED: dict[str, tuple[Callable[[Path], Path], dict[str, object], str]] = {
    "empty": (_file(b""), {}, "is empty"),
    "nothing but blanks": (_file(b"\n\r\n\n"), {}, "is empty"),
    "header alone": (_file(",".join(HEADER) + "\n"), {}, "no records"),
    "one column": (_file("silo\nA\nB\n"), {}, "no column 'label'"),
    "two columns of one name": (_file("silo,age,age,label\nA,1,2,0\n"), {}, "appears 2 times"),
    "a column without name": (_file("silo,,age,label\nA,1,2,0\n"), {}, "has no name"),
    "a line too short": (_file(_text(rows=_with(3, ("A", 3, "x")))), {}, "record 4 has 3 values"),
    "a line too long": (_file(_text(rows=_with(3, ("A", 3, "x", 1, 2)))), {}, "has 5 values"),
    "an open quote": (_file(_text(rows=_with(3, ("A", 3, '"x', 1)))), {}, "line"),
    "a huge value": (_file(_text(rows=_with(3, ("A", 3, "x" * 200_000, 1)))), {}, "field limit"),
    "a huge line": (_file(_text() + "x" * 5000), {}, "a line of more than"),
    "latin-1, not declared": (_file(_text().replace("x", "ö").encode("latin-1")), {}, "UTF-8"),
    "another encoding than declared": (
        _file(b"\x00\xd8" * 3),
        {"encoding": "utf-16-le"},
        "must be utf-16-le text",
    ),
    "an encoding that is none": (_file(WHOLE), {"encoding": "zlib"}, "data.encoding"),
    "bytes of zero": (_file(b"\0" * 4096), {}, "own.csv"),
    "random bytes": (_file(bytes(range(256)) * 20), {}, "own.csv"),
    "machine code": (_file(b"\x7fELF" + bytes(range(256))), {}, "own.csv"),
    "a silo with control characters": (
        _file(_text(rows=_with(3, ("A\x1b[2J", 3, "x", 1)))),
        {},
        "control characters",
    ),
    "a bomb in gzip": (_file(gzip.compress(b"a" * 3_000_000), "own.csv.gz"), {}, "unpacks to more"),
    "a bomb in xz": (_file(lzma.compress(b"a,b\n" * 900_000), "own.csv.xz"), {}, "unpacks to more"),
    "a bomb in a workbook": (_bomb_book, {}, "unpacks to more"),
    "entities in a workbook": (_entities, {}, "defines entities"),
    "entities in a sheet in UTF-16": (
        _rewritten(_SHEET_XML, _in_utf16),
        {},
        "another encoding than UTF-8",
    ),
    "another encoding by name": (
        _rewritten(
            _SHEET_XML, lambda text: f'<?xml version="1.0" encoding="cp1252"?>{text}'.encode()
        ),
        {},
        "another encoding than UTF-8",
    ),
    "entities in relations": (
        _rewritten(_RELS, lambda text: (_DOCTYPE + text).encode()),
        {},
        "defines entities",
    ),
    "half a gzip": (_file(gzip.compress(os.urandom(9000))[:4000], "own.csv.gz"), {}, "damaged"),
    "half a bzip2": (_file(bz2.compress(os.urandom(9000))[:4000], "own.csv.bz2"), {}, "damaged"),
    "a packed workbook": (_file(gzip.compress(b"PK\x03\x04" + b"0" * 99)), {}, "Unpack it"),
    "a zip archive": (_zip_of_csv, {}, "zip archive"),
    "half a zip archive": (_file(b"PK\x03\x04" + b"0" * 99, "own.xlsx"), {}, "damaged"),
    "an old workbook": (_file(b"\xd0\xcf\x11\xe0" + b"0" * 99), {}, "old or encrypted"),
    "a formula never computed": (_workbook(_formula), {}, "cell B3 holds a formula"),
    "a sheet that is not there": (_workbook(_sheet), {"sheet": "visits"}, "no sheet 'visits'"),
    "a sheet of nothing": (_workbook(lambda book: None), {}, "is empty"),
    "text called parquet": (_file(WHOLE, "own.parquet"), {}, "named like a Parquet file"),
    "parquet cut off": (_file(_parquet_bytes(ROWS)[:500]), {}, "cannot be read as Parquet"),
    "arrow cut off": (_file(b"ARROW1\0\0" + b"0" * 50), {}, "cannot be read as Arrow"),
    "a PDF": (_file(b"%PDF-1.7\n"), {}, "is a PDF"),
    "an SQLite file itself": (_file(b"SQLite format 3\0" + b"0" * 99), {}, "SQLite database"),
    "a link to itself": (_loop, {}, "data.path"),
    "a pipe": (_pipe, {}, "is not a file"),
    "a pipe in a folder": (_pipe_in_folder, {}, "is not a file"),
    "a linked folder": (_linked_folder, {}, "link to a folder"),
    "an empty folder": (_folder(), {}, "without files"),
    "a folder of two kinds": (
        _folder(("1.csv", WHOLE), ("2.parquet", _parquet_bytes(ROWS))),
        {},
        "different kinds",
    ),
    "a folder of two schemas": (
        _folder(("1.csv", WHOLE), ("2.csv", b"silo,label\nA,1\n")),
        {},
        "is missing in 2.csv",
    ),
    "a partition that is a column": (
        _folder(("silo=A/1.parquet", _parquet_bytes(ROWS))),
        {},
        "which the files have already",
    ),
    "a query that fails": (_duckdb("SELECT nothing FROM visits"), {}, "cannot be run"),
    "a query that writes": (_sqlite("DELETE FROM visits"), {}, "cannot be run"),
    "a query file without query": (_file('database = "x"\n', "own.toml"), {}, "query = "),
    "a query file that is none": (_file("[privacy]\nepsilon = 1\n", "own.toml"), {}, "privacy"),
}


def _plan(path: Path, data: dict[str, object]) -> TrainingPlan:
    return TrainingPlan.from_table(
        {
            "data": {"path": str(path), "silo_column": "silo", "label_column": "label", **data},
            "training": {"algorithm": "fedavg", "batch_size": 8},
            "federation": {"rounds": 1, "local_steps": 1},
            "aggregation": {"protocol": "trusted"},
            "evaluation": {"metrics": "none"},
        }
    )


@pytest.mark.parametrize("name", TRAINS)
def test_it_trains(name, tmp_path):
    write, keys = TRAINS[name]
    options = sumus.RunOptions(root=tmp_path, ledger=False)
    run = sumus.train(_plan(write(tmp_path), keys), options=options)
    assert len(run.rounds) == 1
    data = load(run.plan)
    assert [silo.name for silo in data.silos] == ["A", "B"]
    assert sum(map(len, data.silos)) in (40, 41)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "BOUND", 2**20)
    monkeypatch.setattr(text_blocks, "LONGEST_LINE", 4000 if name == "a huge line" else 2**26)
    write, keys, complaint = REFUSED[name]
    with pytest.raises(SumusError) as caught:
        load(_plan(write(tmp_path), keys))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_errors_of_a_workbook_are_missing_and_other_text_stays(tmp_path):
    errors = ["#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#N/A"]
    texts = ["#B/C", "#A/B!", "#1", "REF!"]

    def fill(book):
        book.active.append(["word", "beside"])
        for word in (*errors, *texts):
            book.active.append([word, 1])

    column = read_xlsx(_workbook(fill)(tmp_path))["word"]
    assert column.codes.tolist() == [-1] * len(errors) + [*range(len(texts))]
    assert list(column.values) == texts


@pytest.mark.parametrize("member", ["xl/own.bin", "xl/worksheets/own.data"])
def test_a_sheet_under_another_name_is_checked_too(tmp_path, member):
    path = _workbook(_sheet)(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(member, _in_utf16("<a/>"))
    with pytest.raises(SumusError, match="another encoding than UTF-8"):
        read_xlsx(path)


def test_kinds_of_files_make_the_same_records(tmp_path):
    kinds = ("plain", "parquet", "workbook", "folder of parquet", "sqlite", "duckdb", "zstandard")
    found = set()
    for name in kinds:
        (tmp_path / name).mkdir()
        write, keys = TRAINS[name]
        declared = {
            "columns": ["age", "ward"],
            "bounds": {"age": [0, 100]},
            "categories": {"ward": ["x", "y", "z"]},
        }
        data = load(_plan(write(tmp_path / name), {**keys, **declared}))
        found.add(
            tuple(
                (silo.name, *sorted(map(tuple, part.x.tolist())), *sorted(part.y.tolist()))
                for silo in data.silos
                for part in (silo.train, silo.test)
            )
        )
    assert len(found) == 1
