"""Kits, jobs and the commands around them, without starting an engine."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.apis.job_launcher_spec import JobProcessArgs
from nvflare.apis.workspace import Workspace
from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer
from nvflare.fuel.utils.class_utils import instantiate_class

import sumus
from sumus.cli import main
from sumus.data import load, write_patients
from sumus.engines import Address, FederationFolder, make_federation
from sumus.engines.nvflare.jobs import write_job
from sumus.engines.nvflare.kits import (
    SERVER_CLASS,
    SILO_CLASS,
    client_command,
    server_command,
)
from sumus.engines.nvflare.launcher import GatedServerLauncher, RestartingLauncher
from sumus.engines.nvflare.orphans import PARENT
from sumus.errors import DataError, PlanError
from sumus.parties import SiloState, Site, agree_on
from sumus.parties.agreement import declared_facts
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.secagg import Identity

CONSORTIUM = Path(__file__).parents[2] / "examples" / "consortium" / "plan.toml"
DIGITS = (
    "[privacy]\nepsilon = 2.0\ndelta = 1e-4\n[federation]\nsilos = 3\nrounds = 2\nlocal_steps = "
    '20\n[data]\nname = "digits"\n'
)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> FederationFolder:
    root = tmp_path_factory.mktemp("kits")
    (root / "plan.toml").write_text(DIGITS)
    folder = root / "federation"
    words = ["--silos", "silo-0,silo-1,silo-2", "--plan", str(root / "plan.toml"), "--json"]
    with pytest.MonkeyPatch.context() as patch:
        # once as people do: the engine makes kits in a process of its own
        patch.setattr("sumus.engines.nvflare.kits.subprocess", subprocess)
        assert main(["federation", "init", str(folder), *words]) == 0
    return FederationFolder.open(folder)


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def test_a_silos_kit_allows_our_classes_and_nothing_else(federation: FederationFolder) -> None:
    for name in federation.roster.names:
        resources = read(federation.kit(name) / "local" / "resources.json")
        assert resources["class_allow_list"] == ["sumus.engines.nvflare.executor.SiloExecutor"]
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert resources["allow_log_streaming"] is False
        components = {each["id"]: each["path"] for each in resources["components"]}
        assert "site_log_streamer" not in components
        assert components["process_launcher"] == "sumus.engines.nvflare.launcher.RestartingLauncher"
        rights = read(federation.kit(name) / "local" / "authorization.json")["permissions"]
        assert set(rights) == {"project_admin"}
        assert {
            rights["project_admin"][right]
            for right in ("byoc", "shell_commands", "operate", "clone_job")
        } == {"none"}
        assert "app_command" not in rights["project_admin"]


def names_below_sumus() -> Iterator[str]:
    """Everything that a path of a job could name: what the modules of the package define or import,
    private or not.
    """
    package = Path(sumus.__file__).parent
    for file in sorted(package.rglob("*.py")):
        module = ".".join(["sumus", *file.relative_to(package).with_suffix("").parts]).removesuffix(
            ".__init__"
        )
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                yield f"{module}.{node.name}"
            elif isinstance(node, ast.Import | ast.ImportFrom):
                yield from (
                    f"{module}.{(alias.asname or alias.name).partition('.')[0]}"
                    for alias in node.names
                )


def allowed_of(kit: Path, names: Iterable[str]) -> set[str]:
    """Which classes of a job the engine's own authorizer lets in, by the kit's files."""
    authorizer, workspace, let_in = ComponentPathAuthorizer(), Workspace(str(kit), kit.name), set()
    for name in names:
        with contextlib.suppress(UnsafeComponentError):
            authorizer.authorize_component_config({"path": name}, workspace=workspace)
            let_in.add(name)
    return let_in


@pytest.mark.parametrize("party", ["silo-0", "server"])
def test_a_job_can_name_one_class_of_ours_and_nothing_else_below_sumus(
    federation: FederationFolder, tmp_path: Path, party: str
) -> None:
    kit, names = federation.kit(party), set(names_below_sumus())
    ours = SERVER_CLASS if party == "server" else SILO_CLASS
    gadgets = {
        "sumus.engines.processes.OwnedProcess",
        "sumus.data.locations.find",
        "sumus.cli.main",
        "sumus.engines.processes.Path",
    }
    assert gadgets | {SILO_CLASS, SERVER_CLASS} <= names
    assert allowed_of(kit, names | {"subprocess.Popen", f"{ours}2", f" {ours}", f"x.{ours}"}) == {
        ours
    }
    old = tmp_path / party  # the control: what a prefix lets in
    shutil.copytree(kit, old)
    resources = read(old / "local" / "resources.json") | {"class_allow_list": ["sumus."]}
    (old / "local" / "resources.json").write_text(json.dumps(resources))
    assert allowed_of(old, names) == names


@pytest.mark.parametrize("allowed", [SILO_CLASS, SERVER_CLASS])
def test_what_the_engine_takes_for_below_our_class_is_nothing(allowed: str) -> None:
    """Its list opens whatever begins with an entry and a dot; no module can have such a name."""
    for below in ("__init__", "execute", "logger", "__class__.__base__", "os.system"):
        with pytest.raises(TypeError, match="is not a package"):
            instantiate_class(f"{allowed}.{below}", {})


@pytest.mark.parametrize("party", ["silo-0", "server"])
def test_a_partys_processes_speak_to_each_other_with_mutual_tls(
    federation: FederationFolder, party: str
) -> None:
    internal = read(federation.kit(party) / "local" / "comm_config.json")["internal"]
    assert internal == {
        "scheme": "tcp",
        "resources": {"host": "localhost", "connection_security": "mtls"},
    }


def test_a_party_is_started_with_the_gate_before_it(
    federation: FederationFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PARENT, "")
    for command, program in (
        (client_command(federation.kit("silo-0")), "silo"),
        (server_command(federation.kit("server")), "server"),
    ):
        assert command[command.index("-m") + 1 :][:2] == ["sumus.engines.nvflare.start", program]
    context = FLContext()
    context.set_prop(
        FLContextKey.JOB_PROCESS_ARGS,
        {JobProcessArgs.EXE_MODULE: ("-m", "stock"), JobProcessArgs.JOB_ID: ("-n", "1")},
    )
    words = RestartingLauncher().get_command({}, context).split()
    assert words[1:] == ["-m", "sumus.engines.nvflare.start", "silo-job", "-n", "1"]
    assert os.environ[PARENT] == str(os.getpid())  # with whom the job's process ends
    words = GatedServerLauncher().get_command({}, context).split()
    assert words[1:] == ["-m", "sumus.engines.nvflare.start", "server-job", "-n", "1"]
    components = read(federation.kit("server") / "local" / "resources.json")["components"]
    launchers = {each["path"] for each in components if each["id"] == "process_launcher"}
    assert launchers == {"sumus.engines.nvflare.launcher.GatedServerLauncher"}


def test_the_server_keeps_nothing_in_a_folder_for_temporary_files(
    federation: FederationFolder,
) -> None:
    kit = federation.kit("server")
    resources = read(kit / "local" / "resources.json")
    stored = [resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"]]
    stored += [
        each["args"]["uri_root"] for each in resources["components"] if each["id"] == "job_manager"
    ]
    assert len(stored) == 2
    assert all(Path(place).is_relative_to(kit.resolve()) for place in stored)
    assert "log_receiver" not in {each["id"] for each in resources["components"]}


def test_secrets_are_readable_by_their_owner_only(federation: FederationFolder) -> None:
    for party in ("server", "admin", *federation.roster.names):
        assert federation.kit(party).stat().st_mode & 0o777 == 0o700
    assert (federation.folder / "authority").stat().st_mode & 0o077 == 0
    for name in federation.roster.names:
        assert (federation.state(name) / "identity.key").stat().st_mode & 0o777 == 0o600


def test_a_job_is_three_files_of_json_that_name_our_classes(tmp_path: Path) -> None:
    agreement = agree_on(TrainingPlan.from_toml(DIGITS))
    job = write_job(tmp_path / "job", agreement, rounds=2, patience={})
    files = sorted(str(path.relative_to(job)) for path in job.rglob("*") if path.is_file())
    assert files == [
        "app/config/config_fed_client.json",
        "app/config/config_fed_server.json",
        "meta.json",
    ]
    client = read(job / "app" / "config" / "config_fed_client.json")
    assert client["executors"][0]["executor"] == {
        "path": "sumus.engines.nvflare.executor.SiloExecutor",
        "args": {},
    }


@pytest.mark.parametrize("name", ["", "a.b", "server", "admin", "a b", "../x", "-x"])
def test_names_that_an_engine_or_a_path_could_misread_are_refused(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(DataError, match="silo name"):
        make_federation(
            tmp_path / "federation",
            engine="nvflare",
            silos=[name],
            address=Address("localhost", 8002),
            public_keys=None,
            agreement=None,
        )
    assert not (tmp_path / "federation").exists()


@pytest.mark.parametrize(
    "text", ["localhost", "host:", ":80", "host:99999", "ho st:80", "host:80;rm"]
)
def test_an_address_is_host_and_port(text: str) -> None:
    with pytest.raises(DataError, match="host:port"):
        Address.parse(text)


# -- a silo joins


def join(federation: FederationFolder, policy: str, *options: str, capsys) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "policy.toml"
        named = f'roster_fingerprint = "{federation.roster.digest().hex()}"\n'
        rules.write_text(named + policy)
        kit = str(federation.kit("silo-0"))
        code = main(["join", kit, "--data", "digits", "--policy", str(rules), "--check", *options])
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def test_a_plan_that_came_with_the_kit_needs_the_silos_own_yes(
    federation: FederationFolder, capsys
) -> None:
    code, shown = join(federation, "", capsys=capsys)
    assert code == 3
    assert "allowed_plan_hashes" in shown
    plan = TrainingPlan.load(federation.folder / "plan.toml")
    assert join(federation, f'allowed_plan_hashes = ["{plan.hash}"]', capsys=capsys)[0] == 0
    code, shown = join(
        federation, "", "--plan", str(federation.folder / "plan.toml"), capsys=capsys
    )
    assert code == 0
    assert "ready to join" in shown
    assert "proved (convex-pass)" in shown


def test_a_check_agrees_to_nothing(federation: FederationFolder, capsys) -> None:
    """A silo that runs already reads its approved plans from the disk: a check beside it must not
    add one.
    """
    state = federation.state("silo-0")
    before = sorted(state.rglob("*"))
    assert (
        join(federation, "", "--plan", str(federation.folder / "plan.toml"), capsys=capsys)[0] == 0
    )
    assert sorted(state.rglob("*")) == before
    assert not list(SiloState(state).plans())


def test_an_identity_of_somebody_else_is_noticed_before_anything_starts(
    federation: FederationFolder, tmp_path: Path, capsys
) -> None:
    plan = ("--plan", str(federation.folder / "plan.toml"))
    code, shown = join(
        federation,
        "",
        "--identity",
        str(federation.state("silo-1") / "identity.key"),
        *plan,
        capsys=capsys,
    )
    assert code == 2
    assert "the kit is silo-0's, the identity silo-1's" in shown
    (tmp_path / "new.key").write_text(Identity.generate("silo-0", RandomSource()).secret_text())
    code, shown = join(
        federation, "", "--identity", str(tmp_path / "new.key"), *plan, capsys=capsys
    )
    assert code != 0
    assert "the roster has another key for silo 'silo-0'" in shown


def test_joining_checks_the_policy_before_anything_starts(
    federation: FederationFolder, capsys
) -> None:
    code, shown = join(
        federation,
        "max_epsilon = 1.0",
        "--plan",
        str(federation.folder / "plan.toml"),
        capsys=capsys,
    )
    assert code == 3
    assert "max_epsilon = 1.0" in shown


# -- facts without records


def test_declared_facts_are_those_of_the_records(tmp_path: Path) -> None:
    plan = TrainingPlan.load(CONSORTIUM)
    table = write_patients(tmp_path / "patients.csv", records=600)
    rows = table.read_text().splitlines()
    table.write_text("\n".join(row for row in rows if not row.startswith("Toledo")) + "\n")
    loaded, declared = load(plan.replace("data", path=str(table))).facts(), declared_facts(plan)
    assert (loaded.shape, loaded.labels, loaded.silo_names) == (
        declared.shape,
        declared.labels,
        declared.silo_names,
    )


@pytest.mark.parametrize(
    "key", ["data.columns", "data.records_per_silo", "data.categories", "data.bounds"]
)
def test_a_plan_that_needs_records_to_be_understood_is_refused(key: str) -> None:
    with pytest.raises(PlanError, match="across machines"):
        declared_facts(TrainingPlan.load(CONSORTIUM).with_overrides({key: "none"}))


def test_a_silo_opens_its_own_file_and_never_the_plans(tmp_path: Path) -> None:
    plan = TrainingPlan.load(CONSORTIUM).replace("data", path="/etc/passwd")
    table = write_patients(tmp_path / "own.csv", records=400)
    rows = table.read_text().splitlines()
    table.write_text("\n".join([rows[0], *(row for row in rows if row.startswith("Graz"))]) + "\n")
    found = Site(data=str(table)).load(plan, "Graz")
    assert [silo.name for silo in found.silos] == ["Graz"]
    with pytest.raises(DataError, match="joined with"):
        Site(data="digits").load(plan, "Graz")
