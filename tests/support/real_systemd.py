"""A systemd in namespaces of its own: its own processes, mounts, network and control groups, and a
copy of /etc on top of the machine's. Nothing outside of it changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]

SYSTEMD = Path("/usr/lib/systemd/systemd")
_INSIDE = """
set -e
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys
umount -lR /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
ip link set lo up
hidden={hidden}
if [ -n "$hidden" ]; then
    place=$(mktemp -d)
    mount --bind {prefix} $place
    mount -t tmpfs -o mode=755 none $hidden
    mkdir -p {prefix}
    mount --bind $place {prefix}
fi
mount -t tmpfs -o mode=755 none {root}/layers
mkdir {root}/layers/upper {root}/layers/work
mount -t overlay -o lowerdir=/etc,upperdir={root}/layers/upper,workdir={root}/layers/work none /etc
rm -rf /etc/systemd/system
mkdir /etc/systemd/system
cp {root}/targets/* /etc/systemd/system/
mount -t tmpfs -o mode=755 none /run
mount --bind {root}/srv /srv
mount --bind {root}/cache /var/cache
mount --bind {root}/log /var/log
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=test \
    SYSTEMD_UNIT_PATH=/etc/systemd/system {systemd} --system --log-target=null
"""
_TARGETS = ("default", "basic", "sysinit", "shutdown", "multi-user", "network-online")


class PrivateSystemd:
    """See the module; `why_not` says why this machine has none.

    Args:
        root: an empty folder that every user may enter, with a short path.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("targets", "layers", "srv", "cache", "log"):
            (root / name).mkdir()
        for name in _TARGETS:
            text = f"[Unit]\nDescription={name}\nDefaultDependencies=no\n"
            (root / "targets" / f"{name}.target").write_text(text)
        unified = Path("/sys/fs/cgroup/unified")
        self._group = (unified if unified.is_dir() else unified.parent) / f"sumus-{os.getpid()}"
        self._group.mkdir()
        script = _INSIDE.format(
            root=root, systemd=SYSTEMD, prefix=sys.base_prefix, hidden=_closed(sys.base_prefix)
        )
        apart = ["--mount", "--pid", "--fork", "--cgroup", "--uts", "--ipc", "--net"]
        command = ["unshare", *apart, "--kill-child", "--propagation", "private", "sh", "-c"]
        enter = f'echo $$ > {self._group}/cgroup.procs && exec "$@"'
        with (root / "boot.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", enter, "sh", *command, script], stdout=log, stderr=log
            )
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + 60.0
        while time.monotonic() < until:
            children = psutil.Process(self._process.pid).children()
            if self._process.poll() is not None:
                break
            if children and children[0].name() == "systemd":
                self.pid = children[0].pid
                if self.run("systemctl", "is-system-running", check=False).strip() == "running":
                    return
            time.sleep(0.2)
        self.close()
        raise OSError((self.root / "boot.log").read_text()[-500:] or "systemd did not start")

    def run(self, *words: str, check: bool = True, **environment: str) -> str:
        """What a command inside prints, as root."""
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "-a", "-w", *words],
            env={"PATH": os.environ["PATH"], "HOME": "/", **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"{words}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
        return done.stdout

    def show(self, unit: str, setting: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "-P", setting, unit).strip()

    def wait_for(self, unit: str, setting: str, value: str, seconds: float = 240.0) -> None:
        """Until a property of a unit has a value."""
        until = time.monotonic() + seconds
        while (now := self.show(unit, setting)) != value:
            assert time.monotonic() < until, (unit, setting, now, self.log(unit)[-2000:])
            time.sleep(0.5)

    def log(self, unit: str) -> str:
        path = self.root / "log" / f"{unit}.log"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        """End everything in it."""
        for each in psutil.Process(self._process.pid).children():
            each.kill()  # the first process of its namespace: all others end with it
        self._process.kill()
        self._process.wait()
        for _ in range(50):
            folders = sorted(self._group.rglob("*/"), key=lambda path: -len(path.parts))
            try:
                for folder in [*folders, self._group]:
                    folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.1)


def _closed(prefix: str) -> str:
    """The topmost folder on the way to a path that others cannot enter; empty: there is none."""
    parents = reversed(Path(prefix).parents)
    return next((str(each) for each in parents if not each.stat().st_mode & 0o001), '""')


def why_not() -> str:
    """Why no systemd can be started here; empty: one can."""
    if os.getuid() != 0:
        return "needs root, for namespaces"
    needed = ("unshare", "nsenter", "systemctl", "ip", "useradd", "setpriv")
    missing = [name for name in needed if shutil.which(name) is None]
    if missing or not SYSTEMD.exists():
        return f"{', '.join(missing) or SYSTEMD} is not installed"
    tried = ["unshare", "--mount", "--pid", "--fork", "--cgroup", "--net", "true"]
    done = subprocess.run(tried, capture_output=True, text=True, check=False)
    return done.stderr.strip()
