"""Loggers as they were before a test that configures them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def loggers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what a test configures, and let nothing of the environment into it."""
    changed = [logging.getLogger(name) for name in ("", "sumus", "sumus.audit")]
    before = [(logger, logger.level, list(logger.handlers)) for logger in changed]
    for name in ("SUMUS_LOG", "SUMUS_LOG_LEVEL", "SUMUS_LOG_FORMAT", "SUMUS_AUDIT_TO"):
        monkeypatch.setenv(name, "")
    yield
    logging.captureWarnings(False)
    for logger, level, handlers in before:
        for handler in logger.handlers:
            if handler not in handlers:
                handler.close()
        logger.handlers[:] = handlers
        logger.setLevel(level)


def logged(path: Path) -> list[dict[str, Any]]:
    """The lines of a log file; one that is not JSON is an error."""
    return [json.loads(line) for line in path.read_text().splitlines()]
