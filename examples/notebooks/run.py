"""Runs the code of notebooks from top to bottom, each in a namespace of its own, without Jupyter.

    python examples/notebooks/run.py                      # all of them; fails where a cell raises
    python examples/notebooks/run.py --write              # and keeps what the cells show
    python examples/notebooks/run.py own-table.ipynb      # one of them

A notebook runs in a new temporary folder, so that it leaves nothing behind.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def run_cell(source: str, namespace: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Execute one cell; what it prints and the value of a last expression are its outputs."""
    body = ast.parse(source)
    last = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        exec(compile(body, f"cell {number}", "exec"), namespace)  # noqa: S102  our own notebook
        if isinstance(last, ast.Expr):
            expression = ast.Expression(last.value)
            value = eval(compile(expression, f"cell {number}", "eval"), namespace)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = _lines(printed.getvalue())
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        as_html = getattr(value, "_repr_html_", None)
        data = {"text/plain": _lines(str(value) if as_html else repr(value))}
        if as_html:
            data["text/html"] = _lines(as_html())
        shown = {"data": data, "execution_count": number, "metadata": {}}
        outputs.append(shown | {"output_type": "execute_result"})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def run(path: Path, *, write: bool) -> float:
    """Execute a notebook, and return the seconds that it took."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    began, here = time.monotonic(), Path.cwd()
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
            for number, cell in enumerate(code, start=1):
                cell["outputs"] = run_cell("".join(cell["source"]), namespace, number)
                cell["execution_count"] = number
        finally:
            os.chdir(here)
    if write:
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        path.write_text(text, encoding="utf-8")
    return time.monotonic() - began


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("names", nargs="*")
    options.add_argument("--write", action="store_true", help="keep what the cells show")
    chosen = options.parse_args()
    paths = [HERE / name for name in chosen.names] or sorted(HERE.glob("*.ipynb"))
    for path in paths:
        print(f"{path.name}: {run(path, write=chosen.write):.1f} s")


if __name__ == "__main__":
    main()
