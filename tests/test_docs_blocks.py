"""Pages whose Python blocks run from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.scripts import run_script

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.deep
@pytest.mark.parametrize("page", ["training-code.md", "estimators.md"])
def test_python_blocks_run_in_order(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S)
    assert len(blocks) >= 3
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    said = run_script(script, folder=tmp_path, monkeypatch=monkeypatch, capsys=capsys)
    assert "proved (" in said
    if page == "training-code.md":
        assert "loss changes seen in its forward pass" in said
        assert "promised" in said
