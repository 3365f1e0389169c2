"""Is a server well, or an operator's kit: key, port, disk, trail, journals of its runs."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from sumus.books import JOURNAL, RunFolder
from sumus.care.finding import Finding, fail, looked, ok
from sumus.care.kit_health import certificates, certificates_of, kit_found, kit_keys, private
from sumus.care.machine import clock, disk, is_held, last_line
from sumus.engines import Kit
from sumus.files import read_bytes
from sumus.parties import audit_server, read_rosters
from sumus.secagg import Identity

__all__ = ["ServerHealth"]

_LEAST_BYTES = 256 << 20
_COPIES = 4
"""Of the largest run that is here: its like, while it is fetched and packed."""
_PATIENCE_SECONDS = 2.0


@final
@dataclass(frozen=True)
class ServerHealth:
    """Looks at a server's kit, and changes nothing."""

    kit: Kit

    def examine(self) -> list[Finding]:
        """Every look, in the order in which somebody would mend things."""
        looks: dict[str, Callable[[], Finding]] = {
            "kit": lambda: kit_found(self.kit),
            "permissions": self.permissions,
            "key": self.key,
            "certificates": lambda: certificates(self.kit),
            "port": self.port,
            "trail": self.trail,
            "journals": self.journals,
            "disk": self.disk,
            "clock": self.clock,
        }
        return [looked(check, look) for check, look in looks.items()]

    def permissions(self) -> Finding:
        """Whether only the server's user can read its keys."""
        return private([self.kit.path, *kit_keys(self.kit)], "kit and keys")

    def key(self) -> Finding:
        """Whether the server's key can be read and is the one on the roster."""
        path = self.kit.state / "server.key"
        roster = read_rosters(self.kit.state).current
        if Identity.parse(read_bytes(path).decode()).public_key != roster.server_key:
            return fail(
                "key",
                f"{path} is not the server's key on the roster.",
                "Put the key there whose server.pub the coordinator has.",
            )
        return ok("key", f"on the roster {roster.digest().hex()[:16]}…, {len(roster.names)} silos")

    def port(self) -> Finding:
        """Whether the port is this server's, or free."""
        held, open_ = is_held(self.kit.path), self._is_open()
        port = self.kit.address.port
        if held and not open_:
            return fail(
                "port",
                f"the server runs, and nobody listens on port {port}.",
                f"Wait for its start; then see {self.kit.path}/server.log.",
            )
        if open_ and not held:
            return fail(
                "port",
                f"port {port} is taken by another process.",
                "Stop that one, or make kits for another port.",
            )
        return ok(
            "port", f"{port} is served" if held else f"{port} is free, the server not running"
        )

    def trail(self) -> Finding:
        """Whether the audit trail is whole, and names every certificate of the runs."""
        audit = audit_server(self.kit.state)
        if audit.findings:
            return fail(
                "trail",
                f"{audit.findings[0]}.",
                "See `sumus audit evidence`; somebody, or a restored copy, has changed files.",
            )
        return ok("trail", f"{0 if audit.reading.head is None else audit.reading.head.lines} lines")

    def journals(self) -> Finding:
        """Whether the journal of every run is whole, and its model the one that it names."""
        for path in self._runs:
            RunFolder.open(path).verify()
        return ok("journals", f"{len(self._runs)} runs, all whole")

    def disk(self) -> Finding:
        """Whether another run like the largest has room."""
        sizes = (
            sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
            for run in self._runs
        )
        need = max(_LEAST_BYTES, _COPIES * max(sizes, default=0))
        return disk({"the server's runs": self.kit.state}, need)

    def clock(self) -> Finding:
        """Whether the clock is behind what has happened."""
        past = last_line(self.kit.state)
        past |= {
            f"the beginning of {path.name}": certificate.not_valid_before_utc
            for path, certificate in certificates_of(self.kit.path)
        }
        return clock(past)

    @property
    def _runs(self) -> list[Path]:
        return sorted(path.parent for path in (self.kit.state / "runs").glob(f"*/*/{JOURNAL}"))

    def _is_open(self) -> bool:
        for host in ("127.0.0.1", self.kit.address.host):
            try:
                with socket.create_connection(
                    (host, self.kit.address.port), timeout=_PATIENCE_SECONDS
                ):
                    return True
            except OSError:
                continue
        return False
