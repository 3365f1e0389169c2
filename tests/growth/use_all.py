"""Runs several scripts in one process, each as if it were alone, and names those that pass."""

import runpy
import sys
import traceback

for script in sys.argv[1:]:
    try:
        runpy.run_path(script, run_name="__main__")
    except BaseException:
        traceback.print_exc()
    else:
        print(script, "passed", flush=True)  # noqa: T201
