"""Writes files of this version of Sumus, for later ones to go on reading.

    python tests/stored/make.py            into tests/stored/VERSION.tar.xz
    python tests/stored/make.py --again    the same, for a version that nobody has yet

A federation of three silos has trained two rounds of three, and its server was killed when all
silos had answered the third: what is in the folder must let any later version that hashes plans
alike finish that very round. Beside it: a finished run as a silo received it, and a backup.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from sumus import __version__  # noqa: E402
from sumus.books import Ledger, RunFolder  # noqa: E402
from sumus.care import back_up  # noqa: E402
from sumus.data import load_silo  # noqa: E402
from sumus.predicting import Model  # noqa: E402
from sumus.secagg import head_of  # noqa: E402
from support.delivering import DeliveringFederation, small_plan  # noqa: E402
from support.stored import INVITATION, PASSPHRASE, SITE  # noqa: E402

SURVIVORS = 5  # the kind of a message
LEFT_OUT = ("*.log", "*.lock", "report.html", "card.md", "live.json")


class Killed(BaseException):
    """The server's process ends here."""


def interrupted(root: Path) -> tuple[DeliveringFederation, dict[str, Any]]:
    """Two rounds of three, and the third answered by everybody; with what was answered last."""
    federation = DeliveringFederation(root, small_plan(**{"federation.rounds": 3}))
    for name in federation.roster.names:
        plans = federation.folder(name) / "plans"
        (plans / "plan.toml").rename(plans / f"{federation.agreement.plan.hash}.toml")
    answered: dict[str, Any] = {}

    def heard(name: str, message: bytes) -> bytes | None:
        reply = federation.party(name).handle(message)
        if head_of(message).kind == INVITATION:
            answered[name] = hashlib.sha256(reply).hexdigest()
        return reply

    def dying(name: str, message: bytes) -> bytes | None:
        if head_of(message).kind == SURVIVORS:
            raise Killed
        return heard(name, message)

    federation.heard = heard
    assert federation.run(2)["phase"] == "paused"
    federation.heard = dying
    try:
        federation.run()
    except Killed:
        pass
    else:
        raise AssertionError("the server was not killed")
    for name in federation.roster.names:
        federation.stop(name)
    return federation, answered


def written(root: Path) -> dict[str, Any]:
    """Everything below a folder; returns what a reader must find in it."""
    (root / "interrupted").mkdir()
    federation, answered = interrupted(root / "interrupted")
    facts: dict[str, Any] = {"plan": federation.agreement.plan.hash, "answered": answered}
    facts["head"], name = federation.server_run.head, federation.roster.names[0]
    vault = federation.folder(name)
    facts["spent"] = Ledger.of_dataset("digits", state=vault).total("record").epsilon
    back_up(vault, root / "silo.backup", PASSPHRASE)
    federation.close()
    finished = DeliveringFederation(root / "finished", small_plan())
    assert finished.run()["phase"] == "finished"
    received = finished.shelf(name).held(finished.agreement.plan.hash)
    assert received is not None
    rows = load_silo(finished.agreement.plan, name).silos[0].test.x[:5]
    run = RunFolder.open(received)
    facts["finished"] = {
        "head": run.head,
        "model": (run.summary or {})["model_hash"],
        "predictions": Model.of_run(received).predict(rows).tolist(),
        "roster": finished.roster.to_text(),
    }
    finished.close()
    left_out = shutil.ignore_patterns(*LEFT_OUT)
    shutil.copytree(received, root / "received", ignore=left_out)
    for path in (root / "interrupted").rglob("*"):
        if path.match("*.lock") or path.name == "refusals.log":
            path.unlink()
        elif path.name == "site.toml":
            path.write_text(SITE.format(""))
    return facts


def packed(root: Path, facts: dict[str, Any], into: Path) -> None:
    """One file without names of users and times of this machine."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(into, "w:xz", preset=9) as archive:
        for name in ("interrupted", "received", "silo.backup"):
            archive.add(root / name, name, filter=plain)
        text = (json.dumps(facts, indent=1) + "\n").encode()
        info = tarfile.TarInfo("facts.json")
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text))


def main() -> None:
    file = HERE / f"{__version__}.tar.xz"
    if file.exists() and sys.argv[1:] != ["--again"]:
        sys.exit(f"{file} is there already: files of a version are made once")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        packed(root, written(root), file)


if __name__ == "__main__":
    main()
