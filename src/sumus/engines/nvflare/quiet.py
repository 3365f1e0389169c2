"""The engine's own logs, less and bounded: its processes write lines of ours to standard error, and
whoever keeps them alive (or the journal) keeps a bounded number of these.

By default the engine writes every line four times, into files that grow to 220 MB each, and an
audit file that grows with every question about progress. What is worth an audit is in the party's
own trail.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["log_configuration"]

_TOLD = "nvflare.private.fed.client"
"""Says when the server has let a silo in."""


def log_configuration(party: str) -> dict[str, Any]:
    """What `log_config.json` of a kit says.

    Args:
        party: "server" or "relay".
    """
    ours = os.environ.get("SUMUS_LOG_LEVEL", "info").upper()
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": "sumus.events.formatting.engine_formatter", "party": party}},
        "filters": {"sieve": {"()": "sumus.events.sifting.Sieve", "party": party}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "lines",
                "filters": ["sieve"],
                "stream": "ext://sys.stderr",
            }
        },
        "loggers": {
            "sumus": {"level": ours},
            "sumus.engines.nvflare": {"level": "WARNING"},  # what the engine says as our classes
            _TOLD: {"level": "INFO"},
        },
        "root": {"level": "WARNING", "handlers": ["stderr"]},
    }
