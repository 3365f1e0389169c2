"""One Fashion-MNIST round of the paper (10 silos × 11 steps × batch 512, CNN) with secure
aggregation: where the time goes.

    python benchmarks/federation.py [--rounds 2] [--algorithm split-noise] [--quick]

Side by side in the same process: the same round with Opacus clients behind Flower's message objects
    (per-record gradients by Opacus'
hooks, continuous noise, plain averaging, no secure aggregation). Falls back to random images where
the data set is not installed. In full also with 2 and 5 of the silos. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import torch

from rows import Curve, at_least, at_most, last_line
from sumus.books import NoLedger
from sumus.data import from_arrays, load
from sumus.errors import DataError
from sumus.guarantee import calibrated
from sumus.parties import RunSecret, federation_in_process
from sumus.plan import TrainingPlan
from sumus.training import prepare
from sumus.training.models import build_model

SILOS = 10
PLAN = """
[privacy]
epsilon = 1.0
delta = 1e-5
[federation]
silos = {silos}
rounds = 20
local_epochs = 1
[training]
model = "cnn"
batch_size = 512
clip_norm = 0.5
learning_rate = 1.0
[evaluation]
metrics = "none"
[data]
name = "fashion-mnist"
"""


def images(silos: int = SILOS) -> tuple[TrainingPlan, object]:
    """The real data set, or random images of the same size."""
    plan = TrainingPlan.from_toml(PLAN.format(silos=silos))
    try:
        return plan, load(plan)
    except DataError:
        rng = np.random.default_rng(0)
        pairs = [
            (rng.random((5600, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, 5600))
            for _ in range(silos)
        ]
        return plan.with_overrides({"data.name": "none"}), from_arrays(
            pairs, tests=pairs, classes=10
        )


def ours(algorithm: str, rounds: int, silos: int = SILOS) -> dict[str, float]:
    """Seconds of each stage of a round."""
    plan, data = images(silos)
    plan = plan.with_overrides({"training.algorithm": algorithm})
    facts = data.facts()  # type: ignore[attr-defined]
    built = calibrated(plan, facts)
    federation = federation_in_process(
        built,
        prepare(built.plan, data),  # type: ignore[arg-type]
        RunSecret(b"b" * 32, built.plan.hash),
        releases=NoLedger("benchmark"),
    )
    federation.round(0)  # keys, compiled kernels
    stages: dict[str, float] = {}
    for number in range(1, rounds + 1):
        for stage, seconds in federation.round(number).seconds.items():
            stages[stage] = stages.get(stage, 0.0) + seconds / rounds
    return stages


def opacus_behind_flower(steps: int = 11, batch: int = 512) -> float:
    """Seconds of the same local work by Opacus clients whose messages are Flower's; every client
    gets the same number of steps.
    """
    from flwr.app import ArrayRecord, RecordDict
    from opacus.grad_sample import GradSampleModule

    _, data = images()
    model = build_model("cnn", shape=(1, 28, 28), outputs=10)
    weights = ArrayRecord(model.state_dict())
    loss = torch.nn.CrossEntropyLoss(reduction="sum")
    begin = time.perf_counter()
    replies = []
    for silo in data.silos:  # type: ignore[attr-defined]
        content = RecordDict({"arrays": weights})
        local = build_model("cnn", shape=(1, 28, 28), outputs=10)
        local.load_state_dict(content["arrays"].to_torch_state_dict())
        hooked = GradSampleModule(local)
        x, y = torch.from_numpy(silo.train.x), torch.from_numpy(silo.train.y)
        for _ in range(steps):
            chosen = torch.randperm(len(y))[:batch]
            hooked.zero_grad(set_to_none=True)
            loss(hooked(x[chosen]), y[chosen]).backward()
            samples = [p.grad_sample.reshape(len(chosen), -1) for p in hooked.parameters()]
            factors = (0.5 / torch.stack([s.norm(dim=1) for s in samples]).norm(dim=0)).clamp(
                max=1.0
            )
            with torch.no_grad():
                for parameter, each in zip(hooked.parameters(), samples, strict=True):
                    summed = (factors @ each).view_as(parameter) + 3.0 * torch.randn_like(parameter)
                    parameter -= 1.0 / batch * summed
                    parameter.grad_sample = None
        replies.append(RecordDict({"arrays": ArrayRecord(local.state_dict())}))
    states = [reply["arrays"].to_torch_state_dict() for reply in replies]
    {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    return time.perf_counter() - begin


def main() -> None:
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--algorithm", default="split-noise")
    parser.add_argument("--quick", action="store_true", help="one round, ten silos")
    arguments = parser.parse_args()
    stages = ours(arguments.algorithm, 1 if arguments.quick else arguments.rounds)
    peer = opacus_behind_flower()
    total = sum(stages.values())
    for stage, seconds in stages.items():
        print(f"{stage:12s} {seconds:8.3f} s  {seconds / total:6.1%}")
    print(
        f"round        {total:8.3f} s;  Opacus clients behind Flower messages, no secure sum: "
        f"{peer:.3f} s"
    )
    share = (stages["noise"] + stages["protocol"]) / total
    spent = ", ".join(f"{stage} {seconds / total:.1%}" for stage, seconds in stages.items())
    rows = [
        at_most("noise and protocol, share of a Fashion-MNIST round", share, 0.15, "", where=spent),
        at_least(
            "Opacus clients behind Flower's messages over our round",
            peer / total,
            1.0,
            "×",
            where=spent,
        ),
    ]
    curves = []
    if not arguments.quick:
        rounds = {few: ours(arguments.algorithm, 1, few) for few in (2, 5)} | {SILOS: stages}
        curves = [
            Curve(
                stage,
                "silos",
                "s a round",
                tuple(map(float, rounds)),
                tuple(each[stage] for each in rounds.values()),
            )
            for stage in stages
        ]
    print(last_line(rows, curves, seconds=round(total, 3)))


if __name__ == "__main__":
    main()
