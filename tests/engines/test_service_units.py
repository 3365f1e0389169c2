"""Units for systemd: as systemd wants them, hardened by its own measure, for any folder, and closed to
whoever wrote the kit.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sumus.engines import Kit, unit_file
from sumus.engines.unit_file import ServiceUnit
from sumus.engines.units import write_server_unit, write_units, write_watch_unit
from sumus.errors import DataError, StorageError
from sumus.randomness import RandomSource
from sumus.secagg import Identity
from sumus.service import EXIT_CODES
from support.kits import bare_kit, made_roster
from support.service_manager import read_unit, words

ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
SILO = "silo-0"
MOST_EXPOSED = {"server": 1.2, "vault": 1.0, "relay": 1.2, "watch": 1.2}
"""Of 10; what systemd calls OK ends at 5, what it calls safe at 1."""


def kit_of(folder: Path, party: str, server: str = "localhost:8002") -> Path:
    roster = made_roster([SILO, "silo-1"], Identity.generate(SILO, RandomSource()))
    kit = bare_kit(folder / party, party, roster)
    kit.joinpath("kit.toml").write_text(
        f'engine = "nvflare"\nparty = "{party}"\nserver = "{server}"\n'
    )
    return kit


def all_units(
    place: Path, *, server: str = "localhost:8002", listen: str | None = None
) -> dict[str, Path]:
    """Service → its unit, of parties below a folder."""
    units, vault = place / "units", place / "vault"
    vault.mkdir(mode=0o700)
    for name in (SILO, "server", "admin"):
        kit_of(place, name, server)
    write_units(
        units,
        kit=place / SILO,
        vault=vault,
        ledgers=place,
        records=place / "records.csv",
        user="sumus-relay",
    )
    kit = Kit.open(place / "server", "server")
    write_server_unit(units, kit=kit, user="sumus-server", listen=listen, options=[])
    write_watch_unit(units, kit=Kit.open(place / "admin", "admin"), user="sumus-watch", options=[])
    return {path.stem.split("-")[1]: path for path in units.iterdir()}


def test_every_service_says_when_it_is_ready_is_watched_and_never_given_up(tmp_path: Path) -> None:
    units = all_units(tmp_path)
    assert sorted(units) == ["relay", "server", "vault", "watch"]
    for path in units.values():
        unit = read_unit(path)
        service = {name: values[-1] for name, values in unit["Service"].items()}
        assert unit["Unit"]["StartLimitIntervalSec"] == ["0"]  # no outage is too long
        assert int(service["RestartSec"]) >= 10  # and nobody spins
        assert (service["Restart"], service["Type"]) == ("always", "notify")
        assert service["NotifyAccess"] == "main"
        assert int(service["WatchdogSec"]) <= 300
        assert int(service["TimeoutStartSec"]) <= 900
        prevented = {int(code) for code in service["RestartPreventExitStatus"].split()}
        assert prevented == {code for code, row in EXIT_CODES.items() if not row.again}
        assert service["User"] != "root" or "vault" in path.name  # its owner here


def test_separate_users_and_what_each_may_reach(tmp_path: Path) -> None:
    services = {name: read_unit(path)["Service"] for name, path in all_units(tmp_path).items()}
    users = {name: service["User"][0] for name, service in services.items()}
    assert users == {
        "vault": getpass.getuser(),
        "relay": "sumus-relay",
        "server": "sumus-server",
        "watch": "sumus-watch",
    }
    vault, relay = services["vault"], services["relay"]
    assert vault["PrivateNetwork"] == ["yes"]
    assert vault["RestrictAddressFamilies"] == ["AF_UNIX"]
    hidden = words(relay["InaccessiblePaths"][0])
    assert hidden == [f"-{tmp_path}/vault", f"-{tmp_path}", f"-{tmp_path}/records.csv"]
    assert relay["MemoryDenyWriteExecute"] == ["yes"]
    for service in services.values():
        for setting, value in {
            "ProtectSystem": "strict",
            "NoNewPrivileges": "yes",
            "CapabilityBoundingSet": "",
            "UMask": "0077",
            "LimitCORE": "0",
        }.items():
            assert service[setting] == [value]


def test_a_service_for_this_machine_reaches_no_other(tmp_path: Path) -> None:
    for number, (server, listen, here) in enumerate(
        [
            ("localhost:8002", None, True),
            ("localhost:8002", "127.0.0.2", True),
            ("localhost:8002", "0.0.0.0", False),  # noqa: S104
            ("fl.example.org:8002", None, False),
        ]
    ):
        place = tmp_path / str(number)
        place.mkdir()
        service = read_unit(all_units(place, server=server, listen=listen)["server"])["Service"]
        assert (service.get("IPAddressDeny") == ["any"]) == here
        assert (service.get("IPAddressAllow") == ["localhost"]) == here


def test_what_is_in_a_folder_for_temporary_files_or_a_home_is_not_hidden_from_its_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for owner, name in ((sys, "prefix"), (sys, "base_prefix"), (unit_file, "__file__")):
        monkeypatch.setattr(owner, name, "/opt/sumus")  # wherever these tests are

    def hidden(place: str) -> tuple[list[str], list[str]]:
        unit = ServiceUnit(
            name="x",
            description="x",
            user="x",
            command=["/opt/sumus/bin/python"],
            writes=[Path(place)],
            addresses="AF_UNIX",
        )
        lines = unit.text.splitlines()
        return (
            [line for line in lines if line.startswith("PrivateTmp")],
            [line for line in lines if line.startswith("ProtectHome")],
        )

    assert hidden("/tmp/kit")[0] == ["PrivateTmp=no"]  # noqa: S108
    assert hidden("/home/somebody/kit")[1] == ["ProtectHome=read-only"]
    assert hidden("/srv/kit")[0] == ["PrivateTmp=yes"]


@needs_systemd
def test_systemd_reads_every_line_and_finds_little_exposed(tmp_path: Path) -> None:
    units = all_units(tmp_path)
    run = {"capture_output": True, "text": True, "check": False}
    verified = subprocess.run(
        [ANALYZE, "verify", "--man=no", *map(str, units.values())],
        **run,
    )
    ours = [line for line in verified.stderr.splitlines() if "sumus-" in line]
    assert not ours, ours
    for name, path in units.items():
        # as of parties in /srv and a Sumus in /opt
        text = path.read_text().replace("PrivateTmp=no", "PrivateTmp=yes")
        path.write_text(text.replace("ProtectHome=read-only", "ProtectHome=yes"))
        looked = subprocess.run([ANALYZE, "security", "--offline=true", str(path)], **run)
        if looked.returncode and "offline" in looked.stderr:
            pytest.skip("this systemd cannot look at units that are not installed")
        (level,) = re.findall(r"exposure level for \S+: ([0-9.]+)", looked.stdout)
        assert float(level) <= MOST_EXPOSED[name], (name, level)


@pytest.mark.parametrize("name", ["with space", "a%b", 'quo"te', "dollar$", "back\\slash", "it's"])
def test_units_name_any_folder(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    place.mkdir()
    units = all_units(place)
    for part, kit in (("relay", SILO), ("server", "server"), ("watch", "admin")):
        service = read_unit(units[part])["Service"]
        assert str(place / kit) in words(service["ExecStart"][0])
        assert words(service["ReadWritePaths"][0]) == [str(place / kit)]
        homes = [word for value in service["Environment"] for word in words(value)]
        assert f"HOME={place / kit}" in homes
    service = read_unit(units["vault"])["Service"]
    assert str(place / "vault") in words(service["ExecStart"][0])


def test_a_folder_with_a_line_break_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "a\nb"
    place.mkdir()
    with pytest.raises(DataError, match="has a line break"):
        all_units(place)


@pytest.mark.parametrize(
    "user", ["x\nExecStartPre=+/bin/sh", "a b", "", "-x", "x" * 40, "%i", "root", "nobody"]
)
def test_attack_a_user_that_is_more_than_a_name_is_refused(tmp_path: Path, user: str) -> None:
    kit = Kit.open(kit_of(tmp_path, "server"), "server")
    with pytest.raises(DataError, match="--user must be the name of a Unix user"):
        write_server_unit(tmp_path / "units", kit=kit, user=user, listen=None, options=[])


@pytest.mark.parametrize("party", ["a\\nExecStartPre=+/bin/sh", "../../../etc/x", "a b", "%n"])
def test_attack_a_coordinator_writes_a_line_of_a_unit_that_root_installs(
    tmp_path: Path, party: str
) -> None:
    """The name in a kit is the coordinator's; it becomes a file name and a line of two units."""
    kit, vault = kit_of(tmp_path, SILO), tmp_path / "vault"
    vault.mkdir(mode=0o700)
    kit.joinpath("kit.toml").write_text(
        f'engine = "nvflare"\nparty = "{party}"\nserver = "localhost:8002"\n'
    )
    with pytest.raises(DataError, match="silo name must be letters"):
        write_units(
            tmp_path / "units",
            kit=kit,
            vault=vault,
            ledgers=vault,
            records=None,
            user="sumus-relay",
        )
    assert not (tmp_path / "units").exists()


