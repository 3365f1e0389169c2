"""Plays a container engine as far as our services can tell: every service of a compose file as a
process with its command, environment and user, and folders in the places of its volumes.

    python -m support.played_containers ROOT -f FILE run --rm SERVICE [WORDS…]

What a container has for itself and a process does not (its own root and loopback, names of other
containers) is translated: paths of volumes become folders, and single words as
`SUMUS_TEST_WORDS` says.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from support.other_users import become, open_to

TRANSLATED = "SUMUS_TEST_WORDS"


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """A value with `${NAME:-default}` and `${NAME}` filled in."""
    if isinstance(value, str):
        return re.sub(
            r"\$\{(\w+)(?::-([^}]*))?\}",
            lambda found: variables.get(found[1]) or found[2] or "",
            value,
        )
    if isinstance(value, dict):
        return {key: interpolated(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [interpolated(each, variables) for each in value]
    return value


@dataclass(frozen=True)
class Mount:
    """A volume: where it comes from, where it is seen, and whether it may be written."""

    source: str
    target: str
    writable: bool

    @classmethod
    def parse(cls, text: str) -> Mount:
        source, target, *options = text.split(":")
        assert set(options) <= {"ro"}, text
        return cls(source, target, "ro" not in options)

    @property
    def is_named(self) -> bool:
        return "/" not in self.source


class Compose:
    """A compose file that was read.

    Args:
        path: of the file.
        root: a folder for named volumes and temporary files, with a short path.
        variables: the environment of whoever runs it.
    """

    def __init__(self, path: Path, root: Path, variables: Mapping[str, str]) -> None:
        self.file: dict[str, Any] = interpolated(yaml.safe_load(path.read_text()), variables)
        self.services: dict[str, dict[str, Any]] = self.file["services"]
        self.root, self._folder = root, path.parent
        self._translated: dict[str, str] = json.loads(variables.get(TRANSLATED, "{}"))

    def mounts(self, service: str) -> list[Mount]:
        return [Mount.parse(text) for text in self.services[service].get("volumes", [])]

    def entrypoint(self, service: str) -> list[str]:
        """Before the words of `command`; the image's own is `sumus`."""
        return list(self.services[service].get("entrypoint", ["sumus"]))

    def folder(self, service: str, mount: Mount) -> Path:
        """What stands for a volume."""
        if not mount.is_named:
            return (self._folder / mount.source).resolve()
        place = self.root / "volumes" / mount.source
        if not place.is_dir():
            place.mkdir(parents=True)
            place.chmod(0o1777)  # as the image's folder of that name
        return place

    def place(self, service: str, text: str) -> str:
        """A word of a command or a variable, with folders in the places of volumes."""
        places = {
            mount.target: str(self.folder(service, mount)) for mount in self.mounts(service)
        } | {"/tmp": str(self._temporary(service))}  # noqa: S108 - the container's
        known = "|".join(re.escape(each) for each in sorted(places, key=len, reverse=True))
        return re.sub(rf"(?<![\w./-])({known})(?=/|$)", lambda found: places[found[1]], text)

    def _temporary(self, service: str) -> Path:
        place = self.root / "tmp" / service
        if not place.is_dir():
            place.mkdir(parents=True)
            place.chmod(0o1777)
        return place

    def _words(self, service: str, words: Sequence[str]) -> list[str]:
        placed = [self.place(service, self._translated.get(word, word)) for word in words]
        python = [sys.executable]
        if placed[0] == "sumus":
            return [*python, "-P", "-u", "-m", "sumus", *placed[1:]]
        assert placed[0] == "python"
        return [*python, *placed[1:]]

    def command(self, service: str, words: Sequence[str] | None = None) -> list[str]:
        """The command line of a service, or of other words in its container."""
        given = self.services[service]["command"] if words is None else words
        return self._words(service, [*self.entrypoint(service), *map(str, given)])

    def healthcheck(self, service: str) -> list[str]:
        kind, *words = self.services[service]["healthcheck"]["test"]
        assert kind == "CMD"
        return self._words(service, words)

    def environment(self, service: str) -> dict[str, str]:
        own = self.services[service].get("environment", {})
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        return {
            **kept,
            "OMP_NUM_THREADS": "1",
            **{name: self.place(service, value) for name, value in own.items()},
        }

    def user(self, service: str) -> int:
        """Who runs a service."""
        uid, gid = map(int, self.services[service]["user"].split(":"))
        assert uid == gid
        return uid

    def _apart(self, service: str) -> list[str]:
        """What a command begins with to run as the service's user, and without a network where it
        has none; nothing where nobody may become another user.
        """
        if os.getuid() != 0:
            return []
        alone = self.services[service].get("network_mode") == "none"
        network = ["unshare", "--net"] if alone else []
        return [*open_to(self.user(service)), *network, *become(self.user(service))]

    def start(
        self, service: str, words: Sequence[str] | None = None, **options: Any
    ) -> subprocess.Popen[Any]:
        """A service's process."""
        return subprocess.Popen(
            [*self._apart(service), *self.command(service, words)],
            env=self.environment(service),
            cwd="/",
            stdin=subprocess.DEVNULL,
            umask=0o077,
            start_new_session=True,
            **options,
        )

    def run(
        self, service: str, words: Sequence[str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command in a service's container, to its end."""
        pipe = subprocess.PIPE
        process = self.start(service, words, stdout=pipe, stderr=pipe, text=True)
        out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def is_healthy(self, service: str) -> bool:
        """As the container engine would find."""
        done = subprocess.run(
            [*self._apart(service), *self.healthcheck(service)],
            env=self.environment(service),
            capture_output=True,
            check=False,
            cwd="/",
        )
        return done.returncode == 0


def main(words: Sequence[str]) -> int:
    """Play `compose run`; see the module."""
    root, flag, file, command, remove, service, *rest = words
    assert (flag, command, remove) == ("-f", "run", "--rm"), words
    compose = Compose(Path(file), Path(root), os.environ)
    done = compose.run(service, rest or None)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
