"""The notebooks run from top to bottom, and what they show was kept.

They run as scripts, by the same runner that keeps their outputs: no Jupyter.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.scripts import run_script

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def _cells(path: Path) -> list[dict[str, Any]]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["consortium", "own-network", "own-table"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_were_kept_and_tell_nothing_of_the_machine(path: Path) -> None:
    cells = _cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert kinds <= {"stream", "execute_result"}
    shown = json.dumps([cell["outputs"] for cell in cells], ensure_ascii=False)
    assert "accuracy" in shown
    assert "proved" in shown
    assert not any(place in shown for place in ("/tmp", "/home", "/root"))  # noqa: S108


@pytest.mark.deep
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            marks=[pytest.mark.network, pytest.mark.long] * (path.stem == "consortium"),
            id=path.stem,
        )
        for path in NOTEBOOKS
    ],
)
def test_no_cell_raises(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("torch")
    if path.stem == "consortium":
        pytest.importorskip("nvflare")
    runner = FOLDER / "run.py"
    assert path.name in run_script(
        runner, path.name, folder=tmp_path, monkeypatch=monkeypatch, capsys=capsys
    )
