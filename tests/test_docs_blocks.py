"""Pages whose Python blocks run from top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("page", ["training-code.md", "estimators.md"])
def test_python_blocks_run_in_order(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S)
    assert len(blocks) >= 3
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    environment = os.environ | {"SUMUS_STATE": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert "proved (" in done.stdout
    if page == "training-code.md":
        assert "loss changes seen in its forward pass" in done.stdout
        assert "promised" in done.stdout
