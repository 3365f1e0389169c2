"""Somebody who reads plan, report and ledger of a run on Python objects wants to see that one record
is among them: it has a missing value, a rare class, a value of another type, a silo of its own.

If one record could decide how many features there are, of which kind, which classes, or on which
ledger a run is entered, neighbours would be told apart with certainty, before any noise. Whatever of
that is declared follows from the declaration.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sumus.data import FederatedData
from sumus.errors import DataError
from sumus.plan import TrainingPlan
from sumus.runs.given_in_python import Given, with_records

RNG = np.random.default_rng(5)
X = RNG.normal(size=(40, 3)).astype(np.float32)
WORDS = np.array(["stays", "returns"])[np.arange(40) % 2]
BOUNDS = (100, 100)
ARRAYS = TrainingPlan().replace("data", records_per_silo=BOUNDS, missing="flag")
TABLES = TrainingPlan().replace(
    "data",
    silo_column="hospital",
    label_column="outcome",
    columns=("age", "ward", "smoker"),
    records_per_silo=BOUNDS,
    bounds={"age": (0.0, 100.0), "smoker": (0.0, 1.0)},
    categories={
        "ward": ("east", "west"),
        "outcome": ("stays", "returns", "dies"),
        "hospital": ("Bergen", "Oslo"),
    },
)
FRAME = pd.DataFrame(
    {
        "hospital": np.array(["Bergen", "Oslo"])[np.arange(40) % 2],
        "age": 40 + 10 * X[:, 0].astype(float),
        "ward": np.array(["east", "west"])[np.arange(40) // 2 % 2],
        "smoker": X[:, 1] > 0,
        "outcome": WORDS,
    }
)
VICTIM = {"hospital": "Oslo", "age": 50.0, "ward": "east", "smoker": True, "outcome": "stays"}


def seen(plan: TrainingPlan, silos: Any, **told: Any) -> tuple[Any, ...]:
    """What a reader is told, wherever it is written, before a number is released."""
    plan, data = with_records(plan, silos, Given(**told))
    return (plan.canonical, data.facts(), data.encoding, types_of(data))


def types_of(data: FederatedData) -> set[tuple[str, str]]:
    parts = [part for silo in data.silos for part in (silo.train, silo.validation, silo.test)]
    return {(str(part.x.dtype), str(part.x.shape[1:])) for part in parts}


def arrays(*victim: Any, label: str = "stays") -> list[tuple[Any, Any]]:
    """Two silos; the second with one record more, if there is a victim."""
    more = np.array([victim], dtype=np.float32).reshape(-1, 3)
    labels = np.append(WORDS, [label] * len(more))
    return [(X, WORDS), (np.concatenate([X, more]), labels)]


def frame(**victim: Any) -> pd.DataFrame:
    """One record more, built as a program builds it, with the types that pandas then chooses."""
    rows = FRAME.to_dict("records")
    return pd.DataFrame([*rows, VICTIM | victim]) if victim else FRAME


CLASSES = ["stays", "returns", "dies"]


@pytest.mark.parametrize("victim", [(np.nan, 0, 0), (np.nan,) * 3, (1, 2, 3)], ids=str)
def test_by_a_missing_value_in_an_array(victim: tuple[float, ...]) -> None:
    alone = seen(ARRAYS, arrays(), classes=CLASSES)
    assert seen(ARRAYS, arrays(*victim), classes=CLASSES) == alone


def test_by_a_class_that_nobody_else_has() -> None:
    alone = seen(ARRAYS, arrays(), classes=CLASSES)
    assert seen(ARRAYS, arrays(0, 0, 0, label="dies"), classes=CLASSES) == alone
    with pytest.raises(DataError, match="fewer than 5 records"):  # undeclared, it is refused
        seen(ARRAYS, arrays(0, 0, 0, label="dies"))


@pytest.mark.parametrize(
    "victim",
    [
        {"age": None},
        {"age": 50},
        {"age": "50"},
        {"smoker": None},
        {"smoker": 1},
        {"ward": None},
        {"ward": "north"},
        {"ward": 7},
        {"outcome": "dies"},
    ],
    ids=str,
)
def test_by_a_value_that_gives_a_column_of_a_frame_another_type(victim: dict[str, Any]) -> None:
    """A frame's type of a column may hang on one value; what the plan declares does not."""
    assert seen(TABLES, frame(**victim)) == seen(TABLES, frame())
    rows = frame(**victim).to_dict("records")
    assert seen(TABLES, rows) == seen(TABLES, FRAME.to_dict("records"))


def test_by_a_silo_of_its_own_that_would_begin_a_new_ledger() -> None:
    plan = TrainingPlan().replace("data", label_column="outcome")
    ledgers = {
        with_records(plan, each, Given(silo="hospital"))[0].data.objects
        for each in (frame(), frame(hospital="Tromsø"), frame(smoker=None))
    }
    assert len(ledgers) == 1


# -- controls


def test_control_flags_that_appear_with_the_first_missing_value_tell_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sumus.data import objects

    declared = objects.features_of

    def by_need(x: Any, title: str, *, missing: str | None) -> Any:
        return declared(x, title, missing="flag" if np.isnan(x).any() else None)

    monkeypatch.setattr(objects, "features_of", by_need)
    silos = [arrays()[0]] * 2, [arrays(np.nan, 0, 0)[1]] * 2
    views = [seen(ARRAYS, each, classes=CLASSES)[1].shape for each in silos]
    assert views == [(3,), (6,)]


def test_control_undeclared_a_frame_takes_another_form_and_says_so() -> None:
    plan = TrainingPlan().replace("data", silo_column="hospital", label_column="outcome")
    alone, more = (seen(plan, each)[1] for each in (frame(), frame(smoker=None)))
    assert alone.shape != more.shape
    assert any("smoker" in line and "schema" in line for line in alone.assumptions)
    assert any("smoker" in line and "read off" in line for line in more.assumptions)


def test_control_a_ledger_named_by_the_silos_that_there_are_begins_anew() -> None:
    plan = TrainingPlan().replace("data", label_column="outcome")
    ledgers = set()
    for each in (frame(), frame(hospital="Tromsø")):
        told = Given(silo="hospital", name="-".join(sorted(set(each["hospital"]))))
        ledgers.add(with_records(plan, each, told)[0].data.objects)
    assert len(ledgers) == 2
