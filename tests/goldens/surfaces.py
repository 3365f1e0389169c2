"""The one place that reaches into Sumus. Where something moves, only this file follows it.

Plans, accounts and runs are reached through the command line and through `sumus.*`, a run's outcome
through the files of its folder. What has no door of its own (options of a run, protocol states,
formats of messages) is imported here, inside the function that needs it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import runpy
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import sumus
from goldens.changes import ADDED, RENAMED

HASH_DOMAIN = b"sumus-plan-v1\0"
JOURNAL = "journal.jsonl"
LEDGERS = "ledger-*.jsonl"
CHECKPOINT = "checkpoint.npz"
MODEL = "model.pt"
SUMMARY = "summary.json"


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    errors: str

    def json(self) -> dict[str, Any]:
        """The object on the last line; of a refusal, its code and its words."""
        if self.code:
            lines = [line for line in self.errors.splitlines() if line.startswith("error")]
            return {"exit": self.code, "error": lines[-1] if lines else self.errors}
        return dict(json.loads(self.out.splitlines()[-1]))

    def lines(self) -> list[str]:
        """What a person reads."""
        return [line.rstrip() for line in (self.errors if self.code else self.out).splitlines()]


def command(*arguments: str) -> Answer:
    """Run `python -m sumus …` in this process: torch takes seconds to import."""
    out, errors = io.StringIO(), io.StringIO()
    code: Any = 0
    with (
        mock.patch.object(sys, "argv", ["sumus", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
    ):
        try:
            runpy.run_module("sumus", run_name="__main__", alter_sys=False)
        except SystemExit as stop:
            code = stop.code or 0
    return Answer(int(code), out.getvalue(), errors.getvalue())


def sets(changes: Iterable[str]) -> list[str]:
    """Changes of a plan as `--set` options, under today's names."""
    options = []
    for change in changes:
        dotted, _, value = change.partition("=")
        head, _, last = dotted.rpartition(".")
        options += ["--set", f"{head}.{RENAMED.get(last, last)}={value}"]
    return options


# -- plan hashes -----------------------------------------------------------------------------------


def hashed_types() -> tuple[type, ...]:
    """Types with `as_table()` whose `hash` gets into messages, ledgers or journals."""
    return (sumus.TrainingPlan,)


