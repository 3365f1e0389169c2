"""Values: what a plan promises, what a seeded run leaves behind, what the protocol sends."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import sumus
from goldens import surfaces
from goldens.cases import BASES, CASES, ROOT, Case, write_table
from goldens.surfaces import command, sets

VALUES = Path(__file__).resolve().parent / "values.json"
SEED = 20250311
_TIMES_AND_PATHS = {"seconds", "run", "time", "previous", "plan_file", "started", "finished"}
_PROCESSOR = Path("/proc/cpuinfo")
_DECIDING = ("vendor_id", "cpu family", "model", "model name", "flags", "CPU part", "Features")
_SETTINGS = (  # by which kernels are chosen
    "ATEN_CPU_CAPABILITY",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NUMBA_CPU_FEATURES",
    "NUMBA_CPU_NAME",
    "NUMBA_OPT",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
)
_PACKAGES = (
    "numpy",
    "scipy",
    "torch",
    "numba",
    "llvmlite",
    "dp-accounting",
    "scikit-learn",
    "cryptography",
)


def stored_values(path: Path = VALUES) -> dict[str, Any]:
    """The file of values."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def fingerprint() -> dict[str, str]:
    """What the last bit of a float depends on: the processor and the packages that compute.

    The number of torch's threads is not among it: `make` lets torch have one.
    """
    import torch

    lines = _PROCESSOR.read_text().splitlines() if _PROCESSOR.exists() else [platform.processor()]
    kinds = sorted({line for line in lines if line.partition(":")[0].strip() in _DECIDING})
    capability = torch.backends.cpu.get_cpu_capability()
    numpy_simd = " ".join(np.show_config(mode="dicts")["SIMD Extensions"].get("found", ()))
    settings = [f"{name}={os.environ[name]}" for name in _SETTINGS if name in os.environ]
    told = "\n".join([platform.machine(), capability, numpy_simd, *kinds, *settings])
    return {
        "processor": hashlib.sha256(told.encode()).hexdigest()[:16],
        "python": ".".join(platform.python_version_tuple()[:2]),
        **{name: version(name) for name in _PACKAGES},
    }


def all_entries(
    *, threads: int = 1, big: bool = True
) -> dict[str, Callable[[Path], dict[str, Any]]]:
    """Every entry by its name; each is made in an empty folder.

    Args:
        threads: silos of a run that compute at the same time, which changes no value.
        big: also train on data sets that are not embedded, where they are on this machine.
    """
    entries: dict[str, Callable[[Path], dict[str, Any]]] = {}
    for case in CASES:
        entries[case.name] = lambda folder, case=case: of_case(
            case, folder, threads=threads, big=big
        )  # type: ignore[misc]
    entries |= {
        "embedded": embedded,
        "ledger": lambda folder: ledger(folder, "convex", "federation.rounds=2"),
        "ledger-secure-metrics": lambda folder: ledger(
            folder,
            "steps",
            "federation.rounds=3",
            "evaluation.metrics=secure",
            "evaluation.every=2",
        ),
        "ledger-split-noise": lambda folder: ledger(
            folder, "steps", "federation.rounds=2", "training.algorithm=split-noise"
        ),
        "ledger-poisson": lambda folder: ledger(
            folder,
            "steps",
            "federation.rounds=2",
            "federation.silos=8",
            "federation.selection=poisson",
            "federation.selection_rate=0.9",
        ),
        "ledger-silo": lambda folder: ledger(folder, "silos", "federation.rounds=2"),
        "ledger-fedavg": lambda folder: ledger(
            folder, "steps", "federation.rounds=2", "training.algorithm=fedavg"
        ),
        "calculator": calculator,
        "protocol": protocol,
        "protocol-removable": lambda folder: _transcript(
            seed=2,
            silos=7,
            length=130,
            dropouts=2,
            colluding=1,
            removable=2,
            modulus_bits=37,
            absent=frozenset({3}),
        ),
        "protocol-sparse": lambda folder: _transcript(
            seed=3,
            silos=160,
            length=9,
            dropouts=10,
            colluding=5,
            graph="sparse",
            absent=frozenset({0, 77}),
        ),
        "wire": lambda folder: {
            name: message.hex() for name, message in surfaces.wire_messages().items()
        },
    }
    for name in OWN:
        entries[name] = lambda folder, name=name: own(name, folder)  # type: ignore[misc]
    return entries


QUICK = {case.name for case in CASES if case.quick} | {
    "embedded",
    "ledger-poisson",
    "ledger-secure-metrics",
    "protocol",
    "protocol-removable",
    "wire",
    "calculator",
    "own-layer-norm",
}
"""The default selection of the test: every algorithm, every mechanism, every kind of entry."""

NEEDS = {case.name: case.needs for case in CASES if case.needs is not None}
"""Entries whose run needs a data set that is not embedded."""


