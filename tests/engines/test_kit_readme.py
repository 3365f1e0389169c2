"""The readme of a kit is true: it lists what is there and marks what is secret, its commands are
commands, and what it says of afterwards is so.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("nvflare")
pytest.importorskip("flwr")

from sumus.cli import main
from sumus.engines import FederationFolder
from support.command_lines import parsed, parsed_line
from support.local_federation import plan

ENGINES = ("nvflare", "flower")
PARTIES = ("server", "admin", "silo-0")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], FederationFolder]:
    """Federations by engine, and whether the silos made their own keys."""
    root = tmp_path_factory.mktemp("kits")
    (root / "plan.toml").write_text(plan({"federation.silos": 3}).to_toml())
    (root / "pubs").mkdir()
    silos = ["silo-0", "silo-1", "silo-2"]
    for name in [*silos, "server"]:
        assert main(["keys", "new", name, "--out", str(root / "pubs")]) == 0
    federations = {}
    for engine, own in [("nvflare", False), ("nvflare", True), ("flower", False)]:
        folder = root / f"{engine}-{own}"
        words = ["--silos", ",".join(silos), "--engine", engine, "--plan", str(root / "plan.toml")]
        words += ["--keys", str(root / "pubs")] if own else []
        assert main(["federation", "init", str(folder), *words]) == 0
        federations[engine, own] = FederationFolder.open(folder)
    return federations


Kits = dict[tuple[str, bool], FederationFolder]
every_kit = pytest.mark.parametrize(
    ("engine", "own", "party"),
    [
        (engine, own, party)
        for engine, own in [("nvflare", False), ("nvflare", True), ("flower", False)]
        for party in PARTIES
    ],
)


def section(text: str, title: str) -> str:
    """What stands below a title."""
    titles = ["What is in it", "What to do", "Where things lie afterwards"]
    assert [line for line in text.splitlines() if line in titles] == titles
    after = text.split(f"\n{title}\n")[1]
    return re.split(rf"\n(?:{'|'.join(titles)})\n", after)[0]


def listed(text: str, title: str) -> dict[str, str]:
    """Path → words."""
    return dict(re.findall(r"^  (\S+)  +(.+)$", section(text, title), re.MULTILINE))


def commands(text: str) -> list[str]:
    return re.findall(r"^    (sumus .+)$", section(text, "What to do"), re.MULTILINE)


def is_secret(path: Path) -> bool:
    """Whether a file holds a private key, by what is in it."""
    text = path.read_text(errors="replace")
    return "PRIVATE KEY" in text or "-secret:" in text


@every_kit
def test_everything_is_listed_and_what_is_secret_is_marked(
    made: Kits, engine: str, own: bool, party: str
) -> None:
    kit = made[engine, own].kit(party)
    text = (kit / "readme.txt").read_text()
    lines = listed(text, "What is in it")
    for name in lines:
        assert (kit / name).exists(), name
    for path in kit.rglob("*"):
        if not path.is_file():
            continue
        name = path.relative_to(kit).as_posix()
        assert {name, name.partition("/")[0]} & set(lines), name
        marked = lines.get(name, "").startswith("SECRET")
        assert marked == is_secret(path), name
        if marked:
            assert path.stat().st_mode & 0o777 == 0o600
    assert kit.stat().st_mode & 0o777 == 0o700
    secret = any(words.startswith("SECRET") for words in lines.values())
    assert ("as you would a password" in text) == secret
    assert ("Nothing in it is secret" in text) == (not secret)
    assert (f"{party}.tls.key will be put into it" in text) == (own and party != "admin")
    if own and party != "admin":
        assert not secret
    elif (engine, party) != ("flower", "admin"):
        assert secret


@every_kit
def test_its_commands_are_commands(made: Kits, engine: str, own: bool, party: str) -> None:
    kit = made[engine, own].kit(party)
    found = commands((kit / "readme.txt").read_text())
    assert len(found) >= 3
    for line in found:
        name, options = parsed_line(line)
        places = {options.get(key) for key in ("kit", "folder", "place")} - {None}
        assert {str(place) for place in places} == {party}, line
        if options.get("plan") and name in ("join", "federation train"):
            given = options["plan"]
            plans = given if isinstance(given, (list, tuple)) else [given]
            assert all((kit.parent / each).is_file() for each in plans), line
    words = " ".join(found)
    assert (f"--identity {party}.key" in words) == (own and party == "silo-0")
    assert ("--tls-key server.tls.key" in words) == (own and party == "server")


def test_a_server_does_what_its_readme_says_with_keys_of_its_own(
    made: Kits, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = made["nvflare", True]
    kits, kit = federation.folder / "kits", federation.kit("server")
    text = (kit / "readme.txt").read_text()
    (copy,) = re.findall(r"^    (install .+)$", section(text, "What to do"), re.MULTILINE)
    _, unit, _ = commands(text)
    for name in ("server.key", "server.tls.key"):
        (kits / name).write_bytes((federation.folder.parent / "pubs" / name).read_bytes())
    monkeypatch.chdir(kits)
    subprocess.run(copy.split(), check=True)
    assert main(unit.split()[1:]) == 0
    assert (kits / "units" / "sumus-server.service").is_file()
    assert is_secret(kit / "startup" / "server.key")
    assert is_secret(kit / "sumus" / "server.key")
    assert (kit / "sumus" / "server.key").stat().st_mode & 0o777 == 0o600


def test_the_fingerprint_is_the_rosters(made: Kits) -> None:
    for federation in made.values():
        for party in PARTIES:
            text = (federation.kit(party) / "readme.txt").read_text()
            digits = re.search(r"telephone:\n  ([0-9a-f ]+)\n", text)
            assert digits is not None
            assert digits[1].replace(" ", "") == federation.roster.digest().hex()


@pytest.mark.parametrize("own", [False, True])
def test_a_silo_does_what_its_readme_says(
    made: Kits,
    own: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From the folder that holds the kit, by the commands as they stand, with its own files in the
    places of DATA and POLICY; the policy is made as the readme says.
    """
    federation = made["nvflare", own]
    party, kits = "silo-0", federation.folder / "kits"
    text = (federation.kit(party) / "readme.txt").read_text()
    check, _, units, _ = commands(text)
    policy = tmp_path / "policy.toml"
    policy.touch()
    for name in ("silo-0.key", "silo-0.tls.key"):
        (kits / name).write_bytes((federation.folder.parent / "pubs" / name).read_bytes())
    monkeypatch.chdir(kits)
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))

    def run(line: str) -> str:
        words = line.replace("DATA", "digits").replace("POLICY", str(policy)).split()[1:]
        assert main(words) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    (line,) = re.findall(r"^  (roster_fingerprint = .+)$", run(check), re.MULTILINE)
    policy.write_text(f"{line}\n")
    run(units)
    vault = f"~/.local/state/sumus/silos/{federation.roster.digest().hex()[:16]}/{party}"
    places = listed(text, "Where things lie afterwards")
    assert vault in places
    there = Path(vault.replace("~/.local/state/sumus", str(tmp_path / "state")))
    assert there.is_dir()
    assert there.stat().st_mode & 0o777 == 0o700
    assert (there / "identity.key").is_file()
    assert not (federation.kit(party) / "sumus" / "identity.key").exists()  # it was moved
    assert (federation.kit(party) / "startup" / "client.key").is_file()
    parsed(["silo", "backup", party, "FILE"])  # the last line
    assert f"`sumus silo backup {party} FILE`" in text
