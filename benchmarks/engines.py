"""Seconds per round of the same plan in process, over NVIDIA FLARE and over Flower, split by stage.

    python benchmarks/engines.py                                  # all three, two at larger models: eight minutes on a quiet machine
    python benchmarks/engines.py --quick                          # in process and over NVIDIA FLARE, one model: one minute
    python benchmarks/engines.py --engines in-process,nvflare     # some: one minute
    python benchmarks/engines.py --vault                          # what a process of its own costs a silo

5 silos, 26,010 parameters (a network on the embedded digits), one local step, so that the engine's
share is visible. The first round is left out: it warms caches. All parties run on this machine: the
figures contain the contention of six processes for its cores. The last line is JSON.

--vault measures the same rounds over NVIDIA FLARE with every silo's party in its vault, as it is,
and in the engine's process, by a relay that opens the party itself; the two take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rows import Curve, Row, at_most, last_line
from sumus.books import Ledger, Policy, RoundEntry, RunFolder
from sumus.data import load_silo
from sumus.engines import LocalProcesses, train_across
from sumus.parties import (
    Agreement,
    InProcess,
    Patience,
    SecureSum,
    ServerParty,
    SiloParty,
    agree_on,
    approve,
    own_releases,
    settle,
    work_on,
)
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.secagg import SERVER_NAME, Identity, Roster

PLAN = """
[privacy]
epsilon = 4.0
delta = 1e-4
[federation]
silos = 5
rounds = {rounds}
dropouts = 1
[training]
algorithm = "single-step"
model = "mlp"
hidden = {hidden}
sampling_rate = 0.2
[data]
name = "digits"
[evaluation]
metrics = "none"
"""
HIDDEN = {26_010: [126, 130], 94_490: [230, 330], 969_510: [900, 1000]}
PARAMETERS = 26_010


def agreement(rounds: int, parameters: int) -> Agreement:
    plan = PLAN.format(rounds=rounds, hidden=HIDDEN[parameters])
    made = agree_on(TrainingPlan.from_toml(plan))
    assert made.plan.training.dimension == parameters, made.plan.training.dimension
    return made


def in_process(
    root: Path, rounds: int, parameters: int = PARAMETERS
) -> tuple[list[RoundEntry], float]:
    agreed, begin = agreement(rounds, parameters), time.perf_counter()
    names = [silo.name for silo in agreed.design.silos]
    identities = {name: Identity.generate(name, RandomSource()) for name in names}
    own = Identity.generate(SERVER_NAME, RandomSource())
    roster = Roster.of(own, identities.values())
    parties = {}
    for number, name in enumerate(roster.names):
        folder = root / name
        state = settle(
            folder,
            identity=identities[name],
            roster=roster,
            data="digits",
            policy=Policy(),
            policy_text="",
        )
        approve(folder, [agreed.plan])
        ledger = Ledger.of_dataset("digits", state=folder)
        parties[number] = SiloParty(
            state,
            work=work_on(load_silo),
            releases=partial(own_releases, ledger=ledger, policy=Policy()),
        )
    driver = InProcess({number: party.handle for number, party in parties.items()})
    summing = SecureSum(agreed, roster, driver, identity=own, patience=Patience())
    server = ServerParty(agreed, summing)
    server.greet()
    ready = time.perf_counter() - begin
    with RunFolder.create(agreed.plan, agreed.account, root / "runs", silos=roster.names) as run:
        records = list(server.train(run))
    driver.close()
    for party in parties.values():
        party.close()
    return records, ready


IN_THE_ENGINE = """
import importlib.abc, importlib.machinery, os, sys
from pathlib import Path


def change(module):
    parties = []

    def handle(self, message):
        if not parties:
            from sumus.parties import open_party

            silo = next(part for part in Path.cwd().parts[::-1] if part in VAULTS)
            parties.append(open_party(Path(VAULTS[silo])))
        return parties[0].handle(message)

    module.Relay.handle = handle


