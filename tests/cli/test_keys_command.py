from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sumus.cli.keys import keys_app
from sumus.errors import DataError, StorageError
from sumus.secagg import Identity, Roster

runner = CliRunner()


def make(folder: Path, *names: str) -> list[Path]:
    for name in names:
        assert (
            runner.invoke(
                keys_app, ["new", name, "--out", str(folder)], catch_exceptions=False
            ).exit_code
            == 0
        )
    return [folder / f"{name}.pub" for name in names]


def test_new_keys_and_a_roster_fit_together(tmp_path: Path) -> None:
    files = make(tmp_path, "north", "south")
    result = runner.invoke(
        keys_app, ["roster", *map(str, files), "--out", str(tmp_path / "roster.toml")]
    )
    roster = Roster.parse((tmp_path / "roster.toml").read_text())
    assert result.exit_code == 0
    assert "north, south" in result.output
    assert roster.digest().hex()[:8] in result.output
    for name in roster.names:
        identity = Identity.parse((tmp_path / f"{name}.key").read_text())
        assert identity.public_key == roster.public_keys[name]
        assert (tmp_path / f"{name}.key").stat().st_mode & 0o077 == 0
        assert (
            identity.secret_text().split(":")[1].strip()
            not in (tmp_path / f"{name}.pub").read_text()
        )


def test_without_its_pub_file_the_servers_key_is_made_beside_the_roster(tmp_path: Path) -> None:
    files, out = make(tmp_path / "silos", "north", "south"), tmp_path / "roster.toml"
    result = runner.invoke(keys_app, ["roster", *map(str, files), "--out", str(out)])
    assert "server.key" in result.output
    own = Identity.parse((tmp_path / "server.key").read_text())
    assert (tmp_path / "server.key").stat().st_mode & 0o777 == 0o600
    Roster.parse(out.read_text()).require_server(own)


def test_the_servers_operator_makes_its_key_like_a_silo(tmp_path: Path) -> None:
    files, out = make(tmp_path, "north", "server"), tmp_path / "roster.toml"
    result = runner.invoke(keys_app, ["roster", *map(str, files), "--out", str(out), "--json"])
    told = json.loads(result.output)
    assert (told["silos"], told["server_key"]) == (["north"], None)
    own = Identity.parse((tmp_path / "server.key").read_text())
    Roster.parse(out.read_text()).require_server(own)


def test_scripts_read_the_fingerprint(tmp_path: Path) -> None:
    made = runner.invoke(keys_app, ["new", "north", "--out", str(tmp_path), "--json"])
    public = json.loads(made.output)["public"]
    found = json.loads(
        runner.invoke(
            keys_app, ["roster", public, "--out", str(tmp_path / "roster.toml"), "--json"]
        ).output
    )
    assert (
        found["fingerprint"].replace(" ", "")
        == Roster.parse((tmp_path / "roster.toml").read_text()).digest().hex()
    )
    assert found["silos"] == ["north"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    make(tmp_path, "north")
    before = (tmp_path / "north.key").read_text()
    with pytest.raises(StorageError, match="exists already"):
        runner.invoke(keys_app, ["new", "north", "--out", str(tmp_path)], catch_exceptions=False)
    assert (tmp_path / "north.key").read_text() == before


def test_bad_names_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="name must be"):
        runner.invoke(keys_app, ["new", "../north", "--out", str(tmp_path)], catch_exceptions=False)
    with pytest.raises(StorageError, match="cannot be read"):
        runner.invoke(keys_app, ["roster", str(tmp_path / "none.pub")], catch_exceptions=False)
    (file,) = make(tmp_path, "north")
    with pytest.raises(DataError, match="twice"):
        runner.invoke(
            keys_app,
            ["roster", str(file), str(file), "--out", str(tmp_path / "r")],
            catch_exceptions=False,
        )
