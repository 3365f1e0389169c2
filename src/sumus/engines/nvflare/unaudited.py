"""In the place of the engine's audit file, which grows with every question about progress; what is
worth an audit is in the party's own trail.
"""

from __future__ import annotations

import threading
from typing import final

from nvflare.fuel.sec.audit import Auditor

__all__ = ["NoAuditFile"]


@final
class NoAuditFile(Auditor):  # type: ignore[misc]
    """An auditor whose file is closed from the start, so that it writes nothing."""

    def __init__(self, audit_file_name: str) -> None:
        self.audit_file = None
        self._lock = threading.Lock()
