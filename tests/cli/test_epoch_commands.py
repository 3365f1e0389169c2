"""`sumus federation admit | retire | rotate | epoch` and `sumus keys endorse`, as a coordinator and
the silos' people run them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sumus.cli import main
from sumus.parties import read_rosters
from sumus.secagg import Roster, RosterHistory

pytest.importorskip("nvflare")

NAMES = ("Bergen", "Graz", "Oulu", "Turku")
PLAN = """
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
silos = 3
rounds = 2
local_steps = 20
[data]
name = "digits"
"""


class Consortium:
    """Four silos, their keys, and the coordinator's folder."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.folder, self._capsys = root, root / "consortium", capsys
        for name in NAMES:
            self.key(name)
        (root / "pubs").mkdir()
        for name in NAMES:
            (root / "pubs" / f"{name}.pub").write_bytes((root / name / f"{name}.pub").read_bytes())
        server = ("--server", "localhost:8002", "--keys", str(root / "pubs"))
        self.run("federation", "init", str(self.folder), "--silos", ",".join(NAMES), *server)

    def key(self, name: str, again: str = "") -> Path:
        """A new identity; where its public line is."""
        place = self.root / f"{name}{again}"
        self.run("keys", "new", name, "--out", str(place))
        return place / f"{name}.pub"

    def run(self, *words: str) -> str:
        code = main(words)
        said = self._capsys.readouterr()
        assert code == 0, said.err
        return said.out

    def fails(self, *words: str) -> str:
        assert main(words) != 0
        lines = self._capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1, lines
        return lines[0]

    def json(self, *words: str) -> dict[str, object]:
        return dict(json.loads(self.run(*words, "--json").strip().splitlines()[-1]))

    def endorse(self, *names: str, proposal: str, trusted: str = "roster.toml") -> list[str]:
        return [
            self.run(
                *("keys", "endorse", str(self.folder / proposal)),
                *("--identity", str(self.root / name / f"{name}.key")),
                *("--roster", str(self.folder / trusted)),
                *("--out", str(self.root / "signatures")),
            )
            for name in names
        ]

    def epoch(self, *words: str) -> tuple[str, ...]:
        signatures = str(self.root / "signatures")
        return ("federation", "epoch", str(self.folder), "--signatures", signatures, *words)


