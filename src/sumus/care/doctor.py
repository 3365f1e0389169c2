"""`sumus doctor`: every look at an installation, a silo, a server or an operator's kit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from sumus.care.finding import Finding, looked
from sumus.care.installation import examine_installation
from sumus.care.kit_health import certificates, connection, kit_found, kit_keys, private
from sumus.care.server_health import ServerHealth
from sumus.care.vault_health import SiloHealth
from sumus.engines import Kit
from sumus.errors import EngineError, StorageError
from sumus.files import parse_toml, read_bytes
from sumus.parties import read_rosters, vault_folder

__all__ = ["Diagnosis", "diagnose"]


@final
@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What was looked at, and what was found.

    Args:
        of: in words.
    """

    of: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is broken."""
        return not self.failed

    @property
    def failed(self) -> list[Finding]:
        """What is broken."""
        return [finding for finding in self.findings if finding.state == "fail"]

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "of": self.of,
            "passed": self.passed,
            "checks": [asdict(finding) for finding in self.findings],
        }


def diagnose(place: Path | None = None, *, vault: Path | None = None) -> Diagnosis:
    """Look at this installation, and at the party whose kit or vault is given.

    Guarantee: no file is changed, no ledger is entered into, no record is read.

    Args:
        place: a kit or a vault; None: the installation alone.
        vault: of a silo whose vault is not where `sumus join` puts it.
    """
    machine = examine_installation()
    if place is None:
        return Diagnosis(of="this installation", findings=tuple(machine))
    of, found = _party(place, vault)
    return Diagnosis(of=of, findings=(*machine, *found))


def _party(place: Path, vault: Path | None) -> tuple[str, list[Finding]]:
    if (place / "site.toml").is_file() and not (place / "kit.toml").is_file():
        return f"the vault {place}", SiloHealth(place.absolute()).examine()
    if (place / "kits" / "server" / "kit.toml").is_file():
        place = place / "kits" / "server"
    if not (place / "kit.toml").is_file():
        raise StorageError(
            f"{place} is neither a kit nor a vault. Give a folder with kit.toml, or the one that "
            "`sumus join` named."
        )
    party = str(parse_toml(read_bytes(place / "kit.toml").decode(), "kit.toml").get("party"))
    if party == "server":
        return "the server", ServerHealth(Kit.open(place, "server")).examine()
    if party == "admin":
        return "the operator's kit", _operator(Kit.open(place, "admin"))
    return f"silo {party}", _silo(Kit.open(place, "silo"), vault)


def _silo(kit: Kit, vault: Path | None) -> list[Finding]:
    found = [
        looked("kit", lambda: kit_found(kit)),
        looked("certificates", lambda: certificates(kit)),
        looked("connection", lambda: connection(kit)),
    ]
    try:
        folder = (vault or vault_folder(read_rosters(kit.state).first, kit.party)).absolute()
    except (EngineError, StorageError) as error:
        return [*found, Finding(check="vault", state="fail", said=str(error))]
    return [*found, *SiloHealth(folder, kit).examine()]


def _operator(kit: Kit) -> list[Finding]:
    return [
        looked("kit", lambda: kit_found(kit)),
        looked("permissions", lambda: private([kit.path, *kit_keys(kit)], "kit and keys")),
        looked("certificates", lambda: certificates(kit)),
        looked("connection", lambda: connection(kit)),
    ]
