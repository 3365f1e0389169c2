"""What holds for all tests: the outcome does not depend on the machine, its speed, its user or the
day.

Property tests try the same examples in every run, and no machine is too slow for them; `pytest
--hypothesis-profile=default` looks for new examples.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from support.small_federation import federation as federation  # a fixture of many rooms

settings.load_profile("ci")


@pytest.fixture(scope="session", autouse=True)
def _ledgers_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test writes into the ledgers of whoever runs it, or stumbles over what is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUMUS_STATE", str(tmp_path_factory.mktemp("state")))
        yield