def of_case(case: Case, folder: Path, *, threads: int, big: bool) -> dict[str, Any]:
    """Plan, account and run of one plan."""
    path = plan_file(case.base, folder)
    options = sets(case.changes)
    entry: dict[str, Any] = {"plan_hash": surfaces.own_hash(path, case.changes)}
    if case.needs is not None:
        entry["run needs"] = case.needs
    with surfaces.old_names(), surfaces.state_folder(folder / "state"):
        entry |= promises(path, options)
        if case.needs is None or (big and surfaces.available(case.needs)):
            rounds = sets([f"federation.rounds={case.rounds}"])
            drops = [word for drop in case.drop for word in ("--drop", drop)]
            entry["run"] = run(folder, str(path), *options, *rounds, *drops, threads=threads)
    return entry


def promises(path: Path, options: list[str]) -> dict[str, Any]:
    """What is said about a plan before anything is computed."""
    account = command("account", str(path), *options, "--json").json()
    planned = command("plan", str(path), *options, "--json").json()
    same = without(planned.pop("account", {}), {"plan_hash"}) == without(
        account, {"plan_hash", "ledger"}
    )
    return {
        "resolved_under_old_names": account.pop("plan_hash", None),
        "account": without(account, {"ledger"}),
        "text": command("account", str(path), *options).lines(),
        "plan": {
            "account is the same": same,
            "design": without(planned.pop("design", {}), {"plan_hash"}),
            **without(planned, {"ledger", "files"}),
        },
    }


def run(folder: Path, *arguments: str, threads: int = 1) -> dict[str, Any]:
    """What a few rounds leave behind."""
    out = ["--out", str(folder / "runs"), "--no-report", "--no-compare", "--json"]
    answer = command("train", *arguments, "--seed", str(SEED), "--threads", str(threads), *out)
    if answer.code:
        return answer.json()
    return left_behind(Path(answer.json()["run"]))


def left_behind(path: Path) -> dict[str, Any]:
    """The files of a finished run without times and paths."""
    arrays = surfaces.checkpoint(path)
    return {
        **surfaces.moved(arrays),
        "model": digest(surfaces.parameters(arrays)),
        "released": digest(surfaces.released(path)),
        "checkpoint": {name: sha256(array) for name, array in sorted(arrays.items())},
        "rounds": [without(each, _TIMES_AND_PATHS) for each in surfaces.round_entries(path)],
        "summary": without(surfaces.summary(path), _TIMES_AND_PATHS),
    }


def embedded(folder: Path) -> dict[str, Any]:
    """`sumus train` without a plan."""
    with surfaces.old_names():
        return {"run": run(folder, *sets(["federation.rounds=2"]))}


def ledger(folder: Path, base: str, *changes: str) -> dict[str, Any]:
    """What a run without a seed enters, and what is accounted of it when it is over.

    Nothing here depends on its noise, which is secret and new every time.
    """
    path = plan_file(base, folder)
    out = ["--out", str(folder / "runs"), "--no-report", "--no-compare", "--json"]
    with surfaces.old_names(), surfaces.state_folder(folder / "state"):
        trained = command("train", str(path), *sets(changes), *out).json()
        run_folder = Path(trained["run"])
        measured = {"metrics", "accuracy", "loss", "accuracy_plus_minus", "loss_plus_minus"}
        summary = without(trained, measured | _TIMES_AND_PATHS | {"baselines"})
        spent = [
            without(entry, {"run", "time", "round_id"})
            for entry in surfaces.ledger_entries(folder / "state")
        ]
        kept = ("round", "epsilon_spent", "delta")
        return {
            "entries": spent,
            "promised": surfaces.promised(run_folder),
            "summary": summary,
            "rounds": [
                {name: entry[name] for name in kept} for entry in surfaces.round_entries(run_folder)
            ],
            "account of the run": command("account", str(run_folder), "--json").json(),
            "text": command("account", str(run_folder)).lines(),
        }


def calculator(folder: Path) -> dict[str, Any]:
    """`sumus.epsilon`, `sumus.calibrate` and `sumus.average`."""
    del folder
    answers: dict[str, Any] = {}
    for mechanism in ("skellam", "discrete-gaussian", "gaussian"):
        for accountant in ("pld", "renyi", "renyi-mironov"):
            how = {
                "mechanism": mechanism,
                "accountant": accountant,
                "sampling_rate": 0.05,
                "steps": 60,
                "delta": 1e-6,
            }
            name = f"{mechanism} {accountant}"
            answers[name] = [
                sumus.epsilon(noise_multiplier=1.3, **how),  # type: ignore[arg-type]
                sumus.calibrate(epsilon=1.7, **how),  # type: ignore[arg-type]
            ]
    averaged = sumus.average(
        local_epsilon=8.0, delta=1e-5, sampling_rate=0.1, steps=20, parties=[1, 5]
    )
    answers["average"] = [asdict(row) for row in averaged]
    return answers


