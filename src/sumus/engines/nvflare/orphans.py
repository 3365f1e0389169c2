"""A job process whose site has died must end too: it would go on holding the silo's folder, or the
server's run, for nothing.
"""

from __future__ import annotations

import os
import threading
import time

__all__ = ["end_with_parent"]

_CHECK_SECONDS = 0.5


def end_with_parent() -> None:
    """End this process at once when the process that started it is gone.

    The kernel's own signal for this follows the *thread* that started us, and the engine starts
    jobs from threads that end.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_CHECK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
