"""A consortium that changes, with real processes over NVIDIA FLARE: a key is rotated in the middle of
a run, a fourth silo comes, and one leaves; no finished round is lost and every ledger goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from sumus.books import Ledger, Policy, RunFolder
from sumus.cli import main
from sumus.engines import FederationFolder, LocalProcesses, Operator
from sumus.parties import Agreement, approve, read_rosters, settle
from sumus.secagg import Identity
from support.notes import agreed
from support.running import PATIENCE

pytestmark = [pytest.mark.network, pytest.mark.long, pytest.mark.timeout(900)]

THREE = agreed(federation__silos=3, federation__rounds=6, federation__dropouts=0)


class Changing:
    """Server and silos as processes, and the people who sign and join."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "federation"
        self.processes = LocalProcesses(self.folder, THREE, data="digits")
        self.operator: Operator | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self.processes.federation.roster.names

    def start(self) -> Operator:
        self.operator = self.processes.start_all(seconds=180.0)
        return self.operator

    def stop(self) -> None:
        if self.operator is not None:
            self.operator.close()
            self.operator = None
        self.processes.close()

    def train(self, agreement: Agreement, rounds: int) -> RunFolder:
        """One job; the run folder as the operator gets it."""
        assert self.operator is not None
        outcome = self.operator.run(
            agreement,
            rounds=rounds,
            patience=PATIENCE,
            out=self.root / "runs",
            watch=lambda news: None,
        )
        assert outcome.run is not None, outcome.reason
        run = RunFolder.open(outcome.run)
        run.verify()
        return run

    def key(self, name: str) -> Path:
        """A new identity beside the silo's old one, if it has one."""
        place = self.root / f"new-{name}"
        assert main(["keys", "new", name, "--out", str(place)]) == 0
        return place

    def epoch(self, command: str, subject: str, *words: str) -> None:
        """Propose a change, have every silo of the roster sign it, and put it into effect."""
        number = self.processes.federation.roster.epoch + 1
        assert main(["federation", command, str(self.folder), subject]) == 0
        signatures = self.root / f"signatures-{number}"
        for name in self.names:
            rosters = "epochs.toml" if number > 1 else "roster.toml"
            signed = main(
                [
                    *("keys", "endorse", str(self.folder / f"epoch-{number}.toml")),
                    *("--identity", str(self.processes.vault(name) / "identity.key")),
                    *("--roster", str(self.folder / rosters), "--out", str(signatures)),
                ]
            )
            assert signed == 0
        made = main(
            ["federation", "epoch", str(self.folder), "--signatures", str(signatures), *words]
        )
        assert made == 0
        self.processes.federation = FederationFolder.open(self.folder)

    def join(self, name: str, key: Path | None = None, *plans: Agreement) -> None:
        """What `sumus join` writes: the silo follows the rosters of its kit."""
        vault = self.processes.vault(name)
        kept = vault / "identity.key" if key is None else key / f"{name}.key"
        first = self.processes.federation.rosters.first
        policy = f'roster_fingerprint = "{first.digest().hex()}"\n'
        settle(
            vault,
            identity=Identity.parse(kept.read_text()),
            roster=read_rosters(self.processes.federation.state(name)),
            data="digits",
            policy=Policy.from_toml(policy),
            policy_text=policy,
            ledgers=self.processes.state(name),
        )
        approve(vault, [each.plan for each in plans])

    def entries(self, name: str, agreement: Agreement) -> list[int]:
        """Rounds of a plan on a silo's ledger."""
        ledger = Ledger.of_dataset("digits", state=self.processes.state(name))
        mine = [each for each in ledger.entries() if each.plan_hash == agreement.plan.hash]
        return [entry.round for entry in mine]


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changing]:
    made = Changing(tmp_path_factory.mktemp("epochs"))
    yield made
    made.stop()


def test_a_key_is_rotated_a_silo_comes_and_one_leaves_without_a_lost_round(
    changing: Changing,
) -> None:
    changing.start()
    before = changing.train(THREE, 2)
    assert [entry.round for entry in before.rounds()] == [1, 2]
    changing.stop()

    # a rotated key: the same plan, the same run
    fresh = changing.key("silo-1")
    changing.epoch("rotate", str(fresh / "silo-1.pub"))
    for name in changing.names:
        changing.join(name, fresh if name == "silo-1" else None)
    changing.start()
    run = changing.train(THREE, 10)
    assert run.name == before.name
    assert run.summary is not None
    assert (run.summary["rounds"], run.summary["lost_rounds"]) == (6, 0)
    for entry, again in zip(before.rounds(), run.rounds(), strict=False):
        assert entry.round_id == again.round_id
    assert all(len(entry.survivors) == 3 for entry in run.rounds())
    for name in changing.names:
        assert changing.entries(name, THREE) == [1, 2, 3, 4, 5, 6]
    rosters = str(changing.folder / "epochs.toml")
    assert main(["audit", "evidence", str(run.path), "--roster", rosters]) == 0
    changing.stop()

    # a silo comes: a new plan goes on from the released model
    four = agreed(
        federation__silos=4,
        federation__rounds=2,
        federation__dropouts=1,
        training__start_from=run.summary["model_hash"],
    )
    fourth = changing.key("silo-3")
    changing.epoch("admit", str(fourth / "silo-3.pub"))
    for name in changing.names:
        if name == "silo-3":
            changing.processes.state(name).mkdir(parents=True, mode=0o700)
        changing.join(name, fourth if name == "silo-3" else None, four)
    changing.start()
    went_on = changing.train(four, 10)
    assert went_on.summary is not None
    assert (went_on.summary["rounds"], went_on.summary["lost_rounds"]) == (2, 0)
    assert went_on.start is not None
    assert (went_on.start.run, went_on.start.round) == (run.name, 6)
    assert all(len(entry.survivors) == 4 for entry in went_on.rounds())
    for name in changing.names:
        total = Ledger.of_dataset("digits", state=changing.processes.state(name)).total("record")
        assert changing.entries(name, four) == [1, 2]
        assert total.runs == (1 if name == "silo-3" else 2)
        assert total.epsilon == pytest.approx(2.0 * total.runs, rel=1e-3)
    changing.stop()

    # one leaves: its certificate is still good, and the server lets it in no longer
    left = changing.root / "left"
    (changing.folder / "kits" / "silo-0").rename(left)
    vault = changing.processes.vault("silo-0")
    changing.epoch("retire", "silo-0")
    assert changing.names == ("silo-1", "silo-2", "silo-3")
    left.rename(changing.folder / "kits" / "silo-0")
    assert vault == changing.processes.vault("silo-0")
    for party in ("server", "silo-0", "silo-1"):
        changing.processes.start(party)
    operator = changing.processes._engine.operator(
        changing.processes.federation.kit("admin"), first_contact_seconds=180.0
    )
    changing.operator = operator
    assert operator.wait_for_sites(1, seconds=120.0) == ["silo-1"]
    assert operator.wait_for_sites(2, seconds=20.0) == ["silo-1"]
    log = changing.processes.log("server").read_text()
    assert "refused a message" in log
    assert "silo-0" in log
