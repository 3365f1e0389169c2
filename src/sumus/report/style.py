"""The style sheet that all pages share: colours for light and dark, letters, tables, charts."""

from __future__ import annotations

from pathlib import Path

__all__ = ["TEMPLATES", "house_style"]

TEMPLATES = Path(__file__).parent / "templates"


def house_style() -> str:
    """CSS without anything from elsewhere: no font, no picture."""
    return (TEMPLATES / "page.css").read_text(encoding="utf-8")