class Changer(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "sumus.engines.relay":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (load(module), change(module))
        return spec


sys.meta_path.insert(0, Changer())
"""


def without_vault(root: Path, processes: LocalProcesses) -> dict[str, str]:
    """The environment in which an engine's process opens the silo's party itself."""
    folder, names = root / "inside", processes.federation.roster.names
    folder.mkdir()
    vaults = {name: str(processes.vault(name)) for name in names}
    (folder / "sitecustomize.py").write_text(f"VAULTS = {vaults!r}\n{IN_THE_ENGINE}")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def across_processes(
    root: Path, rounds: int, parameters: int = PARAMETERS, *, engine: str, vault: bool = True
) -> tuple[list[RoundEntry], float]:
    agreed, begin = agreement(rounds, parameters), time.perf_counter()
    with LocalProcesses(root / "federation", agreed, data="digits", engine=engine) as processes:
        if not vault:
            processes.environment.update(without_vault(root, processes))
        operator = processes.start_all(seconds=180.0)
        ready = time.perf_counter() - begin
        try:
            path = train_across(operator, agreed, out=root / "runs", watch=lambda news: None)
        finally:
            operator.close()
    return RunFolder.open(path).rounds(), ready


ENGINES: dict[str, tuple[Callable[[Path, int, int], tuple[list[RoundEntry], float]], int]] = {
    "in-process": (in_process, 12),
    "nvflare": (partial(across_processes, engine="nvflare"), 12),
    "flower": (partial(across_processes, engine="flower"), 3),
}
GROWING = ("in-process", "nvflare")  # whose rounds are fast enough for several sizes


def measured(name: str, parameters: int = PARAMETERS) -> dict[str, Any]:
    """One engine's medians, and how busy the machine was when it began."""
    run, rounds = ENGINES[name]
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        records, ready = run(Path(folder), rounds, parameters)
    kept = records[1:]
    stages = {
        stage: round(median(record.seconds[stage] for record in kept), 4)
        for stage in kept[0].seconds
    }
    return {
        "seconds_per_round": round(median(sum(record.seconds.values()) for record in kept), 4),
        "stages": stages,
        "seconds_until_all_are_connected": round(ready, 1),
        "bytes_up_per_round": kept[-1].bytes_up,
        "bytes_down_per_round": kept[-1].bytes_down,
        "rounds": len(kept),
        "load_before": round(load, 1),
    }


def cost_of_the_vault(turns: int) -> dict[str, Any]:
    """Rounds with the party in its vault and in the engine's process, by turns in one run."""
    seconds: dict[str, list[float]] = {"engine's process": [], "vault": []}
    for turn in range(turns):
        for where in sorted(seconds, reverse=bool(turn % 2)):
            with tempfile.TemporaryDirectory() as folder:
                records, _ = across_processes(
                    Path(folder), 12, engine="nvflare", vault=where == "vault"
                )
            seconds[where] += [sum(record.seconds.values()) for record in records[2:]]
            print(
                f"party in its {where:<17} {median(seconds[where]):.3f} s a round (median of "
                f"{len(seconds[where])} so far, load {os.getloadavg()[0]:.1f})",
                flush=True,
            )
    medians = {where: round(median(each), 4) for where, each in seconds.items()}
    share = medians["vault"] / medians["engine's process"] - 1.0
    print(f"the vault costs {share:+.1%} of a round")
    return {"seconds_per_round": medians, "vault_costs": round(share, 4)}


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--engines", default=",".join(ENGINES), help="which, separated by commas")
    options.add_argument("--vault", action="store_true", help="what the vault costs, and no more")
    options.add_argument("--turns", type=int, default=3, help="of each, with --vault")
    options.add_argument("--quick", action="store_true", help="two engines, one model")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as state:  # ledgers of made-up records are nobody's
        os.environ["SUMUS_STATE"] = state
        if chosen.vault:
            print(json.dumps(cost_of_the_vault(chosen.turns)))
        else:
            compare(chosen)


def compare(chosen: argparse.Namespace) -> None:
    """The engines side by side, and the last line."""
    found: dict[str, Any] = {}
    for name in GROWING if chosen.quick else chosen.engines.split(","):
        found[name] = line = measured(name)
        ready, load = line["seconds_until_all_are_connected"], line["load_before"]
        print(
            f"{name:<11} {line['seconds_per_round']:.3f} s a round (median of {line['rounds']}; "
            f"connected after {ready} s, load {load})"
        )
        for stage, seconds in line["stages"].items():
            print(f"            {seconds:.3f} s {stage}")
    curves = [] if chosen.quick else [curve(name, found[name]) for name in GROWING if name in found]
    print(last_line(figures(found), curves, **found))


def curve(name: str, small: dict[str, Any]) -> Curve:
    """Seconds of a round at every size of a model."""
    seconds = [
        (small if parameters == PARAMETERS else measured(name, parameters))["seconds_per_round"]
        for parameters in HIDDEN
    ]
    return Curve(name, "parameters", "s a round", tuple(map(float, HIDDEN)), tuple(seconds))


def figures(found: dict[str, Any]) -> list[Row]:
    """What NVIDIA FLARE adds."""
    if "nvflare" not in found:
        return []
    line = found["nvflare"]
    idle = line["stages"]["protocol"]
    rows = [at_most("exchanges over NVIDIA FLARE that compute nothing", idle, 1.0, "s a round")]
    if "in-process" in found:
        over = line["seconds_per_round"] / found["in-process"]["seconds_per_round"]
        name = "a round over NVIDIA FLARE over one in process, 5 silos"
        rows.append(at_most(name, over, 2.0, "×"))
    return rows


if __name__ == "__main__":
    main()
