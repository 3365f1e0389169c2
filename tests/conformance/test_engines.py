"""Every engine is tested by being there: a folder below `engines/` offers what `Engine` says."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sumus.books import RunFolder
from sumus.cli import main
from sumus.engines import (
    DEFAULT_ENGINE,
    ENGINES,
    Address,
    Engine,
    FederationFolder,
    Kit,
    Operator,
    change_roster,
    make_federation,
)
from sumus.errors import EngineError
from sumus.parties import SecureSum, ServerParty, read_rosters
from sumus.predicting import Model
from sumus.randomness import RandomSource
from sumus.secagg import Endorsement, Identity, successor
from support.delivering import DeliveringFederation, small_plan
from support.local_federation import QUICK, federation_of_folders

HERE = Address("localhost", 8002)
SILOS = ("Bergen", "Graz")
SEED = 9


@pytest.fixture(params=sorted(ENGINES))
def name(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(ENGINES[request.param].PACKAGE)
    return str(request.param)


@pytest.fixture
def identities() -> dict[str, Identity]:
    return {silo: Identity.generate(silo, RandomSource()) for silo in SILOS}


@pytest.fixture
def federation(name: str, identities: dict[str, Identity], tmp_path: Path) -> FederationFolder:
    return make_federation(
        tmp_path / "federation",
        engine=name,
        silos=SILOS,
        address=HERE,
        public_keys=[identity.public_text() for identity in identities.values()],
        agreement=None,
    )


def functions(protocol: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(function)
        for name, function in vars(protocol).items()
        if inspect.isfunction(function) and not name.startswith("_")
    }


def test_the_default_is_among_them() -> None:
    assert DEFAULT_ENGINE in ENGINES


def test_it_offers_every_function_of_an_engine_with_its_parameters(name: str) -> None:
    engine = ENGINES[name]
    offered = functions(Engine)
    assert set(offered) == {
        "make_kits",
        "add_kit",
        "drop_kit",
        "complete",
        "renew",
        "serve",
        "join",
        "present",
        "operator",
    }
    for function, signature in offered.items():
        wanted = list(signature.parameters.values())[1:]
        assert list(inspect.signature(getattr(engine, function)).parameters.values()) == wanted
    assert engine.CONNECTED
    assert inspect.getdoc(engine)


def test_its_package_is_imported_on_use_only(name: str) -> None:
    code = (
        f"import sys\nfrom sumus.engines import ENGINES\nengine = ENGINES[{name!r}]\n"
        "sys.exit(any(each.PACKAGE in sys.modules for each in ENGINES.values()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.deep
def test_the_servers_key_is_in_its_own_kit_and_in_no_other(federation: FederationFolder) -> None:
    kept = [path for path in federation.folder.rglob("*") if path.name == "server.key"]
    own = federation.kit("server") / "sumus" / "server.key"
    assert own in kept
    assert own.stat().st_mode & 0o777 == 0o600
    federation.roster.require_server(Identity.parse(own.read_text()))
    secret = own.read_bytes().split()[-1]
    for path in federation.folder.rglob("*"):
        assert path == own or not path.is_file() or secret not in path.read_bytes(), path


@pytest.mark.deep
def test_a_servers_key_that_its_operator_made_stays_with_the_operator(
    name: str, identities: dict[str, Identity], tmp_path: Path
) -> None:
    own = Identity.generate("server", RandomSource())
    federation = make_federation(
        tmp_path / "own",
        engine=name,
        silos=SILOS,
        address=HERE,
        public_keys=[each.public_text() for each in (*identities.values(), own)],
        agreement=None,
    )
    assert federation.roster.server_key == own.public_key
    assert not (federation.kit("server") / "sumus" / "server.key").exists()


@pytest.mark.deep
def test_kits_are_private_say_whose_they_are_and_hold_no_secret_of_a_silo(
    federation: FederationFolder, identities: dict[str, Identity], name: str
) -> None:
    secrets = [identity.secret_text().split()[-1].encode() for identity in identities.values()]
    assert all(len(secret) > 30 for secret in secrets)
    for party in federation.parties:
        kind = party if party in ("server", "admin") else "silo"
        kit = Kit.open(federation.kit(party), kind)
        assert (kit.engine_name, kit.party, kit.address) == (name, party, HERE)
        assert kit.path.stat().st_mode & 0o777 == 0o700
        assert (kit.state / "roster.toml").read_text() == federation.roster.to_text()
    for file in (path for path in federation.folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        assert not any(secret in content for secret in secrets), file


@pytest.mark.deep
def test_a_silo_that_comes_gets_a_kit_like_the_others_and_one_that_leaves_loses_it(
    federation: FederationFolder, identities: dict[str, Identity], name: str
) -> None:
    fresh = Identity.generate("newcomer", RandomSource())
    current, gone = federation.roster, SILOS[-1]
    after = successor(current, admitted={"newcomer": fresh.public_key}, retired=[gone])
    signed = [Endorsement.sign(identity, after) for identity in identities.values()]
    rosters = federation.rosters.extended(after, signed)
    changed = change_roster(federation, rosters, agreement=None, requests={})
    kit = Kit.open(changed.kit("newcomer"), "silo")
    assert (kit.engine_name, kit.party, kit.address) == (name, "newcomer", HERE)
    assert kit.path.stat().st_mode & 0o777 == 0o700
    left, others = changed.kit(gone), changed.kit(SILOS[0])

    def brings(folder: Path) -> set[str]:
        files = (path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)) for path in files}

    assert brings(kit.path) == brings(others)
    assert not left.exists()
    for party in changed.parties:
        assert read_rosters(changed.state(party)).current == after
    assert ENGINES[name].join(kit.path)
    served = [path.name for path in changed.kit("server").rglob("*")]
    assert not any(gone in file for file in served)


@pytest.mark.deep
def test_kits_are_never_made_over_others(federation: FederationFolder, name: str) -> None:
    before = sorted(federation.folder.rglob("*"))
    with pytest.raises(EngineError, match="exists already"):
        make_federation(
            federation.folder,
            engine=name,
            silos=SILOS,
            address=HERE,
            public_keys=None,
            agreement=None,
        )
    assert sorted(federation.folder.rglob("*")) == before


def test_its_processes_are_commands_that_name_their_kit(
    federation: FederationFolder, name: str
) -> None:
    engine = ENGINES[name]
    for party, command in (
        ("server", engine.serve(federation.kit("server"))),
        *((silo, engine.join(federation.kit(silo))) for silo in SILOS),
    ):
        assert isinstance(command, list)
        assert all(isinstance(word, str) for word in command)
        assert Path(command[0]).is_file()
        assert str(federation.kit(party).resolve()) in command


def test_its_operator_submits_follows_and_fetches(federation: FederationFolder, name: str) -> None:
    operator = ENGINES[name].operator(federation.kit("admin"), first_contact_seconds=1.0)
    for function, signature in functions(Operator).items():
        wanted = list(signature.parameters.values())[1:]
        assert list(inspect.signature(getattr(operator, function)).parameters.values()) == wanted
    assert set(operator.PATIENCE) == {"set_up_seconds", "update_seconds", "stage_seconds"}
    operator.close()


def test_a_kit_of_somebody_else_is_refused(federation: FederationFolder) -> None:
    for party, kind in (("server", "silo"), ("Graz", "server"), ("Graz", "admin")):
        with pytest.raises(EngineError, match=f"is the kit of {party}"):
            Kit.open(federation.kit(party), kind)


@pytest.mark.deep
def test_its_driver_gives_the_sums_of_the_in_process_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", str(SEED))
    carrier = importlib.import_module(f"support.carriers.{name}")
    models = []
    for engine in (None, carrier):
        federation = federation_of_folders(tmp_path / str(engine is None), seed=SEED)
        if engine is None:
            for number in range(3):
                federation.start(number)
        driver = federation.driver if engine is None else engine.driver(federation)
        agreement = federation.agreement
        summing = SecureSum(
            agreement, federation.roster, driver, identity=federation.identity, patience=QUICK
        )
        server = ServerParty(agreement, summing)
        server.greet()
        with federation.run_folder(void="public seed") as run:
            records = list(server.train(run))
        driver.close()
        assert [record.survivors for record in records] == [federation.roster.names] * 2
        models.append(server.server.parameters)
    assert np.array_equal(*models)


@pytest.mark.deep
def test_its_driver_hands_a_run_to_every_silos_vault(name: str, tmp_path: Path) -> None:
    """Through relay and socket, in as many pieces as a run of this size takes and more."""
    carrier = importlib.import_module(f"support.carriers.{name}")
    federation = DeliveringFederation(tmp_path, small_plan())
    driver = carrier.driver(federation.local)
    state = federation.run(driver=driver)
    assert state["phase"] == "finished"
    assert state["delivered"] == {
        "received": list(federation.roster.names),
        "missing": {},
        "error": None,
    }
    operators = federation.server_run
    for silo in federation.roster.names:
        place = federation.shelf(silo).held(federation.agreement.plan.hash)
        assert place is not None
        run = RunFolder.open(place)
        assert run.verify() == operators.head
        assert run.released == operators.released
        assert Model.of_run(place).facts == Model.of_run(operators.path).facts
    federation.close()


@pytest.mark.parametrize("command", [["init", "f", "--silos", "a,b"], ["train", "--local", "3"]])
def test_an_unknown_engine_is_one_line_with_the_closest(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["federation", *command, "--engine", "nvflrae"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == ("error: --engine must be an engine, got 'nvflrae'. Did you mean nvflare?")
    assert list(tmp_path.iterdir()) == []
