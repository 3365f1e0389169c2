"""Who listens where, as the kernel says: /proc/PID/fd and /proc/PID/net, read here and by nothing of
ours.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]

_LISTENS, _UNCONNECTED = "0A", "07"


class Listener(NamedTuple):
    """A socket that takes in what others send."""

    kind: str
    address: str
    port: int

    @property
    def is_loopback(self) -> bool:
        place = ipaddress.ip_address(self.address)
        mapped = getattr(place, "ipv4_mapped", None)
        return bool((mapped or place).is_loopback)


def family(pids: Iterable[int]) -> list[int]:
    """Processes and all that they have started."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(pid)
            found += [first.pid, *(each.pid for each in first.children(recursive=True))]
    return found


def listeners(pids: Iterable[int]) -> set[Listener]:
    """Sockets of these processes that listen, TCP or UDP, whatever the family."""
    found = set()
    for pid in pids:
        own = _inodes(pid)
        for kind, waits in (("tcp", _LISTENS), ("tcp6", _LISTENS)):
            found |= _table(pid, kind, waits, own)
        for kind in ("udp", "udp6"):
            found |= _table(pid, kind, _UNCONNECTED, own)
    return found


def _inodes(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found |= set(re.findall(r"^socket:\[(\d+)\]$", os.readlink(entry.path)))
    return found


def _table(pid: int, kind: str, state: str, own: set[str]) -> set[Listener]:
    try:
        _, *lines = Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()
    except OSError:
        return set()  # it has just ended
    found = set()
    for line in lines:
        _, local, _, now, _, _, _, _, _, inode, *_ = line.split()
        if now == state and inode in own:
            digits, _, port = local.partition(":")
            found.add(Listener(kind, _address(digits), int(port, 16)))
    return found


def _address(digits: str) -> str:
    """Words of 32 bits in the machine's order."""
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    return str(ipaddress.ip_address(b"".join(struct.pack("=I", word) for word in words)))