@pytest.fixture
def consortium(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Consortium:
    return Consortium(tmp_path, capsys)


@pytest.mark.deep
def test_a_silo_comes_one_leaves_and_one_has_a_new_key(consortium: Consortium) -> None:
    folder, root = consortium.folder, consortium.root
    first = Roster.parse((folder / "roster.toml").read_text())
    vaasa, graz = consortium.key("Vaasa"), consortium.key("Graz", "-new")
    said = consortium.run("federation", "admit", str(folder), str(vaasa))
    assert "roster 1: admits Vaasa" in said
    assert "3 of 4 must sign it" in said
    said = consortium.run("federation", "rotate", str(folder), str(graz))
    assert "roster 1: admits Vaasa, new key of Graz" in said
    assert "what was signed before does not count" in said
    consortium.run("federation", "retire", str(folder), "Oulu")
    assert "signed by 0 of the 4 silos" in consortium.fails(*consortium.epoch())
    said = consortium.endorse("Bergen", "Graz", proposal="epoch-1.toml")[0]
    assert "roster 1: admits Vaasa, retires Oulu, new key of Graz" in said
    assert "signed by 2 of the 4 silos" in consortium.fails(*consortium.epoch())
    assert read_rosters(folder).current == first
    assert not (folder / "kits" / "Vaasa").exists()
    consortium.endorse("Turku", proposal="epoch-1.toml")
    made = consortium.json(*consortium.epoch())
    assert made["signed_by"] == ["Bergen", "Graz", "Turku"]
    rosters = read_rosters(folder)
    assert rosters.current.names == ("Bergen", "Graz", "Turku", "Vaasa")
    assert rosters.first == first
    fingerprint = re.sub(" ", "", str(made["roster_fingerprint"]))
    assert fingerprint == rosters.current.digest().hex()
    # whoever has the old kit follows by the chain alone, and the new kit is like the others
    for party in ("Bergen", "Graz", "Turku", "Vaasa", "server", "admin"):
        state = folder / "kits" / party / "sumus"
        assert read_rosters(state).current == rosters.current
    assert Roster.parse((folder / "kits" / "Graz" / "sumus" / "roster.toml").read_text()) == first
    assert not (folder / "kits" / "Oulu").exists()
    kit = folder / "kits" / "Vaasa"
    assert kit.stat().st_mode & 0o777 == 0o700
    assert (kit / "startup" / "rootCA.pem").read_bytes() == (
        folder / "kits" / "Bergen" / "startup" / "rootCA.pem"
    ).read_bytes()
    old, new = (
        sorted(path.name for path in (folder / "kits" / name / "local").iterdir())
        for name in ("Bergen", "Vaasa")
    )
    assert old == new
    assert "nothing is proposed" in consortium.fails(*consortium.epoch())
    # and again: the silos that are there now agree on the next
    consortium.run("federation", "retire", str(folder), "Vaasa")
    (root / "Graz" / "Graz.key").rename(root / "Graz" / "old.key")
    (root / "Graz-new" / "Graz.key").rename(root / "Graz" / "Graz.key")
    for file in (root / "signatures").iterdir():
        file.unlink()
    consortium.endorse("Bergen", "Graz", "Turku", proposal="epoch-2.toml", trusted="epochs.toml")
    consortium.run(*consortium.epoch())
    assert read_rosters(folder).current.names == ("Bergen", "Graz", "Turku")
    history = RosterHistory.parse((folder / "epochs.toml").read_text())
    assert history.since(first.digest()).epoch == 2


@pytest.mark.deep
def test_a_silo_signs_one_next_roster(consortium: Consortium) -> None:
    folder, vaasa = consortium.folder, consortium.key("Vaasa")
    consortium.run("federation", "admit", str(folder), str(vaasa))
    consortium.endorse("Graz", proposal="epoch-1.toml")
    consortium.endorse("Graz", proposal="epoch-1.toml")  # the same again
    consortium.run("federation", "retire", str(folder), "Oulu")
    words = (
        *("keys", "endorse", str(folder / "epoch-1.toml"), "--roster", str(folder / "roster.toml")),
        *("--identity", str(consortium.root / "Graz" / "Graz.key")),
        *("--out", str(consortium.root / "signatures")),
    )
    assert "has signed another roster 1 already" in consortium.fails(*words)
    consortium.run(*words, "--instead")


def test_a_silo_signs_with_its_own_key_under_what_follows_its_own_roster(
    consortium: Consortium,
) -> None:
    folder, vaasa = consortium.folder, consortium.key("Vaasa")
    consortium.run("federation", "admit", str(folder), str(vaasa))
    proposal, trusted = str(folder / "epoch-1.toml"), str(folder / "roster.toml")

    def words(key: Path, roster: str = trusted) -> tuple[str, ...]:
        out = ("--out", str(consortium.root / "signatures"))
        return ("keys", "endorse", proposal, "--identity", str(key), "--roster", roster, *out)

    newcomer = words(consortium.root / "Vaasa" / "Vaasa.key")
    assert "is not the key of 'Vaasa' on roster 0" in consortium.fails(*newcomer)
    own = consortium.root / "Graz" / "Graz.key"
    assert "this silo has roster 1" in consortium.fails(*words(own, proposal))
    assert not (consortium.root / "signatures").exists()


def test_what_cannot_be_proposed_is_refused_in_a_line(consortium: Consortium) -> None:
    folder = str(consortium.folder)
    vaasa, graz = consortium.key("Vaasa"), consortium.root / "Graz" / "Graz.pub"
    assert "on the roster already" in consortium.fails("federation", "admit", folder, str(graz))
    assert "has that key already" in consortium.fails("federation", "rotate", folder, str(graz))
    assert "not on the roster" in consortium.fails("federation", "rotate", folder, str(vaasa))
    assert "not on the roster" in consortium.fails("federation", "retire", folder, "Vaasa")
    assert "nothing is proposed" in consortium.fails(*consortium.epoch())
    assert not (consortium.folder / "epoch-1.toml").exists()


def test_a_plan_for_the_next_roster_must_name_its_silos(
    consortium: Consortium, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    consortium.run("federation", "retire", str(consortium.folder), "Oulu")
    consortium.endorse("Bergen", "Graz", "Turku", proposal="epoch-1.toml")
    said = consortium.fails(*consortium.epoch("--plan", str(plan)))
    assert "must be the silos of the plan, silo-0, silo-1, silo-2" in said
    assert read_rosters(consortium.folder).current.epoch == 0
