"""A job process whose site has died must end too: it would go on holding the silo's folder, or the
server's run, for nothing.
"""

from __future__ import annotations

import os
import threading
import time

__all__ = ["PARENT", "end_with_parent"]

PARENT = "SUMUS_PARENT"
"""The number of the process that starts a job's, for that one to read: it may be gone before a job's
process can ask for it.
"""
_CHECK_SECONDS = 0.5


def end_with_parent() -> None:
    """End this process at once when the process that started it is gone, also if it is already.

    The kernel's own signal for this follows the *thread* that started us, and the engine starts
    jobs from threads that end.
    """
    parent = int(os.environ.get(PARENT) or os.getppid())

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_CHECK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
