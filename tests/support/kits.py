"""Kits as far as `sumus join` looks at them, without an engine."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from sumus.randomness import RandomSource
from sumus.secagg import SERVER_NAME, Identity, Roster

__all__ = ["bare_kit", "made_roster"]


def made_roster(names: Sequence[str], me: Identity) -> Roster:
    """A roster with this silo and others that nobody has met."""
    others = [Identity.generate(name, RandomSource()) for name in names if name != me.name]
    return Roster.of(Identity.generate(SERVER_NAME, RandomSource()), (me, *others))


def bare_kit(path: Path, party: str, roster: Roster) -> Path:
    """A kit of NVIDIA FLARE that brings a roster and nothing else, made anew."""
    shutil.rmtree(path, ignore_errors=True)
    (path / "sumus").mkdir(parents=True, mode=0o700)
    path.chmod(0o700)
    (path / "kit.toml").write_text(
        f'engine = "nvflare"\nparty = "{party}"\nserver = "localhost:8002"\n'
    )
    (path / "sumus" / "roster.toml").write_text(roster.to_text())
    return path