def protocol(folder: Path) -> dict[str, Any]:
    """The protocol without drop-outs."""
    del folder
    return _transcript(seed=1, silos=5, length=64, colluding=1)


def _transcript(**settings: Any) -> dict[str, Any]:
    messages, total, survivors = surfaces.transcript(**settings)
    listed = [
        f"{kind} {sender} {len(message)} {hashlib.sha256(message).hexdigest()[:32]}"
        for kind, sender, message in messages
    ]
    whole = hashlib.sha256(b"".join(message for _, _, message in messages)).hexdigest()
    return {
        "messages": listed if len(listed) < 100 else listed[:8] + listed[-8:],
        "count": len(listed),
        "all messages": whole,
        "sum": sha256(total.astype(np.uint64)),
        "survivors": survivors,
    }


# -- models of one's own ---------------------------------------------------------------------------

_OWN_PLAN = (
    "federation.silos=none",
    "federation.rounds=2",
    "federation.local_steps=3",
    "data.name=none",
    "training.features=none",
)
_IMAGES = ("federation.silos=none", "federation.rounds=2", "data.name=none")

OWN: dict[str, tuple[str, str | None, tuple[int, ...], int, tuple[str, ...]]] = {
    # name → base, class of `own_models`, shape of a record, tokens, changes
    "own-layer-norm": ("steps", "LayerNormPerceptron", (12,), 0, _OWN_PLAN),
    "own-linear": ("steps", "Perceptron", (12,), 0, (*_OWN_PLAN, "training.algorithm=split-noise")),
    "own-linear-stochastic": (
        "steps",
        "Perceptron",
        (12,),
        0,
        (*_OWN_PLAN, "noise.rounding=stochastic"),
    ),
    "own-convolutions": ("steps", "SmallConvolutions", (1, 12, 12), 0, _OWN_PLAN),
    "own-tokens": ("steps", "Tokens", (6,), 20, (*_OWN_PLAN, "training.vocabulary=20")),
    "own-silo": ("silos", "Perceptron", (12,), 0, (*_OWN_PLAN, "privacy.epsilon=30")),
    "images-cnn": (
        "steps",
        None,
        (1, 28, 28),
        0,
        (*_IMAGES, "training.model=cnn", "federation.local_steps=2"),
    ),
    "images-gabor": (
        "convex",
        None,
        (1, 28, 28),
        0,
        (*_IMAGES, "training.features=gabor", "federation.local_steps=20"),
    ),
}


def own(name: str, folder: Path) -> dict[str, Any]:
    """A run on objects that were given in Python."""
    from goldens import own_models

    base, kind, shape, tokens, changes = OWN[name]
    model = None if kind is None else own_models.seeded(getattr(own_models, kind))
    options = sets(changes)[1::2]
    overrides = dict(tuple(option.split("=", 1)) for option in options)
    with surfaces.old_names():
        plan = sumus.TrainingPlan.load(plan_file(base, folder)).with_overrides(overrides)
        silos = own_models.records(shape, tokens=tokens)
        path = surfaces.train_in_python(
            plan,
            seed=SEED,
            root=folder / "runs",
            model=model,
            silos=silos,
            name="houses",
            classes=3,
        )
        return {"promised": surfaces.promised(path), "run": left_behind(path)}


# -- small things ----------------------------------------------------------------------------------


def plan_file(base: str, folder: Path) -> Path:
    """The plan of a case as a file; a table that it names stands beside it."""
    if base.endswith(".toml"):
        return ROOT / base
    write_table(folder / "visits.csv")
    source = BASES[base]
    for old, new in surfaces.RENAMED.items():
        source = re.sub(rf"(?m)^{re.escape(old)} =", f"{new} =", source)
    path = folder / f"{base}.toml"
    path.write_text(source, encoding="utf-8")
    return path


def without(values: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """The values without some of them."""
    return {name: value for name, value in values.items() if name not in names}


def sha256(array: np.ndarray) -> str:
    """Of the numbers in little-endian order, and of their type."""
    plain = np.ascontiguousarray(array)
    return hashlib.sha256(plain.dtype.str.encode() + plain.tobytes()).hexdigest()


def digest(vector: np.ndarray) -> dict[str, Any]:
    """A vector as a hash, and as a few numbers for machines with other last bits."""
    places = np.linspace(0, len(vector) - 1, 5).astype(int)
    return {
        "sha256": sha256(vector.astype("<f8")),
        "length": len(vector),
        "mean": float(vector.mean()),
        "norm": float(np.linalg.norm(vector)),
        "samples": [float(vector[place]) for place in places],
    }


def make(name: str, folder: Path, *, threads: int = 1, big: bool = True) -> dict[str, Any]:
    """One entry, in a folder that is gone afterwards; arguments as in `all_entries`."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    folder.mkdir(parents=True)
    try:
        return all_entries(threads=threads, big=big)[name](folder)
    finally:
        torch.set_num_threads(before)
        shutil.rmtree(folder)
