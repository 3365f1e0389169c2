"""Names of ledgers for records that were given in Python and that nobody named."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

__all__ = ["UNNAMED", "name_of_facts"]

UNNAMED = "own-data-"
"""How names begin that nobody chose."""


def name_of_facts(facts: Iterable[str]) -> str:
    """A name made of what is public anyway and stays when a record comes or goes."""
    return f"{UNNAMED}{hashlib.sha256(chr(0).join(facts).encode()).hexdigest()[:8]}"
