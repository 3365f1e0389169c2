"""Asks whether a process is well, for service managers and containers:

    python -m sumus.watching.probe http://127.0.0.1:PORT/readyz    a live page
    python -m sumus.watching.probe FILE [readyz]                   a process with SUMUS_HEALTH=FILE

It ends with 0 if the answer is yes, else with 1.
"""

from __future__ import annotations

import http.client
import sys
from pathlib import Path
from urllib.parse import urlsplit

from sumus.service import is_well

__all__ = ["main", "probe"]

_SECONDS = 5.0
_QUESTIONS = ("healthz", "readyz")


def probe(address: str) -> int:
    """0 if the answer of a live page is 200, 1 if it is another one or none."""
    parts = urlsplit(address)
    try:
        connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port or 80, timeout=_SECONDS
        )
        connection.request("GET", parts.path)
        return 0 if connection.getresponse().status == 200 else 1
    except (OSError, http.client.HTTPException, ValueError):
        return 1


def main(words: list[str]) -> int:
    """Ask as the command line says; 2 if it says something else."""
    match words:
        case [address] if address.startswith("http://"):
            return probe(address)
        case [file] | [file, *_] if len(words) <= 2 and {*words[1:]} <= {*_QUESTIONS}:
            return 0 if is_well(Path(file), ready="readyz" in words[1:]) else 1
        case _:
            sys.stderr.write(f"{__doc__}\n")
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
