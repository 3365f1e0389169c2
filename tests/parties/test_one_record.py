"""A record's way from tensor to released sum passes the files that docs/one-record-files.txt lists.

A run is traced. A function is on the way if it is handed records or an integer vector made of them,
or returns one; its caller is on the way too. A room is read at its door and counts as one file, and
so does `training/local`; `parties` and `training` are read file by file. A reader stops at the doors
of `noise` and `secagg`, and at tools that take no notice of what they carry.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

import sumus
from sumus.data import FederatedData, Records, SiloRecords
from sumus.parties import Summed
from sumus.plan import TrainingPlan
from sumus.runs import RunOptions, train
from sumus.secagg import RoundSum
from sumus.training import LocalUpdate, Prepared, Server

SOURCE = Path(sumus.__file__).parent
LIST = Path(__file__).parents[2] / "docs" / "one-record-files.txt"
MOST = 15
STOPS = {"noise", "secagg", "files", "purity", "randomness", "errors"}
READ_BY_FILE = {"parties", "training"}
MADE_OF_RECORDS = (
    FederatedData,
    SiloRecords,
    Records,
    Prepared,
    LocalUpdate,
    RoundSum,
    Summed,
)
PLAN = """
[privacy]
epsilon = 5.0
delta = 1e-3
[federation]
rounds = 1
local_steps = 2
[training]
algorithm = "split-noise"
sampling_rate = 0.5
learning_rate = 0.4
[evaluation]
metrics = "none"
"""
FEATURES, CLASSES, RECORDS = 7, 3, 20
DIMENSION = CLASSES * (FEATURES + 1)


def carries(value: Any, depth: int = 2) -> bool:
    """Whether a value is made of records: they themselves, or integers of all coordinates."""
    if isinstance(value, MADE_OF_RECORDS):
        return True
    if isinstance(value, torch.Tensor | np.ndarray):
        shape = tuple(value.shape)
        if "float" in str(value.dtype):
            return shape == (RECORDS, FEATURES)
        return shape == (DIMENSION,)
    inner = value.values() if isinstance(value, dict) else value
    return (
        depth > 0
        and isinstance(value, tuple | list | dict)
        and any(carries(item, depth - 1) for item in inner)
    )


def station(frame: FrameType | None) -> str | None:
    """The file that a reader has open; None outside of Sumus and behind a door where they stop."""
    path = Path(frame.f_code.co_filename) if frame is not None else Path()
    if not path.is_relative_to(SOURCE):
        return None
    room, *inner = path.relative_to(SOURCE).with_suffix("").parts
    if room in STOPS or not inner:
        return None
    return f"{room}/{inner[0]}" if room in READ_BY_FILE else room


@contextmanager
def followed(stations: list[str]) -> Iterator[None]:
    """Note every file that a record comes to inside, once, until its sum has moved the model."""
    released = False

    def note(frame: FrameType | None) -> None:
        here = station(frame)
        if here is not None and here not in stations:
            stations.append(here)

    def watch(frame: FrameType, event: str, value: Any) -> None:
        nonlocal released
        if released or event not in ("call", "return") or station(frame) is None:
            return
        at_hand = frame.f_locals.values() if event == "call" else (value,)
        if any(map(carries, at_hand)):
            note(frame.f_back)
            note(frame)
        released = event == "return" and frame.f_code is Server.apply.__code__

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)


def listed() -> list[str]:
    return [line.split()[0] for line in LIST.read_text(encoding="utf-8").splitlines() if line]


def test_a_record_passes_the_files_that_the_docs_list_in_that_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    silos = {
        name: (
            torch.tensor(rng.normal(size=(RECORDS, FEATURES)), dtype=torch.float32),
            torch.tensor(rng.integers(0, CLASSES, RECORDS)),
        )
        for name in ("Bergen", "Oslo", "Tromsø")
    }
    plan = TrainingPlan.from_toml(PLAN)
    options = RunOptions(root=tmp_path / "runs", state=tmp_path / "state", threads=1)
    stations: list[str] = []
    with followed(stations):
        train(plan, silos=silos, name="visits", classes=CLASSES, options=options)
    assert stations == listed()


def test_the_list_fits_on_a_page_and_names_files_that_exist() -> None:
    assert len(listed()) <= MOST
    for name in listed():
        assert (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file()
