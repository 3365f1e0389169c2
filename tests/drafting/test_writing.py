"""A drafted plan is what its text says, and a text that would say something else is not written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sumus.data import write_patients
from sumus.drafting import Asked, Draft, draft, look_at, plan_text
from sumus.errors import DataError
from sumus.plan import TrainingPlan


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> Draft:
    folder = tmp_path_factory.mktemp("writing")
    write_patients(folder / "patients.csv", records=300)
    looked_at = look_at(folder / "patients.csv", folder, "patients.csv")
    return draft(looked_at, Asked(silo="hospital", label="readmitted"))


def test_the_text_is_the_plan(drafted: Draft) -> None:
    text = plan_text(drafted, "p.toml")
    assert TrainingPlan.from_toml(text) == drafted.plan
    assert max(map(len, text.splitlines())) <= 100


def test_a_text_that_is_another_plan_is_refused(drafted: Draft) -> None:
    other = replace(drafted, plan=drafted.plan.replace("privacy", epsilon=2.0))
    with pytest.raises(DataError, match="cannot be written"):
        plan_text(other, "p.toml")


def test_a_name_of_a_plan_that_a_shell_would_split_is_quoted(drafted: Draft) -> None:
    assert "sumus train 'my plan.toml'" in plan_text(drafted, "my plan.toml")
