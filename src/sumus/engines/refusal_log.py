"""A line of a vault's refusals, for the silo's own people."""

from __future__ import annotations

import json

__all__ = ["reason_of"]


def reason_of(line: str) -> str:
    """What was refused, in one line; the line itself if it is damaged."""
    try:
        return str(json.loads(line)["reason"]).splitlines()[-1]
    except (ValueError, KeyError, IndexError, TypeError):
        return line