def hash_under_old_names(plan: Any) -> str:
    """The hash that the plan has with the keys of the tree that the values were made from."""
    old_name = {new: old for old, new in RENAMED.items()}

    def back(table: Mapping[str, Any], *path: str) -> dict[str, Any]:
        kept = {}
        for key, value in table.items():
            dotted = ".".join((*path, key))
            if dotted in ADDED and ADDED[dotted] == value:
                continue
            inner = back(value, *path, key) if isinstance(value, Mapping) else value
            if isinstance(value, Mapping) and value and not inner:
                continue  # a section of nothing but added keys
            kept[old_name.get(key, key)] = inner
        return kept

    canonical = json.dumps(
        back(plan.as_table()), sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(HASH_DOMAIN + canonical.encode()).hexdigest()


@contextlib.contextmanager
def old_names() -> Iterator[None]:
    """Plans have the hash of their old names inside: what hangs on it can be compared."""
    with contextlib.ExitStack() as stack:
        for kind in hashed_types():
            stack.enter_context(mock.patch.object(kind, "hash", property(hash_under_old_names)))
        yield


def own_hash(path: Path, changes: Iterable[str]) -> str:
    """The hash of a plan under today's names; to be called outside of `old_names`."""
    plan = sumus.TrainingPlan.load(path)
    options = sets(changes)[1::2]
    overrides = dict(tuple(map(str.strip, option.split("=", 1))) for option in options)
    return str(plan.with_overrides(overrides).hash)


# -- runs ------------------------------------------------------------------------------------------


def available(dataset: str) -> bool:
    """Whether a data set of the catalogue is on this machine."""
    return any(
        row["name"] == dataset and row["ready"]
        for row in command("data", "list", "--json").json()["data_sets"]
    )


def round_entries(folder: Path) -> list[dict[str, Any]]:
    """The rounds of a run's journal, with what was measured of them afterwards."""
    from sumus.books import RunFolder
    from sumus.files import plain_json

    return [
        _with_plain_metrics(plain_json(asdict(entry))) for entry in RunFolder.open(folder).rounds()
    ]


def _with_plain_metrics(entry: dict[str, Any]) -> dict[str, Any]:
    """A round with each of its metrics under a key of its own, None where it was not measured."""
    values, widths = entry.pop("metrics"), entry.pop("metrics_plus_minus")
    for name in ("accuracy", "loss"):
        entry |= {name: values.get(name), f"{name}_plus_minus": widths.get(name)}
    return entry


def promised(folder: Path) -> dict[str, Any] | None:
    """The guarantee in the first line of a run's journal."""
    header = json.loads((folder / JOURNAL).read_text(encoding="utf-8").splitlines()[0])
    stored = header["body"]["guarantee"]
    return None if stored is None else dict(stored)


def summary(folder: Path) -> dict[str, Any]:
    """What a run's folder says about its end."""
    told = dict(json.loads((folder / SUMMARY).read_text(encoding="utf-8")))
    metrics = told.pop("metrics")
    assert all(told[name] == value for name, value in metrics.items())
    return told


def checkpoint(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of a run's checkpoint under their old names."""
    old_name = {new: old for old, new in RENAMED.items()}
    with np.load(folder / CHECKPOINT) as stored:
        names = [name for name in stored.files if isinstance(stored[name], np.ndarray)]
        arrays = {old_name.get(name, name): stored[name] for name in names}
    # stored as silos receive it, which is the same number in four bytes
    return arrays | {"iterate": arrays["iterate"].astype(np.float64)}


def parameters(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The model among the arrays of a checkpoint."""
    return arrays["iterate"]


def moved(arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
    """How far the second of two rounds moved the model: twice its distance from their mean, where a
    checkpoint has it.
    """
    if "mean" not in arrays:
        return {}
    return {"moved": float(2.0 * np.linalg.norm(arrays["iterate"] - arrays["mean"]))}


def released(folder: Path) -> np.ndarray:
    """The parameters of the released model as one vector."""
    import torch

    state = torch.load(folder / MODEL, weights_only=True)
    return np.concatenate(
        [tensor.numpy().astype(np.float64).reshape(-1) for tensor in state.values()]
    )


def ledger_entries(state: Path) -> list[dict[str, Any]]:
    """The releases on all ledgers of a state folder."""
    files = sorted(state.glob(LEDGERS))
    lines = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    return [line["body"] for line in lines if line["kind"] == "release"]


@contextlib.contextmanager
def state_folder(path: Path) -> Iterator[None]:
    """Ledgers go to a folder of their own inside."""
    with mock.patch.dict(os.environ, {"SUMUS_STATE": str(path)}):
        yield


def train_in_python(plan: Any, *, seed: int, root: Path, **given: Any) -> Path:
    """`sumus.train` with a public seed and objects of one's own; returns the run's folder."""
    from sumus.runs import RunOptions, Simulation

    return Path(
        sumus.train(
            plan,
            options=RunOptions(root=root, threads=1),
            simulation=Simulation(seed),
            **given,
        ).path
    )


# -- the protocol ----------------------------------------------------------------------------------


def transcript(
    *,
    seed: int,
    silos: int,
    length: int,
    dropouts: int = 0,
    colluding: int = 0,
    removable: int = 0,
    graph: str = "complete",
    modulus_bits: int = 32,
    absent: frozenset[int] = frozenset(),
) -> tuple[list[tuple[str, int, bytes]], np.ndarray, list[int]]:
    """Every message of a key set-up and of one round, seeded; the sum; and its survivors.

    Args:
        absent: silos that vanish before they send an input.
    """
    from sumus.randomness import RandomSource
    from sumus.secagg import (
        SERVER_NAME,
        Identity,
        MemoryKeyStore,
        MemoryRoundGuard,
        Roster,
        ServerSetup,
        SiloSetup,
        Terms,
    )

    random = RandomSource.simulation(seed, "golden transcript")
    terms = Terms(
        plan_hash=bytes(range(32)),
        silos=silos,
        length=length,
        modulus_bits=modulus_bits,
        dropouts=dropouts,
        colluding=colluding,
        noise_contributors=silos - dropouts - colluding,
        removable=removable,
        graph=graph,  # type: ignore[arg-type]
    )
    messages: list[tuple[str, int, bytes]] = []
    identities = [Identity.generate(f"silo-{number:03d}", random) for number in range(silos)]
    own = Identity.generate(SERVER_NAME, random)
    roster = Roster.of(own, identities)
    setup, started, sources = ServerSetup(own, roster, terms), {}, {}
    for number, identity in enumerate(identities):
        sources[number] = random.child()
        started[number], advert = SiloSetup.start(
            identity, roster, terms=terms, random=sources[number], post_quantum=False
        )
        messages.append(("advert", number, bytes(advert)))
        setup.receive(advert, sender=number)
    carrying, directories = setup.close()
    messages += [
        ("directory", number, bytes(directories[number])) for number in sorted(directories)
    ]
    waiting, sessions = {}, {}
    for number, begun in started.items():
        waiting[number], reply = begun.receive(directories[number])
        messages.append(("encapsulations", number, bytes(reply)))
        carrying.receive(reply, sender=number)
    server, ciphertexts = carrying.close()
    for number, agreeing in waiting.items():
        sessions[number], reply = agreeing.receive(
            ciphertexts[number], MemoryRoundGuard(), MemoryKeyStore(), random=sources[number]
        )
        messages.append(("ciphertexts", number, bytes(ciphertexts[number])))
        messages.append(("ready", number, bytes(reply)))
    collecting, invitation = server.invite(bytes(range(1, 33)), payload=b"the model of the round")
    messages.append(("invitation", -1, bytes(invitation)))
    submitted = {}
    for number in sorted(set(sessions) - absent):
        invited = sessions[number].receive(invitation)
        messages += [("removable seed", number, bytes(key)) for key in invited.removable_seeds]
        vector = (np.arange(length, dtype=np.uint64) * np.uint64(2654435761 + number)) % np.uint64(
            1 << modulus_bits
        )
        submitted[number], reply = invited.submit(vector)
        messages.append(("masked input", number, bytes(reply)))
        collecting.receive(reply, sender=number)
    certifying, proposal = collecting.close()
    messages.append(("dropped set", -1, bytes(proposal)))
    signed = {}
    for number, state in submitted.items():
        signed[number], reply = state.sign(proposal)
        messages.append(("signature", number, bytes(reply)))
        certifying.receive(reply, sender=number)
    unmasking, certificate = certifying.close()
    messages.append(("certificate", -1, bytes(certificate)))
    for number, ready in signed.items():
        _, reply = ready.reveal(certificate)
        messages.append(("revealed shares", number, bytes(reply)))
        unmasking.receive(reply, sender=number)
    ended = unmasking.close()
    for number in sorted(ended.removed_seeds):
        opened = ended.removed_seeds[number]
        messages += [
            (f"opened seed {index}", number, bytes(opened[index])) for index in sorted(opened)
        ]
    return messages, np.asarray(ended.total), sorted(ended.survivors)


def wire_messages() -> dict[str, bytes]:
    """The messages around the rounds as they travel."""
    from sumus.parties.sums import pack_model
    from sumus.randomness import RandomSource
    from sumus.secagg import SERVER, Greeting, Identity, Ready, Refusal, Welcome

    signer = Identity.generate("party", RandomSource.simulation(1, "golden wire"))
    session = bytes(range(32))
    silo: dict[str, Any] = {"sender": 3, "session": session}
    welcome = {"nonce": bytes(range(1, 33)), "advert": b"an advert"}
    greeting = Greeting(
        sender=SERVER,
        session=session,
        nonce=bytes(range(1, 33)),
        plan_hash=bytes(32),
        version="0.2.0",
    )
    refusal = Refusal.of(b"a request", "the plan is not approved", round_id=bytes(32), **silo)
    return {
        "greeting": greeting.encode(signer),
        "welcome": Welcome(simulation=False, **welcome, **silo).encode(signer),
        "welcome of a simulation": Welcome(simulation=True, **welcome, **silo).encode(signer),
        "ready": Ready(answers=bytes(range(2, 34)), **silo).encode(signer),
        "refusal": refusal.encode(signer),
        "model": pack_model(3, np.linspace(-1.0, 1.0, 7)),
        "model to measure": pack_model(4, np.linspace(-1.0, 1.0, 7), "metrics"),
    }
