"""The live page: one file with its own style and script, and a policy that lets nothing else in.

It holds nothing of a run: what it shows comes from `events`, and every text of it is put into the
page as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

from sumus.report import house_style
from sumus.watching.state import ENDED, STAGES

__all__ = ["PAGE", "POLICY"]

_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPTS = ("elements", "numbers", "tips", "charts", "view", "stream")
"""In the order in which they build on one another."""


def _script() -> str:
    known = json.dumps({"words": dict(STAGES), "ended": sorted(ENDED)})
    parts = [(_TEMPLATES / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS]
    return f'"use strict";\nconst live = {{ known: {known}, drawings: 0, version: 0 }};\n{"".join(parts)}'


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _page() -> tuple[bytes, str]:
    """The page, and the policy of what it may load: its own style and script by their hashes, and
    its own events.
    """
    text, own = (
        (_TEMPLATES / f"live.{kind}").read_text(encoding="utf-8") for kind in ("html", "css")
    )
    style, script = house_style() + own, _script()
    policy = (
        f"default-src 'none'; style-src 'sha256-{_hash(style)}'; script-src "
        f"'sha256-{_hash(script)}'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return text.replace("{{style}}", style).replace("{{script}}", script).encode(), policy


PAGE, POLICY = _page()
