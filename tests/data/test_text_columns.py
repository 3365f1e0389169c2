"""Tables with columns of free text."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from sumus.data import load, load_silo, public_facts
from sumus.data.encoding import ColumnRule, Encoding
from sumus.data.text_vectors import text_vectors
from sumus.errors import DataError, PlanError
from sumus.plan import TrainingPlan
from sumus.texts import hashed_words
from support.made_up_network import in_place_of_minilm

ROWS = [
    ("Oslo", 30, "short of breath", "yes"),
    ("Oslo", 50, "", "no"),
    ("Bergen", 70, "bad knee", "no"),
    ("Bergen", 20, "short of breath", "yes"),
]


def _plan(tmp_path, kind, rows=ROWS, **data):
    with (tmp_path / "notes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("site", "age", "note", "ill"), *rows])
    return TrainingPlan.from_table(
        {
            "data": {
                "path": str(tmp_path / "notes.csv"),
                "silo_column": "site",
                "label_column": "ill",
                "bounds": {"age": [0, 100]},
                "texts": {"note": kind},
                "test_fraction": 0.0,
                **data,
            }
        }
    )


def _rows(data):
    return np.concatenate([silo.train.x for silo in data.silos])


def test_a_note_becomes_its_hashed_words(tmp_path):
    data = load(_plan(tmp_path, "words"))
    assert data.shape == (2 + 257,)
    wanted = {tuple(row) for row in hashed_words(["short of breath", "bad knee", ""])}
    assert {tuple(row[2:-1]) for row in _rows(data)} == wanted
    assert sorted(_rows(data)[:, -1]) == [0, 0, 0, 1]
    assert not any("note" in line for line in data.assumptions)


def test_a_note_becomes_the_networks_vector(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    in_place_of_minilm(tmp_path, monkeypatch)
    plan = _plan(tmp_path, "minilm")
    assert public_facts(plan).shape == (2 + 385,)
    wanted = text_vectors("minilm", ["short of breath", "bad knee"])
    got = {tuple(row[2:-1]) for row in _rows(load(plan))}
    assert got == {tuple(row) for row in wanted} | {(0.0,) * 384}


def test_a_silo_alone_encodes_as_all_do(tmp_path):
    declared = {
        "columns": ["age", "note"],
        "categories": {"site": ["Bergen", "Oslo"], "ill": ["no", "yes"]},
    }
    whole = load(_plan(tmp_path, "words", **declared))
    alone = load_silo(_plan(tmp_path, "words", ROWS[2:], **declared), "Bergen")
    np.testing.assert_array_equal(alone.silos[0].train.x, whole.silos[0].train.x)


def test_the_plan_says_the_encoding(tmp_path):
    plan = _plan(tmp_path, "minilm", columns=["note", "age"])
    encoding = Encoding.of_plan(plan.data)
    assert encoding == Encoding((ColumnRule("note", "minilm"), ColumnRule("age", "scaled", 0, 100)))
    assert encoding.width == 385 + 2
    stored = json.loads(json.dumps(encoding.to_json()))
    assert Encoding.from_json(stored, where="model.json") == encoding


@pytest.mark.parametrize(
    ("texts", "data", "complaint"),
    [
        ({"note": "bert"}, {}, r"data\.texts\.note must be one of minilm, words"),
        ({}, {}, r"data\.texts must be a table from column names to words"),
        ({"ill": "words"}, {}, r"data\.texts\.ill must not name a column of data\.label_column"),
        ({"site": "words"}, {}, r"must not name a column of data\.silo_column"),
        ({"age": "words"}, {}, r"must not name a column of data\.bounds"),
        ({"note": "words"}, {"categories": {"note": ["a"]}}, "a column of data.categories"),
        ({"note": "words"}, {"columns": ["age"]}, "must be a feature column"),
        ({"note": "words"}, {"person_column": "note"}, "must not be named in data.texts"),
    ],
)
def test_what_a_text_cannot_be(tmp_path, texts, data, complaint):
    with pytest.raises(PlanError, match=complaint) as caught:
        _plan(tmp_path, "words", **{"texts": texts, **data})
    assert "\n" not in str(caught.value)


def test_a_text_column_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"data\.texts\.noet: .* Did you mean 'note'"):
        load(_plan(tmp_path, "words", texts={"noet": "words"}))


def test_an_override_names_a_column(tmp_path):
    plan = _plan(tmp_path, "minilm").with_overrides({"data.texts.note": "words"})
    assert plan.data.texts == {"note": "words"}


def test_numbers_in_a_column_of_text_are_read_as_words(tmp_path):
    rows = [(site, age, str(number), ill) for number, (site, age, _, ill) in enumerate(ROWS)]
    data = load(_plan(tmp_path, "words", rows))
    wanted = {tuple(row) for row in hashed_words([str(number) for number in range(4)])}
    assert {tuple(row[2:-1]) for row in _rows(data)} == wanted
