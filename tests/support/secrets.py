"""What no log may hold, and how one looks for it in bytes."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

LOGS = ("*.log", "*.log.*", "audit*.jsonl", "*.out")


def spellings(secret: bytes) -> list[bytes]:
    """Bytes as a log could have them: raw, in hexadecimal, in base64 at any offset."""
    inner = [base64.b64encode(secret[shift:])[:-4] for shift in range(3)]
    return [secret, secret.hex().encode(), *inner]


def numbers(values: npt.NDArray[np.float64]) -> list[bytes]:
    """Numbers in a row as a log could have them."""
    plain = [f"{value:g}" for value in values]
    exact = [repr(float(value)) for value in values]
    return [sep.join(words).encode() for words in (plain, exact) for sep in (", ", ",", " ", ". ")]


def logs_in(*folders: Path) -> dict[str, bytes]:
    """Every log and audit trail below some folders."""
    files = {path for folder in folders for kind in LOGS for path in folder.rglob(kind)}
    return {str(path): path.read_bytes() for path in sorted(files) if path.name != "refusals.log"}


def leaks(logs: Mapping[str, bytes], secrets: Mapping[str, Iterable[bytes]]) -> list[str]:
    """Which log holds which secret."""
    return [
        f"{name} in {path}"
        for path, content in logs.items()
        for name, forms in secrets.items()
        if any(form in content for form in forms)
    ]