def test_attack_a_coordinator_has_root_give_a_file_away_through_the_kit(tmp_path: Path) -> None:
    """`chown -hR` follows no symbolic link; a hard link is the file."""
    kit = Kit.open(kit_of(tmp_path, "server"), "server")
    treasure = tmp_path / "treasure"
    treasure.write_text("secret")
    (kit.path / "soft").symlink_to(treasure)
    lines = write_server_unit(tmp_path / "units", kit=kit, user="sumus", listen=None, options=[])
    (given,) = [line for line in lines if "chown" in line]
    assert given.split()[:3] == ["chown", "-hR", "sumus"]
    os.link(treasure, kit.path / "hard")
    with pytest.raises(StorageError, match="has another name elsewhere"):
        write_server_unit(tmp_path / "units", kit=kit, user="sumus", listen=None, options=[])


def test_attack_code_that_a_server_brings_writes_what_the_relay_loads_next_time(
    tmp_path: Path,
) -> None:
    """The engine can write its home, from which Python would take modules."""
    units = all_units(tmp_path)
    for name in ("relay", "server", "watch"):
        variables = read_unit(units[name])["Service"]["Environment"]
        assert "PYTHONNOUSERSITE=1" in variables, name
        assert "-P" in words(read_unit(units[name])["Service"]["ExecStart"][0])
    kit = tmp_path / SILO
    planted = kit / ".local/lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (planted / "site-packages").mkdir(parents=True)
    (planted / "site-packages" / "usercustomize.py").write_text("print('planted')")
    (kit / "sitecustomize.py").write_text("print('planted')")
    look = [sys._base_executable, "-P", "-c", "print('clean')"]  # type: ignore[attr-defined]

    def said(**more: str) -> list[str]:
        own = {"HOME": str(kit), **more}
        done = subprocess.run(look, env=own, cwd=kit, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert said(PYTHONNOUSERSITE="1") == ["clean"]
    assert said() == ["planted", "clean"]  # the control
