"""The real packages, through whatever index pip knows here."""

from __future__ import annotations

import pytest

from sumus.data import RECIPES, prepare_fetched
from support.notes import IN_TEST_NETWORK

pytestmark = IN_TEST_NETWORK


@pytest.mark.parametrize("name", RECIPES)
def test_a_table_is_fetched_by_the_name_of_its_package(name, tmp_path):
    done = prepare_fetched(RECIPES[name], tmp_path, lambda step: None)
    assert done.fetched
    assert done.rows == RECIPES[name].rows
