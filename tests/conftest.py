"""What holds for all tests: the outcome does not depend on the machine, its speed, its user or the
day.

Property tests try the same examples in every run, and no machine is too slow for them; `pytest
--hypothesis-profile=default` looks for new examples.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from support.small_federation import federation as federation  # a fixture of many rooms

settings.load_profile("ci")
_SHARED = Path(__file__).parents[2] / "shared" / "data"
if _SHARED.is_dir():  # data sets beside the checkout, for tests that need one that is not embedded
    os.environ.setdefault("SUMUS_DATA", str(_SHARED.resolve()))


@pytest.fixture(scope="session", autouse=True)
def _ledgers_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test writes into the ledgers of whoever runs it, or stumbles over what is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUMUS_STATE", str(tmp_path_factory.mktemp("state")))
        yield
