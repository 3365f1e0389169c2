"""The Containerfile and the compose file, read: every line is one that our own programs take, every
party has users, folders and sockets of its own, and nothing is open that nobody asked for.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")

from sumus import __version__
from sumus.engines import relay_arguments
from sumus.parties import vault_arguments
from sumus.watching import probe
from support.command_lines import parsed
from support.played_containers import Compose, Mount

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SILOS = ("silo-0", "silo-1", "silo-2")
ONCE = ("coordinator", *(f"join-{silo}" for silo in SILOS))
PARTS = [f"{part}-{silo}" for silo in SILOS for part in ("vault", "relay")]
KEYS = {
    *("image", "init", "read_only", "cap_drop", "security_opt", "pids_limit", "restart"),
    *("stop_grace_period", "tmpfs", "healthcheck", "environment", "user", "volumes", "command"),
    *("entrypoint", "networks", "network_mode", "depends_on", "profiles"),
}
"""All that a service says: no port, no device, no capability, no namespace of the machine."""


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Compose:
    root = tmp_path_factory.mktemp("c")
    return Compose(DEPLOY / "compose.yaml", root, {"SUMUS_HOME": "/home-of-all"})


def every_service(compose: Compose) -> dict[str, dict[str, Any]]:
    return {name: each for name, each in compose.services.items() if name not in ONCE}


def test_these_services_and_no_others(compose: Compose) -> None:
    assert sorted(compose.services) == sorted(["server", "operator", *ONCE, *PARTS])
    for name, service in compose.services.items():
        assert set(service) <= KEYS, name
        assert (service.get("profiles") == ["prepare"]) == (name in ONCE)


def test_every_command_line_is_taken_by_our_own_programs(compose: Compose) -> None:
    taken = {}
    for name, service in compose.services.items():
        words = [str(word) for word in service["command"]]
        match compose.entrypoint(name):
            case ["sumus"]:
                taken[name] = parsed(words)[0]
            case ["python", "-P", "-u", "-m", "sumus.parties.vault"]:
                assert vault_arguments(words).relay.isdigit()
                taken[name] = "vault"
            case ["python", "-P", "-u", "-m", "sumus.engines.relaying"]:
                assert relay_arguments(words).kit == Path("/kit")
                taken[name] = "relay"
            case other:
                raise AssertionError(other)
    joins = {f"join-{silo}": "join" for silo in SILOS}
    assert taken == {
        "coordinator": "federation init",
        "server": "federation start",
        "operator": "federation watch",
        **joins,
        **{name: name.split("-")[0] for name in PARTS},
    }


def test_the_parsers_would_notice(compose: Compose) -> None:
    with pytest.raises(Exception, match="No such option"):
        parsed(["federation", "start", "/kit", "--publish"])
    for parse, words in ((vault_arguments, ["/vault"]), (relay_arguments, ["/kit", "more"])):
        with pytest.raises(SystemExit) as ended:
            parse(words)
        assert ended.value.code == 2


def test_containers_are_hardened(compose: Compose) -> None:
    for name, service in compose.services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["init"] is True  # the first process of a namespace ignores SIGTERM else
        assert service["pids_limit"] > 0
        for mount in compose.mounts(name):
            assert mount.is_named or mount.source.startswith("/home-of-all/"), mount
    for name, service in every_service(compose).items():
        assert service["restart"] == "unless-stopped", name


def test_nothing_is_published_and_the_network_has_no_way_out(compose: Compose) -> None:
    assert compose.file["networks"] == {"federation": {"internal": True}}
    for name, service in compose.services.items():
        assert "ports" not in service
        alone = name in ONCE or name.startswith("vault-")
        assert (service.get("network_mode") == "none") == alone, name
        assert service.get("networks", []) == ([] if alone else ["federation"]), name


def test_every_party_has_a_user_of_its_own_and_nobody_is_root(compose: Compose) -> None:
    users = {name: service["user"] for name, service in compose.services.items()}
    for user in users.values():
        assert re.fullmatch(r"(1\d{4}):\1", user)
    for silo in SILOS:
        assert users[f"join-{silo}"] == users[f"vault-{silo}"] != users[f"relay-{silo}"]
        heard = compose.services[f"vault-{silo}"]["command"][-1]
        assert users[f"relay-{silo}"] == f"{heard}:{heard}"
    alone = [users[name] for name in users if not name.startswith("join-")]
    assert len(set(alone)) == len(alone)


def test_nobody_mounts_what_is_anothers(compose: Compose) -> None:
    """But for the socket between a vault and its relay, which the relay cannot replace."""
    seen: dict[str, dict[str, Mount]] = {}
    for name in compose.services:
        for mount in compose.mounts(name):
            seen.setdefault(mount.source, {})[name] = mount
    for silo in SILOS:
        place, kit = f"/home-of-all/{silo}", f"/home-of-all/federation/kits/{silo}"
        both = {f"join-{silo}", f"vault-{silo}"}
        for source in ("vault", "state", "records"):
            assert set(seen[f"{place}/{source}"]) == both
        assert set(seen[f"{place}/policy.toml"]) == {f"join-{silo}"}
        assert set(seen[kit]) == {f"join-{silo}", f"relay-{silo}"}
        between = seen[f"{silo}-socket"]
        assert {name: mount.writable for name, mount in between.items()} == {
            f"vault-{silo}": True,
            f"relay-{silo}": False,
        }
        for reader in both:
            assert not seen[f"{place}/records"][reader].writable
    for source, by in seen.items():
        if len(by) > 1 and not source.endswith("-socket"):
            silos = {re.sub(r"^(join|vault|relay)-", "", name) for name in by}
            assert len(silos) == 1, (source, by)
    named = {source for source, by in seen.items() if next(iter(by.values())).is_named}
    assert named == set(compose.file["volumes"])
    # the coordinator has made the kits, and sees them in this trial
    assert set(seen["/home-of-all/federation"]) == {"coordinator"}


def test_every_path_of_a_command_or_a_variable_is_there_and_writable_where_it_must_be(
    compose: Compose,
) -> None:
    for name, service in compose.services.items():
        targets = [mount.target for mount in compose.mounts(name)] + ["/tmp"]  # noqa: S108
        assert service["tmpfs"] == ["/tmp:mode=1777"]  # noqa: S108
        words = [*map(str, service["command"]), *service.get("environment", {}).values()]
        words += service["healthcheck"].get("test", [])
        for word in words:
            if word.startswith("/"):
                within = [each for each in targets if Path(word).is_relative_to(each)]
                assert within, (name, word)


def test_the_healthcheck_is_our_probe_of_the_file_that_the_service_writes(
    compose: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, service in every_service(compose).items():
        kind, python, option, module, file, question = service["healthcheck"]["test"]
        assert (kind, python, option, module) == ("CMD", "python", "-m", probe.__name__)
        assert file == service["environment"]["SUMUS_HEALTH"], name
        assert question == "readyz"
        assert probe.main([str(Path("/no/such") / file.lstrip("/")), question]) == 1
    for name in ONCE:
        assert compose.services[name]["healthcheck"] == {"disable": True}
        assert "SUMUS_HEALTH" not in compose.services[name]["environment"]


def test_a_relay_waits_for_its_vault(compose: Compose) -> None:
    for silo in SILOS:
        relay = compose.services[f"relay-{silo}"]
        assert relay["depends_on"] == {f"vault-{silo}": {"condition": "service_healthy"}}
        socket = compose.services[f"vault-{silo}"]["command"][1]
        assert relay["environment"]["SUMUS_VAULT"] == socket


# -- the image


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_image_is_pinned_runs_as_nobody_in_particular_and_is_built_from_the_sources() -> None:
    found = instructions()
    (base,) = [rest.removeprefix("BASE=") for word, rest in found if rest.startswith("BASE=")]
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", base)  # no `latest`, no open end
    assert {rest.split()[0] for word, rest in found if word == "FROM"} == {"${BASE}"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    minor = tuple(map(int, base.split(":")[1].split("-")[0].split(".")[:2]))
    assert f"Programming Language :: Python :: {minor[0]}.{minor[1]}" in project["classifiers"]
    (install,) = [rest for word, rest in found if word == "RUN" and "pip install" in rest]
    assert "-c constraints.txt" in install
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", install)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert {"train", "nvflare"} <= set(extras.split(","))
    users = [rest for word, rest in found if word == "USER"]
    assert users == ["10000:10000"]
    assert found[-1] == ("ENTRYPOINT", '["sumus"]')
    assert not [word for word, _ in found if word in ("ADD", "EXPOSE", "VOLUME")]


def test_what_is_copied_is_there_and_is_all_that_the_engine_gets_to_see() -> None:
    copied = {
        source
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert all((ROOT / source).exists() for source in copied)
    ignored = [line for line in (ROOT / ".dockerignore").read_text().split("\n") if line]
    assert ignored[1] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == copied


def test_image_and_compose_file_name_this_release(compose: Compose) -> None:
    for service in compose.services.values():
        assert service["image"] == f"localhost/sumus:{__version__}"
    assert f"-t localhost/sumus:{__version__} ." in (DEPLOY / "Containerfile").read_text()


def test_folders_that_volumes_take_their_mode_from_are_made() -> None:
    (made,) = [rest for word, rest in instructions() if rest.startswith("install -d")]
    assert shlex.split(made)[3:] == ["1777", "/cache", "/run/sumus"]


# -- the script


def test_the_script_is_a_shells_and_its_owners_are_the_services_users(compose: Compose) -> None:
    path = DEPLOY / "prepare.sh"
    assert path.stat().st_mode & 0o111
    assert subprocess.run(["sh", "-n", str(path)], check=False).returncode == 0
    if shutil.which("shellcheck") is not None:
        subprocess.run(["shellcheck", str(path)], check=True)
    text = path.read_text()
    owned = set(re.findall(r"own (\S+) ", text)) - {"OWNER"}
    users = {service["user"].split(":")[0] for service in compose.services.values()}
    meant = {each.replace("$number", digit) for each in owned for digit in "012"}
    assert {each for each in meant if each.isdigit()} == users
