"""NVIDIA FLARE's own command that makes kits, in this process: a hundred tests need kits, and a
process of its own would import the engine for each.
"""

from __future__ import annotations

import contextlib
import io
import runpy
import subprocess
import sys
import warnings
from collections.abc import Sequence
from unittest import mock

__all__ = ["EngineCommands"]


class EngineCommands:
    """Stands in the place of `subprocess` where the engine's command is called."""

    def run(self, command: Sequence[str], **options: object) -> subprocess.CompletedProcess[str]:
        """`python -m MODULE WORDS…` as the main program of this process."""
        python, dash, module, *words = command
        assert (python, dash, module) == (sys.executable, "-m", "nvflare.cli"), command
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(sys, "argv", [module, *words]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # as in a process of its own
            try:
                runpy.run_module(module, run_name="__main__")
                code: object = 0
            except SystemExit as end:
                code = end.code
        status = code if isinstance(code, int) else int(code is not None)
        return subprocess.CompletedProcess([*command], status, out.getvalue(), err.getvalue())
