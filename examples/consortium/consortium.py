"""Five hospitals and a server as separate processes with mutual TLS, each hospital with its own
file; one is killed in the middle.

    python examples/consortium/consortium.py                 # over loopback
    python examples/consortium/consortium.py --namespaces    # needs root

With --namespaces every hospital is in a network namespace of its own.
Ends with a model, a report and five ledgers in ./consortium-run (choose another folder with --out).
The records are synthetic.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sumus.books import Ledger, RunFolder
from sumus.data import write_patients
from sumus.engines import LocalProcesses, train_across
from sumus.parties import agree_on
from sumus.plan import TrainingPlan

HERE = Path(__file__).parent
NETWORK = "10.213.77"
BRIDGE = "sumusbr0"


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--namespaces", action="store_true")
    options.add_argument("--out", type=Path, default=Path("consortium-run"))
    arguments = options.parse_args()
    if arguments.out.exists():
        print(f"{arguments.out} exists. Move it away, or choose another folder with --out.")
        return 2
    agreement = agree_on(TrainingPlan.load(HERE / "plan.toml"))
    print(agreement.account)
    hospitals = [silo.name for silo in agreement.design.silos]
    if arguments.namespaces and (reason := namespaces_missing()):
        print(f"skipped: network namespaces cannot be made here ({reason})")
        return 0
    arguments.out.mkdir()
    tables = write_tables(arguments.out / "records", hospitals)
    with network(hospitals) if arguments.namespaces else loopback() as (host, prefixes):
        processes = LocalProcesses(
            arguments.out / "federation",
            agreement,
            data=tables,
            policies=dict.fromkeys(hospitals, (HERE / "policy.toml").read_text()),
            host=host,
            prefixes=prefixes,
        )
        with processes:
            path = train(processes, agreement, arguments.out, victim=hospitals[2])
    show(path, processes, hospitals)
    return 0


def write_tables(folder: Path, hospitals: list[str]) -> dict[str, str]:
    """A file per hospital, as if each had exported its own."""
    folder.mkdir()
    everybody = write_patients(folder / "everybody.csv", records=5000)
    with everybody.open(newline="") as file:
        rows = list(csv.reader(file))
    for hospital in hospitals:
        with (folder / f"{hospital}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([rows[0], *(row for row in rows[1:] if row[0] == hospital)])
    everybody.unlink()
    return {hospital: str((folder / f"{hospital}.csv").resolve()) for hospital in hospitals}


def train(processes: LocalProcesses, agreement: Any, out: Path, *, victim: str) -> Path:
    """Train, and pull the plug of one hospital after the third round."""
    operator = processes.start_all()
    print("server and hospitals are connected")

    def watch(news: Mapping[str, Any]) -> None:
        for record in news["rounds"]:
            missing = f", without {', '.join(record['dropped'])}" if record["dropped"] else ""
            accuracy = record["metrics"].get("accuracy")
            measured = "" if accuracy is None else f"accuracy {accuracy:.1%}  "
            print(
                f"round {record['round']:>2}  {measured}ε ≤ {record['epsilon_spent']:.3f}{missing}"
            )
            if record["round"] == 3 and victim in processes.processes:
                processes.kill(victim)
                print(f"killed {victim}")

    patience = {"set_up_seconds": 120.0, "update_seconds": 60.0, "stage_seconds": 20.0}
    try:
        return train_across(operator, agreement, out=out / "runs", watch=watch, patience=patience)
    finally:
        operator.close()


def show(path: Path, processes: LocalProcesses, hospitals: list[str]) -> None:
    """What is left: a model, a report, five ledgers."""
    run = RunFolder.open(path)
    run.verify()
    summary = run.summary or {}
    print(
        f"model   {path / 'model.pt'}  accuracy {summary['accuracy']:.1%}, {summary['rounds']} "
        f"rounds, {summary['lost_rounds']} lost"
    )
    try:
        from sumus.report import write_report

        write_report([run], path / "report.html")
        print(f"report  {path / 'report.html'}")
    except ImportError:
        print("report  needs: pip install 'sumus[report]'")
    for hospital in hospitals:
        ledger = Ledger.of_dataset(hospital, state=processes.state(hospital))
        total = ledger.total("record")
        print(
            f"ledger  {ledger.path}  {len(ledger.entries())} releases, ε ≤ {total.epsilon:.3f} at "
            f"δ = {total.delta:g}"
        )


# -- networks


@contextmanager
def loopback() -> Iterator[tuple[str, dict[str, list[str]]]]:
    yield "localhost", {}


def namespaces_missing() -> str | None:
    """Why namespaces cannot be made, if they cannot."""
    if shutil.which("ip") is None:
        return "the command ip is not installed"
    probe = subprocess.run(
        ["ip", "netns", "add", "sumus-probe"], capture_output=True, text=True, check=False
    )
    if probe.returncode:
        return probe.stderr.strip() or "not permitted"
    subprocess.run(["ip", "netns", "del", "sumus-probe"], check=False)
    return None


@contextmanager
def network(hospitals: list[str]) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """A bridge for the server and a namespace per hospital that sees nothing but the bridge."""
    spaces = {hospital: f"sumus-{number}" for number, hospital in enumerate(hospitals, start=2)}
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for number, space in enumerate(spaces.values(), start=2):
            ip("netns", "add", space)
            ip(
                "link",
                "add",
                f"sumus{number}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                space,
            )
            ip("link", "set", f"sumus{number}", "master", BRIDGE, "up")
            for command in (
                ("addr", "add", f"{NETWORK}.{number}/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
                ("link", "set", "lo", "up"),
            ):
                ip("-n", space, *command)
        yield (
            f"{NETWORK}.1",
            {hospital: ["ip", "netns", "exec", space] for hospital, space in spaces.items()},
        )
    finally:
        for space in spaces.values():
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


if __name__ == "__main__":
    sys.exit(main())
