"""Asks a live page whether it is well, for service managers: `python -m sumus.watching.probe
http://127.0.0.1:PORT/readyz` ends with 0 if the answer is yes, else with 1.
"""

from __future__ import annotations

import http.client
import sys
from urllib.parse import urlsplit

__all__ = ["probe"]

_SECONDS = 5.0


def probe(address: str) -> int:
    """0 if the answer is 200, 1 if it is another one or none."""
    parts = urlsplit(address)
    try:
        connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port or 80, timeout=_SECONDS
        )
        connection.request("GET", parts.path)
        return 0 if connection.getresponse().status == 200 else 1
    except (OSError, http.client.HTTPException, ValueError):
        return 1


if __name__ == "__main__":
    sys.exit(probe(sys.argv[1]) if len(sys.argv) == 2 else 2)
